//! `linerate lab` without a subcommand: the climb.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use linerate_host::CpuSet;
use linerate_lab::userns::Privilege;
use linerate_ladder::climb::Policy;
use linerate_ladder::lab_climb::{self, LabClimb};
use linerate_ladder::report::{Report, WarningKind};
use linerate_ladder::rung::{self, RUNGS};
use linerate_measure::wire;
use serde::Serialize;

use crate::backend::BackendArgument;
use crate::interrupt::Interrupt;
use crate::output::{self, Target};
use crate::progress::Progress;
use crate::quantity;
use crate::render::{ladder_html, ladder_text, style::Style};

/// How much time to take for what.
struct Pace {
    rung: Duration,
    slot: Duration,
    resolution: f64,
    samples: u32,
}

const QUICK: Pace =
    Pace { rung: Duration::from_secs(5), slot: Duration::from_millis(80), resolution: 1.06, samples: 4 };
const FULL: Pace =
    Pace { rung: Duration::from_secs(23), slot: Duration::from_millis(120), resolution: 1.04, samples: 8 };

#[derive(Debug, Args)]
pub(crate) struct Climb {
    /// Take under 90 seconds instead of under 6 minutes; intervals are wider
    #[arg(long)]
    quick: bool,
    /// Take about so many seconds for the whole climb, but not less than it needs [default: 5 a rung when quick, else 23]
    #[arg(long, value_name = "S")]
    time: Option<f64>,
    /// Climb only these rungs (the baseline always): comma-separated identifiers
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    rungs: Option<Vec<String>>,
    /// List the rungs and end
    #[arg(long)]
    list: bool,
    /// What stays in place for the rungs above
    #[arg(long, value_enum, default_value_t = PolicyArgument::KeepAll)]
    policy: PolicyArgument,
    /// Also change settings of the whole machine (audit), and put them back at the end
    #[arg(long)]
    host_wide: bool,
    /// UDP payload of a request, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    payload: u32,
    /// Flows (source ports) of the generator
    #[arg(long, value_name = "N", default_value_t = 64)]
    flows: u32,
    /// The generator's way into the kernel
    #[arg(long, value_enum, default_value_t = BackendArgument::Auto)]
    backend: BackendArgument,
    /// Refuse to send what would be fragmented
    #[arg(long)]
    no_fragment: bool,
    /// Highest loss at which a rate still counts as held
    #[arg(long, value_name = "RATIO", default_value = "0.1%", value_parser = quantity::share)]
    max_loss: f64,
    /// Link speed that rates are shown as a share of
    #[arg(long, value_name = "SPEED", default_value = "10G")]
    link: wire::LinkSpeed,
    /// CPUs to use, as a list such as 0-3 [default: all the process may run on]
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Transmit and receive queues of the receiver, 1 to 64 [default: as many as CPUs, 2 to 16]
    #[arg(long, value_name = "N")]
    queues: Option<u32>,
    /// Write the report as JSON; '-' for standard output instead of the table
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Write the report as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<String>,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PolicyArgument {
    /// Every rung that could be applied
    KeepAll,
    /// Only rungs shown to be better
    KeepBetter,
}

impl Climb {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let json = Target::wanted(self.json.as_deref())?;
        let html = Target::wanted(self.html.as_deref())?;
        ensure!(
            json != Some(Target::Stdout) || html != Some(Target::Stdout),
            "--json - and --html - both want standard output; give one of them a file"
        );
        if self.list {
            return list(json.as_ref());
        }
        let climb = self.lab_climb()?;
        let privilege = super::enter()?;
        let interrupt = Interrupt::install()?;
        let mut progress = Progress::new(climb.budget, self.quiet);
        super::hosts::clean_before()?;
        let report = lab_climb::run(&climb, &privilege_name(&privilege), interrupt.flag(), &mut |event| {
            progress.event(event);
        });
        progress.finish();
        let mut report = report?;
        report.argv = output::argv();
        if let Some(target) = &json {
            target.json(&report)?;
        }
        if let Some(target) = &html {
            target.write(&ladder_html::ladder(&report)?)?;
        }
        if json != Some(Target::Stdout) && html != Some(Target::Stdout) {
            output::print(&ladder_text::ladder(&report, Style::stdout()))?;
        }
        Ok(exit_code(&report))
    }

    fn lab_climb(&self) -> Result<LabClimb> {
        let rungs = match &self.rungs {
            Some(names) => rung::select(names.iter().map(String::as_str))?,
            None => RUNGS.iter().collect(),
        };
        let cpus = self.cpus.as_deref().map(CpuSet::from_list).transpose().context("--cpus")?;
        let pace = if self.quick { &QUICK } else { &FULL };
        let each = pace.rung * u32::try_from(rungs.len()).unwrap_or(u32::MAX);
        let budget = self.time.map_or(Ok(each), Duration::try_from_secs_f64).context("--time")?;
        Ok(LabClimb {
            rungs,
            policy: match self.policy {
                PolicyArgument::KeepAll => Policy::KeepAll,
                PolicyArgument::KeepBetter => Policy::KeepBetter,
            },
            budget,
            slot: pace.slot,
            resolution: pace.resolution,
            samples: pace.samples,
            host_wide: self.host_wide,
            payload: self.payload,
            backend: self.backend.into(),
            flows: self.flows,
            no_fragment: self.no_fragment,
            max_loss: self.max_loss,
            link: self.link,
            cpus,
            queues: self.queues,
        })
    }
}

fn exit_code(report: &Report) -> ExitCode {
    let interrupted = report.warnings.iter().any(|warning| warning.kind == WarningKind::Interrupted);
    if interrupted { ExitCode::from(2) } else { ExitCode::SUCCESS }
}

fn privilege_name(privilege: &Privilege) -> String {
    match privilege {
        Privilege::Root => "root".to_owned(),
        _ => "user-namespace".to_owned(),
    }
}

/// The rungs: schema `linerate.rungs/1`.
#[derive(Serialize)]
struct Rungs {
    schema: &'static str,
    argv: Vec<String>,
    rungs: Vec<RungLine>,
}

#[derive(Serialize)]
struct RungLine {
    id: &'static str,
    title: &'static str,
    what: &'static str,
}

fn list(json: Option<&Target>) -> Result<ExitCode> {
    if let Some(target) = json {
        let line = |rung: &rung::Rung| RungLine { id: rung.id, title: rung.title, what: rung.what };
        let rungs = RUNGS.iter().map(line).collect();
        target.json(&Rungs { schema: "linerate.rungs/1", argv: output::argv(), rungs })?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = RUNGS.iter().map(|rung| rung.id.len()).max().unwrap_or(0);
    let text: String = RUNGS.iter().map(|rung| format!("{:width$}  {}\n", rung.id, rung.what)).collect();
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
