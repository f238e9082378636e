//! Arguments and outputs that `lab` and `ladder` have in common.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use linerate_host::{CpuSet, Host};
use linerate_lab::ladder::config::{KeepPolicy, LadderConfig, RunTiming};
use linerate_lab::ladder::report::{LadderReport, LadderWarning, WarningKind};
use linerate_lab::ladder::step::{self, STEPS};
use linerate_load::generator::GeneratorBackend;
use linerate_load::wire::LinkSpeed;
use serde::Serialize;

use super::compare::CompareArgs;
use super::results::{ResultArgs, ResultTargets};
use crate::envelope::Envelope;
use crate::named_values::{LOAD_BACKENDS, NamedValue, one_of};
use crate::origin::{HostSummary, Warning};
use crate::output::{self, OutputTarget};
use crate::quantity;
use crate::suggestion::SuggestedValues;

#[derive(Debug, Args)]
pub(crate) struct LadderRunArgs {
    /// Run in less than half of the time, with wider intervals
    #[arg(long)]
    quick: bool,
    /// Planned duration of the whole run in seconds; each search has a minimum duration
    #[arg(long, value_name = "S", value_parser = quantity::seconds(0.0..=MOST_TIME))]
    time: Option<Duration>,
    /// Run only these steps (and the baseline): comma-separated identifiers
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', value_parser = SuggestedValues::steps(), hide_possible_values = true)]
    steps: Option<Vec<String>>,
    /// List the steps and end
    #[arg(long)]
    list: bool,
    /// Also change settings of the whole machine, and restore them at the end: auditing, and with `ladder` hardware threads
    #[arg(long)]
    host_wide: bool,
    /// Which settings stay for the following steps
    #[arg(long, default_value = "keep-all", value_parser = one_of(POLICIES))]
    policy: KeepPolicy,
    /// How requests enter the kernel of the sending host
    #[arg(long, default_value = "auto", value_parser = one_of(LOAD_BACKENDS))]
    pub(crate) backend: GeneratorBackend,
    /// Fail if a request would be fragmented
    #[arg(long)]
    pub(crate) no_fragment: bool,
    /// Link speed for the line-rate share [default: the interface's speed, 10G in a lab]
    #[arg(long, value_name = "SPEED")]
    link: Option<LinkSpeed>,
    /// UDP payload of a request to linerate's own server, bytes [default: 100]
    #[arg(long, value_name = "BYTES")]
    payload: Option<u32>,
    /// Flows (source ports) per generator
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) flows: u32,
    /// Highest loss at which a rate still counts as held
    #[arg(long, value_name = "RATIO", default_value = "0.1%", value_parser = quantity::parse_share)]
    max_loss: f64,
    /// CPUs to use, such as 0-3 [default: all allowed CPUs]
    #[arg(long, value_name = "LIST", value_parser = quantity::parse_cpus)]
    cpus: Option<CpuSet>,
    #[command(flatten)]
    compare: CompareArgs,
    #[command(flatten)]
    pub(crate) results: ResultArgs,
    /// Show no progress
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Longest `--time` in seconds, eleven days.
const MOST_TIME: f64 = 1e6;

const POLICIES: &[NamedValue<KeepPolicy>] = &[
    ("keep-all", "Every step that could be applied", KeepPolicy::KeepAll),
    ("keep-better", "Only steps shown to be better", KeepPolicy::KeepBetter),
];

impl LadderRunArgs {
    /// Prints the steps or a comparison instead of a run, with `--list` or `--compare`.
    pub(crate) fn run_without_measuring(&self, targets: &ResultTargets) -> Result<Option<ExitCode>> {
        if let Some(paths) = self.compare.paths() {
            return paths.compare_ladders(targets).map(Some);
        }
        if !self.list {
            return Ok(None);
        }
        ensure!(targets.html.is_none(), "--list has no --html: it prints text or --json");
        list_steps(targets.json.as_ref()).map(Some)
    }

    /// The configuration. By default, leaves out steps that require a server program unless one is
    /// measured.
    pub(crate) fn config(
        &self,
        quick_timing: RunTiming,
        full_timing: RunTiming,
        has_program: bool,
    ) -> Result<LadderConfig> {
        let steps = match &self.steps {
            Some(names) => step::select(names.iter().map(String::as_str))?,
            None => STEPS.iter().filter(|step| has_program || !step.needs_program()).collect(),
        };
        ensure!(
            !(has_program && self.payload.is_some()),
            "--payload is for linerate's own server; the workload has the size of these requests"
        );
        let config = LadderConfig::new(steps, if self.quick { quick_timing } else { full_timing });
        Ok(LadderConfig {
            duration: self.time.unwrap_or(config.duration),
            policy: self.policy,
            payload_bytes: self.payload.unwrap_or(config.payload_bytes),
            flows: self.flows,
            max_loss_ratio: self.max_loss,
            cpus: self.cpus.iter().flat_map(CpuSet::iter).collect(),
            host_wide: self.host_wide,
            backend: self.backend,
            no_fragment: self.no_fragment,
            link: self.link,
            ..config
        })
    }
}

/// Writes a report in every requested form. A run that ended early returns status 2.
pub(crate) fn write_report(
    targets: &ResultTargets,
    started_unix_seconds: Option<u64>,
    report: LadderReport,
    warnings: &[LadderWarning],
) -> Result<ExitCode> {
    let is_failure =
        |kind| matches!(kind, WarningKind::Interrupted | WarningKind::NotRestored | WarningKind::NotKept);
    let has_failed = warnings.iter().any(|warning| is_failure(warning.kind));
    let warnings = warnings.iter().map(|warning| Warning::new(warning.kind.name(), warning.detail.as_str()));
    let envelope = Envelope::new(HostSummary::observe(&Host::live()), started_unix_seconds, report)
        .with_warnings(warnings);
    targets.write(&envelope)?;
    Ok(if has_failed { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

#[derive(Serialize)]
struct StepList {
    steps: Vec<StepLine>,
}

#[derive(Serialize)]
struct StepLine {
    id: &'static str,
    title: &'static str,
    what: &'static str,
}

fn list_steps(json: Option<&OutputTarget>) -> Result<ExitCode> {
    if let Some(target) = json {
        let line = |step: &step::LadderStep| StepLine { id: step.id, title: step.title, what: step.what };
        let steps = STEPS.iter().map(line).collect();
        target.write_json(&Envelope::of_now("linerate.steps/2", StepList { steps }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = STEPS.iter().map(|step| step.id.len()).max().unwrap_or(0);
    let text: String = STEPS.iter().map(|step| format!("{:width$}  {}\n", step.id, step.what)).collect();
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
