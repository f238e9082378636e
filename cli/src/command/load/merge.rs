//! `linerate load merge`: results of several generators as one.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use linerate_load::report::{self, LoadPart, LoadReport};

use super::run::exit_code;
use crate::command::results::ResultArgs;
use crate::envelope::Envelope;
use crate::origin::{HostSummary, Warning};
use crate::quantity;

#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// Files written by `linerate load --json`
    #[arg(value_name = "FILE", required = true, num_args = 2..)]
    files: Vec<String>,
    /// Refuse runs of hosts whose clocks may be off by more, such as 50ms
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration)]
    max_clock_offset: Option<Duration>,
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
            let Envelope { argv, host, warnings: part_warnings, result, .. } =
                Envelope::read(Path::new(name))?;
            warnings.extend(part_warnings.into_iter().map(|warning: Warning| Warning {
                detail: format!("{name}: {}", warning.detail),
                ..warning
            }));
            hosts.extend(host.name.filter(|host| !hosts.contains(host)));
            parts.push(LoadPart { name: name.clone(), argv, report: result });
        }
        if hosts.len() < 2 {
            // All generators ran on one host and share its clock.
            parts.iter_mut().for_each(|part| part.report.clock = None);
            if self.max_clock_offset.is_some() {
                let name = hosts.first().map_or("without a name", String::as_str);
                warnings.push(Warning::remark(format!(
                    "all documents are of one host ({name}), so --max-clock-offset was not checked"
                )));
            }
        } else if let Some(max_offset) = self.max_clock_offset {
            parts.iter().try_for_each(|part| check_clock(part, max_offset))?;
        }
        let (merged, merge_warnings) = report::merge(&parts)?;
        let host = HostSummary { name: (!hosts.is_empty()).then(|| hosts.join(", ")), ..Default::default() };
        warnings.extend(merge_warnings.into_iter().map(Warning::remark));
        let started_unix_seconds = Some(merged.outcome.started_unix_seconds());
        let envelope =
            Envelope::<LoadReport>::new(host, started_unix_seconds, merged).with_warnings(warnings);
        targets.write(&envelope)?;
        Ok(exit_code(envelope.result.outcome.answered > 0 || envelope.result.no_reply))
    }
}

fn check_clock(part: &LoadPart, max_offset: Duration) -> Result<()> {
    let LoadPart { name, report, .. } = part;
    let clock = report.clock.with_context(|| {
        format!("{name}: the error of its clock is unknown; run linerate load with --start-at")
    })?;
    let (error, max_offset) = (clock.max_error_seconds(), max_offset.as_secs_f64());
    ensure!(
        error <= max_offset,
        "{name}: its clock may be off by {error:.3} s, over --max-clock-offset {max_offset} s: synchronize it by NTP"
    );
    Ok(())
}
