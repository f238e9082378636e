//! `linerate lab up|down|list|exec|clean`: temporary hosts for your own server.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;
use clap_complete::{ArgValueCandidates, CompletionCandidate};
use linerate_host::{Host, Setting, SettingValue};
use linerate_lab::registry::{CleanedLab, HolderKind};
use linerate_lab::{CleanReport, CleanScope, LabRegistry, LabShape, LabState, LinkEnd, hold};
use serde::Serialize;

use crate::envelope::Envelope;
use crate::output::{self, OutputTarget};
use crate::render::format;

const DEFAULT_NAME: &str = "lab";

#[derive(Debug, Args)]
pub(super) struct LabUpArgs {
    /// Name of the lab
    #[arg(value_name = "LAB", default_value = DEFAULT_NAME)]
    name: String,
    /// Sending hosts, each with its own link to the receiver
    #[arg(long, value_name = "N", default_value_t = 1)]
    senders: usize,
    /// Transmit and receive queues of each interface, 1 to 64 [default: as many as CPUs, 2 to 16]
    #[arg(long, value_name = "N")]
    queues: Option<u32>,
    /// Addresses of each family on each interface of the receiver
    #[arg(long, value_name = "N", default_value_t = 1)]
    addresses: usize,
    /// MTU, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    mtu: u32,
    /// Write the lab as JSON; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    json: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct LabDownArgs {
    /// Name of the lab
    #[arg(value_name = "LAB", default_value = DEFAULT_NAME, add = ArgValueCandidates::new(lab_names))]
    name: String,
    /// Write the removed items as JSON; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    json: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct LabListArgs {
    /// Write the list as JSON; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    json: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct LabExecArgs {
    /// Name of the lab
    #[arg(long, value_name = "LAB", default_value = DEFAULT_NAME, add = ArgValueCandidates::new(lab_names))]
    lab: String,
    /// Name of the host: receiver, sender0, ...
    #[arg(value_name = "HOST")]
    host: String,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, last = true)]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(super) struct LabCleanArgs {
    /// Also end labs that are up or running
    #[arg(long)]
    all: bool,
    /// Write the removed items as JSON; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    json: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct LabHoldArgs {
    registry: PathBuf,
    options: String,
}

#[derive(Serialize)]
struct LabList {
    labs: Vec<LabState>,
}

impl LabUpArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let json = OutputTarget::from_option(self.json.as_deref())?;
        clean_before()?;
        let registry = LabRegistry::open()?;
        let default_shape = LabShape::default();
        let options = hold::HoldOptions {
            name: self.name,
            shape: LabShape {
                senders: self.senders,
                queues: self.queues.unwrap_or(default_shape.queues),
                addresses: self.addresses,
                mtu: self.mtu,
                ..default_shape
            },
        };
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let mut holder_command = Command::new(program);
        holder_command.args(["lab", "hold", "--"]);
        let state = hold::up(&registry, &options, holder_command)?;
        status_line!("run a command there with: linerate lab exec --lab {} receiver -- COMMAND", state.name);
        print_labs(vec![state], json.as_ref())?;
        Ok(ExitCode::SUCCESS)
    }
}

impl LabDownArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let json = OutputTarget::from_option(self.json.as_deref())?;
        let report = hold::down(&LabRegistry::open()?, &self.name, &mut restore)?;
        finish(&report, json.as_ref())
    }
}

impl LabListArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let json = OutputTarget::from_option(self.json.as_deref())?;
        let labs = hold::list(&LabRegistry::open()?)?;
        if labs.is_empty() && json.is_none() {
            status_line!("no lab is up");
            return Ok(ExitCode::SUCCESS);
        }
        print_labs(labs, json.as_ref())?;
        Ok(ExitCode::SUCCESS)
    }
}

impl LabExecArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let Some((program, arguments)) = self.command.split_first() else {
            bail!("no command given");
        };
        match hold::exec(&LabRegistry::open()?, &self.lab, &self.host, program, arguments)? {}
    }
}

/// Names of the existing labs, for shell completion.
fn lab_names() -> Vec<CompletionCandidate> {
    let labs = LabRegistry::open().and_then(|registry| registry.labs()).unwrap_or_default().labs;
    labs.into_iter().map(|lab| CompletionCandidate::new(lab.name)).collect()
}

impl LabCleanArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let json = OutputTarget::from_option(self.json.as_deref())?;
        let scope = if self.all { CleanScope::All } else { CleanScope::Dead };
        finish(&clean(&LabRegistry::open()?, scope)?, json.as_ref())
    }
}

impl LabHoldArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        hold::run(&self.registry, &self.options)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn print_labs(labs: Vec<LabState>, json: Option<&OutputTarget>) -> Result<()> {
    match json {
        Some(target) => target.write_json(&Envelope::of_now("linerate.labs/2", LabList { labs })),
        None => output::print(&labs.iter().map(lab_text).collect::<Vec<_>>().join("\n")),
    }
}

/// Removes processes and restores settings of dead labs. Prints each action to standard error.
pub(super) fn clean_before() -> Result<()> {
    let report = clean(&LabRegistry::open()?, CleanScope::Dead)?;
    print_unreadable(&report);
    for line in report.labs.iter().flat_map(cleaned_lines) {
        status_line!("linerate: {line}");
    }
    Ok(())
}

/// Restores a host-wide setting that a lab recorded before it changed it.
fn restore(key: &str, value: &serde_json::Value) -> Result<(), String> {
    let setting: Setting =
        serde_json::from_str(key).map_err(|error| format!("'{key}' is no setting: {error}"))?;
    let value: SettingValue =
        serde_json::from_value(value.clone()).map_err(|error| format!("'{value}' is no value: {error}"))?;
    setting.write(&Host::live(), &value).map_err(|error| error.to_string())
}

fn clean(registry: &LabRegistry, scope: CleanScope<'_>) -> Result<CleanReport> {
    Ok(registry.clean(scope, &mut restore)?)
}

fn print_unreadable(report: &CleanReport) {
    for file in &report.unreadable {
        status_line!("linerate: left alone: {file}");
    }
}

fn finish(report: &CleanReport, json: Option<&OutputTarget>) -> Result<ExitCode> {
    let is_complete = report.is_complete();
    print_unreadable(report);
    let mut lines: Vec<String> = report.labs.iter().flat_map(cleaned_lines).collect();
    if lines.is_empty() {
        lines.push("nothing was left".to_owned());
    }
    match json {
        Some(target) => target.write_json(&Envelope::of_now("linerate.clean/2", report))?,
        None => output::print(&format!("{}\n", lines.join("\n")))?,
    }
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn cleaned_lines(lab: &CleanedLab) -> Vec<String> {
    let name = &lab.name;
    let mut lines = Vec::new();
    lines.extend(
        lab.killed
            .iter()
            .map(|process| format!("lab {name}: ended process {} ({})", process.pid, process.command)),
    );
    lines.extend(
        lab.not_killed.iter().map(|process| {
            format!("lab {name}: could not end process {} ({})", process.pid, process.command)
        }),
    );
    lines.extend(lab.restored.iter().map(|setting| format!("lab {name}: restored {setting}")));
    lines.extend(lab.not_restored.iter().map(|tracked| {
        format!("lab {name}: could not restore {} to {}: {}", tracked.key, tracked.original, tracked.why)
    }));
    if lab.gone {
        lines.push(format!(
            "lab {name}: removed (its process {} {})",
            lab.pid,
            if lab.was_alive { "was ended" } else { "was gone" }
        ));
    }
    lines
}

fn lab_text(lab: &LabState) -> String {
    let kind = match lab.kind {
        HolderKind::Held => "up",
        HolderKind::Running => "running",
    };
    let mut text =
        format!("lab {} ({kind} since {}, process {})\n", lab.name, format::utc(lab.since), lab.process.pid);
    for host in &lab.hosts {
        let namespaces = format!("/proc/{}/task/{}/ns", lab.process.pid, host.thread);
        // A lab that was not made by root belongs to a user namespace, which must be entered first.
        let user = if rustix::process::geteuid().is_root() {
            String::new()
        } else {
            format!(" --user={namespaces}/user --preserve-credentials")
        };
        text.push_str(&format!("  {:<10} nsenter{user} --net={namespaces}/net\n", host.name));
        for link_end in lab.links.iter().flat_map(|link| [&link.receiver, &link.sender]) {
            if link_end.host == host.name {
                text.push_str(&format!("    {:<8} {}\n", link_end.interface, addresses(link_end)));
            }
        }
    }
    text
}

fn addresses(end: &LinkEnd) -> String {
    let v4 = end.ipv4.iter().map(ToString::to_string);
    let v6 = end.ipv6.iter().map(ToString::to_string);
    v4.chain(v6).collect::<Vec<_>>().join(" ")
}
