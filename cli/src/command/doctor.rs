//! `linerate doctor`: problems along the packet path, worst first. Changes nothing.

pub(super) mod arguments;
mod capture;
mod explain;
mod interval_wait;
pub(super) mod reading;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use linerate_host::{Diagnosis, Severity};

use linerate_tune::journal::{STATE_DIR, StateStore};

use super::netns::NetnsArgs;
use super::results::ResultArgs;
use super::tune::measured_tunes;
use crate::interrupt::InterruptFlag;
use crate::named_values::one_of;
use crate::output;
use crate::render::format::count_with_noun;
use crate::suggestion::SuggestedValues;
use crate::view::doctor::{self, DoctorResult};
use arguments::{HostScopeArgs, SEVERITIES};
use reading::ObservedHost;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DoctorArgs {
    #[command(subcommand)]
    other: Option<DoctorAction>,
    #[command(flatten)]
    pub(super) netns: NetnsArgs,
    #[command(flatten)]
    input: HostScopeArgs,
    #[command(flatten)]
    results: ResultArgs,
    /// Show all evidence, commands and sources
    #[arg(long)]
    full: bool,
    /// Lowest severity that causes exit status 1
    #[arg(long, value_name = "SEVERITY", default_value = "low", value_parser = one_of(SEVERITIES))]
    fail_on: Severity,
    /// Form of standard output
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = DoctorOutput::Text, conflicts_with_all = ["json", "html", "full"])]
    output: DoctorOutput,
    /// Explain a finding by its id, a stage by its name, or list all
    #[arg(long, value_name = "ID", exclusive = true, value_parser = SuggestedValues::findings(), hide_possible_values = true)]
    explain: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DoctorOutput {
    Text,
    /// One line for a custom plugin of Kubernetes' node-problem-detector
    NodeProblemDetector,
}

/// node-problem-detector cuts longer messages by default.
const LONGEST_MESSAGE: usize = 80;

#[derive(Debug, Subcommand)]
enum DoctorAction {
    /// Save everything that doctor reads in a file, for --root on another machine
    Capture(capture::CaptureArgs),
}

impl DoctorArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Some(DoctorAction::Capture(capture)) = self.other {
            return capture.run();
        }
        if let Some(name) = &self.explain {
            return explain::explain(name).map(|()| ExitCode::SUCCESS);
        }
        let outcome = self.diagnose();
        if let (Err(error), DoctorOutput::NodeProblemDetector) = (&outcome, self.output) {
            // Standard output is also the message of the status Unknown.
            output::print(&line(&output::one_line(error)))?;
        }
        outcome
    }

    fn diagnose(&self) -> Result<ExitCode> {
        let targets = self.results.targets()?;
        let interrupt = InterruptFlag::install()?;
        let readings = ObservedHost::open(&self.input, false)?.read(&interrupt)?;
        let mut diagnosis = Diagnosis::of(&readings.view());
        diagnosis.unknown.extend(readings.vanished_items());
        let has_failed = diagnosis.findings.iter().any(|finding| finding.severity >= self.fail_on);
        if self.output == DoctorOutput::NodeProblemDetector {
            output::print(&message(&diagnosis, self.fail_on))?;
            return Ok(ExitCode::from(u8::from(has_failed)));
        }
        let tunes = measured_tunes(&StateStore::at(STATE_DIR), readings.live);
        let result = DoctorResult::new(&readings.view(), &diagnosis, readings.live, &tunes)?;
        targets.write_with_detail(
            &doctor::envelope(&readings.view(), readings.unix_seconds, result),
            self.full,
        )?;
        Ok(ExitCode::from(u8::from(has_failed)))
    }
}

/// `2 findings: rss.hash-without-ports, irq.stacked`.
fn message(diagnosis: &Diagnosis, min_severity: Severity) -> String {
    let reported = diagnosis.findings.iter().filter(|finding| finding.severity >= min_severity);
    let ids: Vec<&str> = reported.map(|finding| finding.id).collect();
    let summary = format!("{}: {}", count_with_noun(ids.len(), "finding"), ids.join(", "));
    line(summary.trim_end_matches(": "))
}

fn line(message: &str) -> String {
    message.chars().take(LONGEST_MESSAGE).chain(['\n']).collect()
}
