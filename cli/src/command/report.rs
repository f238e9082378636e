//! `linerate report`: several results as one, the path first.

pub(crate) mod fleet;
pub(crate) mod fleet_report;
pub(crate) mod reading;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;

use super::results::ResultArgs;
use crate::envelope::Envelope;
use crate::origin::{HostSummary, unix_seconds};
use crate::output;
use crate::render::format::comma_list;
use crate::render::report;
use crate::render::style::TextStyle;

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Files written by other commands with --json, or directories of such *.json files
    #[arg(value_name = "DIR|FILE", required_unless_present = "fleet")]
    paths: Vec<PathBuf>,
    /// Compare many hosts: the documents of each are in DIR/HOST, or in DIR by their host name
    #[arg(long, value_name = "DIR", conflicts_with = "paths")]
    fleet: Option<PathBuf>,
    #[command(flatten)]
    results: ResultArgs,
}

impl ReportArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let targets = self.results.targets()?;
        if let Some(directory) = &self.fleet {
            let envelope = Envelope::new(HostSummary::default(), unix_seconds(), fleet::read(directory)?);
            targets.write(&envelope)?;
            return Ok(ExitCode::SUCCESS);
        }
        let results = reading::read(&self.paths)?;
        ensure!(
            !results.is_empty(),
            "no result of linerate in {}: write some with --json, such as linerate doctor --json DIR/doctor.json",
            comma_list(self.paths.iter().map(|path| path.display()))
        );
        let rendered = report::join(results)?;
        targets.write_forms(
            || report::text(&rendered, TextStyle::stdout()),
            |target| target.write_json(&Envelope::of_now(reading::OWN_SCHEMA, rendered.index())),
            |target| target.write(&report::page(&rendered, &output::argv())?),
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
