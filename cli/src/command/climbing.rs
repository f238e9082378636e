//! What a climb is told and what becomes of its report, in the lab and on a real interface.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use linerate_host::CpuSet;
use linerate_lab::ladder::ascent::LadderConfig;
use linerate_lab::ladder::climb::KeepPolicy;
use linerate_lab::ladder::report::{LadderReport, WarningKind};
use linerate_lab::ladder::step::{self, RUNGS};
use serde::Serialize;

use crate::output::{self, OutputTarget};
use crate::quantity;
use crate::render::{ladder_html, ladder_text, style::TextStyle};

/// How much time to take for what.
pub(crate) struct RunLength {
    step: Duration,
    slot: Duration,
    overhead: Duration,
    resolution: f64,
    samples: u32,
}

/// How fast to climb, quickly and otherwise.
pub(crate) struct RunLengths {
    quick: RunLength,
    full: RunLength,
}

/// Where the generator is of this process.
pub(crate) const IN_A_LAB: RunLengths = RunLengths {
    quick: RunLength {
        step: Duration::from_secs(5),
        slot: Duration::from_millis(80),
        overhead: Duration::ZERO,
        resolution: 1.06,
        samples: 4,
    },
    full: RunLength {
        step: Duration::from_secs(23),
        slot: Duration::from_millis(120),
        overhead: Duration::ZERO,
        resolution: 1.04,
        samples: 8,
    },
};

/// Where each probe is ordered from other hosts.
pub(crate) const OVER_SSH: RunLengths = RunLengths {
    quick: RunLength {
        step: Duration::from_secs(24),
        slot: Duration::from_millis(150),
        overhead: Duration::from_millis(250),
        resolution: 1.06,
        samples: 4,
    },
    full: RunLength {
        step: Duration::from_secs(60),
        slot: Duration::from_millis(250),
        overhead: Duration::from_millis(250),
        resolution: 1.04,
        samples: 8,
    },
};

/// How to climb.
#[derive(Debug, Args)]
pub(crate) struct LadderRunArgs {
    /// Run in less than half of the time, with wider intervals
    #[arg(long)]
    quick: bool,
    /// Duration of the whole run, about this many seconds
    #[arg(long, value_name = "S")]
    time: Option<f64>,
    /// Run only these steps (and the baseline): comma-separated identifiers
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    steps: Option<Vec<String>>,
    /// List the steps and end
    #[arg(long)]
    list: bool,
    /// Also change settings of the whole machine (audit), and restore them at the end
    #[arg(long)]
    pub(crate) host_wide: bool,
    /// UDP payload of a request, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    pub(crate) payload: u32,
    /// Flows (source ports) per generator
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) flows: u32,
    /// Highest loss at which a rate still counts as held
    #[arg(long, value_name = "RATIO", default_value = "0.1%", value_parser = quantity::parse_share)]
    max_loss: f64,
    /// CPUs to use, such as 0-3 [default: all allowed CPUs]
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Write the report as JSON; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    json: Option<String>,
    /// Write the report as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<String>,
    /// Show no progress
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// What stays in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyArgument {
    /// Every step that could be applied
    KeepAll,
    /// Only steps shown to be better
    KeepBetter,
}

impl From<PolicyArgument> for KeepPolicy {
    fn from(argument: PolicyArgument) -> Self {
        match argument {
            PolicyArgument::KeepAll => KeepPolicy::KeepAll,
            PolicyArgument::KeepBetter => KeepPolicy::KeepBetter,
        }
    }
}

impl LadderRunArgs {
    /// Where the report goes.
    pub(crate) fn outputs(&self) -> Result<LadderOutputs> {
        let json = OutputTarget::from_option(self.json.as_deref())?;
        let html = OutputTarget::from_option(self.html.as_deref())?;
        ensure!(
            json != Some(OutputTarget::Stdout) || html != Some(OutputTarget::Stdout),
            "--json - and --html - both want standard output; give one of them a file"
        );
        Ok(LadderOutputs { json, html })
    }

    /// The steps instead of a climb, where they were asked for.
    pub(crate) fn listed(&self, outputs: &LadderOutputs) -> Result<Option<ExitCode>> {
        self.list.then(|| list(outputs.json.as_ref())).transpose()
    }

    /// The CPUs to use; none where none were named.
    pub(crate) fn cpus(&self) -> Result<Option<CpuSet>> {
        self.cpus.as_deref().map(CpuSet::from_list).transpose().context("--cpus")
    }

    /// How to climb, for the library.
    pub(crate) fn terms(&self, policy: KeepPolicy, paces: &RunLengths) -> Result<LadderConfig> {
        let steps = match &self.steps {
            Some(names) => step::select(names.iter().map(String::as_str))?,
            None => RUNGS.iter().collect(),
        };
        let pace = if self.quick { &paces.quick } else { &paces.full };
        let each = pace.step * u32::try_from(steps.len()).unwrap_or(u32::MAX);
        let budget = self.time.map_or(Ok(each), Duration::try_from_secs_f64).context("--time")?;
        Ok(LadderConfig {
            steps,
            policy,
            budget,
            slot: pace.slot,
            slot_overhead: pace.overhead,
            resolution: pace.resolution,
            samples: pace.samples,
            payload: self.payload,
            flows: self.flows,
            max_loss: self.max_loss,
        })
    }
}

/// Where a report goes.
#[derive(Debug)]
pub(crate) struct LadderOutputs {
    json: Option<OutputTarget>,
    html: Option<OutputTarget>,
}

impl LadderOutputs {
    /// Writes the report to all of them. A climb that ended early is an error to whoever waits for it.
    pub(crate) fn write(&self, report: &LadderReport) -> Result<ExitCode> {
        if let Some(target) = &self.json {
            target.write_json(report)?;
        }
        if let Some(target) = &self.html {
            target.write(&ladder_html::ladder(report)?)?;
        }
        if self.json != Some(OutputTarget::Stdout) && self.html != Some(OutputTarget::Stdout) {
            output::print(&ladder_text::ladder(report, TextStyle::stdout()))?;
        }
        let is_failure = |kind| matches!(kind, WarningKind::Interrupted | WarningKind::NotRestored);
        let failed = report.warnings.iter().any(|warning| is_failure(warning.kind));
        Ok(if failed { ExitCode::from(2) } else { ExitCode::SUCCESS })
    }
}

/// The steps: schema `linerate.steps/1`.
#[derive(Serialize)]
struct StepsDocument {
    schema: &'static str,
    version: &'static str,
    argv: Vec<String>,
    steps: Vec<RungLine>,
}

#[derive(Serialize)]
struct RungLine {
    id: &'static str,
    title: &'static str,
    what: &'static str,
}

fn list(json: Option<&OutputTarget>) -> Result<ExitCode> {
    if let Some(target) = json {
        let line = |step: &step::LadderStep| RungLine { id: step.id, title: step.title, what: step.what };
        let steps = RUNGS.iter().map(line).collect();
        let (schema, version) = ("linerate.steps/1", env!("CARGO_PKG_VERSION"));
        target.write_json(&StepsDocument { schema, version, argv: output::argv(), steps })?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = RUNGS.iter().map(|step| step.id.len()).max().unwrap_or(0);
    let text: String = RUNGS.iter().map(|step| format!("{:width$}  {}\n", step.id, step.what)).collect();
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
