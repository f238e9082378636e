//! `linerate load merge`: results of several generators as one.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use linerate_load::report::{self, LoadPart, LoadReport};

use super::run::exit;
use crate::command::results::ResultArgs;
use crate::envelope::Envelope;
use crate::origin::{HostSummary, Warning};

#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// Files written by `linerate load --json`
    #[arg(value_name = "FILE", required = true, num_args = 2..)]
    files: Vec<String>,
    #[command(flatten)]
    results: ResultArgs,
}

impl MergeArgs {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let targets = self.results.targets()?;
        let mut parts = Vec::new();
        let mut warnings = Vec::new();
        let mut hosts: Vec<String> = Vec::new();
        for name in &self.files {
            let Envelope { argv, host, warnings: its, result, .. } = Envelope::read(Path::new(name))?;
            warnings.extend(its.into_iter().map(|warning: Warning| Warning {
                detail: format!("{name}: {}", warning.detail),
                ..warning
            }));
            hosts.extend(host.name.filter(|host| !hosts.contains(host)));
            parts.push(LoadPart { name: name.clone(), argv, report: result });
        }
        let (merged, more) = report::merge(&parts)?;
        let host = HostSummary { name: (!hosts.is_empty()).then(|| hosts.join(", ")), ..Default::default() };
        warnings.extend(more.into_iter().map(Warning::remark));
        let started = Some(merged.outcome.started_unix_seconds());
        let envelope = Envelope::<LoadReport>::new(host, started, merged).with_warnings(warnings);
        targets.write(&envelope)?;
        Ok(exit(envelope.result.outcome.answered > 0))
    }
}
