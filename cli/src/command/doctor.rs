//! `linerate doctor`: what is wrong along the packet path, worst first. Changes nothing.

pub(super) mod arguments;
mod capture;
mod document;
mod explain;
pub(super) mod reading;
mod waiting;

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Args, Subcommand};
use linerate_host::{Diagnosis, Severity};

use crate::command::netns::NetnsArgs;
use crate::interrupt::InterruptFlag;
use crate::output::{self, OutputTarget};
use crate::render::style::TextStyle;
use crate::render::{doctor_html, doctor_text};
use arguments::{HostScopeArgs, SeverityLevel};
pub(crate) use document::{DoctorDocument, SCHEMA};
pub(crate) use explain::rules_of;
use reading::ObservedHost;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DoctorArgs {
    #[command(subcommand)]
    other: Option<DoctorAction>,
    #[command(flatten)]
    pub(super) netns: NetnsArgs,
    #[command(flatten)]
    sight: HostScopeArgs,
    /// Write the result as JSON; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    json: Option<String>,
    /// Write the result as an HTML page; - is standard output
    #[arg(long, value_name = "FILE")]
    html: Option<String>,
    /// Show all evidence, commands and sources
    #[arg(long)]
    full: bool,
    /// Lowest severity that causes exit status 1
    #[arg(long, value_name = "SEVERITY", value_enum, default_value_t = SeverityLevel::Low)]
    fail_on: SeverityLevel,
    /// Explain a finding by its id, a stage by its name, or list all
    #[arg(long, value_name = "ID", exclusive = true)]
    explain: Option<String>,
}

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
        if let Some(wanted) = &self.explain {
            return explain::explain(wanted).map(|()| ExitCode::SUCCESS);
        }
        let json = OutputTarget::from_option(self.json.as_deref())?;
        let html = OutputTarget::from_option(self.html.as_deref())?;
        let on_stdout =
            [&json, &html].into_iter().flatten().filter(|target| **target == OutputTarget::Stdout).count();
        ensure!(on_stdout <= 1, "--json and --html cannot share standard output; give one of them a file");
        let interrupt = InterruptFlag::install()?;
        let readings = ObservedHost::open(&self.sight, false)?.read(&interrupt)?;
        let mut diagnosis = Diagnosis::of(&readings.view());
        diagnosis.unknown.extend(readings.vanished());
        let failed =
            diagnosis.findings.iter().any(|finding| finding.severity >= Severity::from(self.fail_on));
        let document = DoctorDocument::new(&readings, &diagnosis);
        if let Some(target) = &json {
            target.write_json(&document)?;
        }
        if let Some(target) = &html {
            target.write(&doctor_html::doctor(&document)?)?;
        }
        if on_stdout == 0 {
            output::print(&doctor_text::doctor(&document, self.full, TextStyle::stdout()))?;
        }
        Ok(ExitCode::from(u8::from(failed)))
    }
}
