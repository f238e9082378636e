//! `linerate lab`: the ladder between two temporary hosts, network paths and placements compared, and the hosts for other uses.

mod hosts;
mod paths;
mod placement;
mod predict;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};
use linerate_host::Host;
use linerate_lab::ladder::config::{LadderConfig, RunTiming};
use linerate_lab::ladder::lab_run;
use linerate_lab::ladder::report::WarningKind;
use linerate_lab::program::ServerRecipe;
use linerate_lab::userns::{self, LabPrivilege};

use crate::command::ladder_args::{LadderRunArgs, write_report};
use crate::command::results::ResultTargets;
use crate::envelope::{CommandResult, Envelope};
use crate::interrupt::InterruptFlag;
use crate::origin::{self, HostSummary, Warning};
use crate::progress::RunProgress;
use crate::suggestion::SuggestedValues;

/// Run the ladder between two temporary hosts on this machine, and report.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    action: Option<LabAction>,
    #[command(flatten)]
    running: LabRunArgs,
}

#[derive(Debug, Subcommand)]
enum LabAction {
    /// Compare bridges, NAT, overlays and other network paths to a service
    Paths(paths::LabPathsArgs),
    /// Compare receivers on the CPU of their packets, its sibling, another core and another NUMA node
    Placement(placement::LabPlacementArgs),
    /// Predict the ladder of a machine with other CPUs and queues
    Predict(predict::LabPredictArgs),
    /// Make temporary hosts for your own server, and keep them
    Up(hosts::LabUpArgs),
    /// Remove hosts made with 'up'
    Down(hosts::LabDownArgs),
    /// List labs, their hosts and addresses
    List(hosts::LabListArgs),
    /// Run a command on a host of a lab
    Exec(hosts::LabExecArgs),
    /// Remove processes and restore settings of labs that died
    Clean(hosts::LabCleanArgs),
    /// Hold the hosts of 'up'
    #[command(hide = true)]
    Hold(hosts::LabHoldArgs),
    /// Run a process of a path of 'paths'
    #[command(subcommand, hide = true)]
    Relay(paths::LabRelayArgs),
}

impl LabArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.action {
            None => self.running.run(),
            Some(LabAction::Paths(paths)) => paths.run(),
            Some(LabAction::Placement(placement)) => placement.run(),
            Some(LabAction::Predict(predict)) => predict.run(),
            Some(LabAction::Up(up)) => up.run(),
            Some(LabAction::Down(down)) => down.run(),
            Some(LabAction::List(list)) => list.run(),
            Some(LabAction::Exec(exec)) => exec.run(),
            Some(LabAction::Clean(clean)) => clean.run(),
            Some(LabAction::Hold(hold)) => hold.run(),
            Some(LabAction::Relay(relay)) => relay.run(),
        }
    }
}

/// Runs a comparison of pairs of samples, and writes its result. Returns status 2 if it was interrupted.
fn compare<T: CommandResult>(
    name: &str,
    samples: u32,
    targets: &ResultTargets,
    run: impl FnOnce(&Arc<AtomicBool>) -> Result<T>,
) -> Result<ExitCode> {
    ensure!(samples.is_multiple_of(2), "--samples {samples}: an even number is required");
    ensure!(
        rustix::process::geteuid().is_root(),
        "lab {name} requires root: it loads BPF programs and sets queues of interfaces"
    );
    let interrupt = InterruptFlag::install()?;
    hosts::clean_before()?;
    let started_unix_seconds = origin::unix_seconds();
    let report = run(&interrupt.flag())?;
    let warning = interrupt
        .is_raised()
        .then(|| Warning::new(WarningKind::Interrupted.name(), "the run was stopped before its end"));
    let code = if warning.is_some() { ExitCode::from(2) } else { ExitCode::SUCCESS };
    let host = HostSummary::observe(&Host::live());
    targets.write(&Envelope::new(host, started_unix_seconds, report).with_warnings(warning))?;
    Ok(code)
}

#[derive(Debug, Args)]
struct LabRunArgs {
    #[command(flatten)]
    ladder: LadderRunArgs,
    /// Transmit and receive queues of the receiver, 1 to 64 [default: as many as CPUs, 2 to 16]
    #[arg(long, value_name = "N")]
    queues: Option<u32>,
    /// Measure this server instead of linerate's own: nsd, knot, unbound, ..., a recipe file (.toml), or
    /// a command with {address}, {port} and {workers}
    #[arg(long, value_name = "SERVER", value_parser = SuggestedValues::recipes(), hide_possible_values = true)]
    server: Option<String>,
    /// Requests for the server: dns:FILE, ntp, radius:FILE, raw:FILE or echo [default: the recipe's]
    #[arg(long, value_name = "WORKLOAD", requires = "server")]
    workload: Option<String>,
    /// The server sends no replies, as a syslog or statsd server: count what it reads
    #[arg(long, requires = "server")]
    no_reply: bool,
    /// UDP port of the server [default: the recipe's, or 5300]
    #[arg(short = 'p', long, value_name = "PORT", requires = "server", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
}

impl LabRunArgs {
    fn run(self) -> Result<ExitCode> {
        let targets = self.ladder.results.targets()?;
        if let Some(status) = self.ladder.run_without_measuring(&targets)? {
            return Ok(status);
        }
        let config = self.ladder.config(RunTiming::LAB_QUICK, RunTiming::LAB, self.server.is_some())?;
        let mut server = self
            .server
            .as_deref()
            .map(|server| ServerRecipe::find(server, self.workload.as_deref(), self.port))
            .transpose()?;
        if let Some(recipe) = &mut server {
            recipe.no_reply |= self.no_reply;
        }
        let config = LadderConfig { queues: self.queues, server, ..config };
        // A user namespace must be entered before any thread starts.
        let privilege = match userns::enter_if_needed() {
            LabPrivilege::Forbidden { why, how_to_allow } => {
                bail!("a lab needs root or an unprivileged user namespace, and {why}; {how_to_allow}")
            }
            LabPrivilege::Root => "root",
            _ => "user-namespace",
        };
        let interrupt = InterruptFlag::install()?;
        let mut progress = RunProgress::new(config.duration, self.ladder.quiet);
        hosts::clean_before()?;
        let started = origin::unix_seconds();
        let outcome = lab_run::run(&config, interrupt.flag(), &mut |event| progress.event(event));
        progress.finish();
        let mut outcome = outcome?;
        privilege.clone_into(&mut outcome.report.testbed.privilege);
        write_report(&targets, started, outcome.report, &outcome.warnings)
    }
}
