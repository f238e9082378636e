//! `linerate tune status` and `history`: what is in force, and what ever was.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use linerate_host::Host;
use linerate_tune::status::{self, History};
use serde::Serialize;

use super::arguments::Place;
use crate::output::{self, Target};
use crate::render::style::Style;
use crate::render::{tune_history, tune_status};

/// Arguments of `tune status`.
#[derive(Debug, Args)]
pub(super) struct Status {
    /// Tell of all settings, not only of those that are not as they were left
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    looking: Looking,
}

/// Arguments of `tune history`.
#[derive(Debug, Args)]
pub(super) struct Past {
    #[command(flatten)]
    looking: Looking,
}

#[derive(Debug, Args)]
struct Looking {
    /// Write the result as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    #[command(flatten)]
    place: Place,
}

/// A document with how it was asked for.
#[derive(Serialize)]
struct Asked<'a, T> {
    #[serde(flatten)]
    document: &'a T,
    version: &'static str,
    argv: Vec<String>,
}

impl Status {
    pub(super) fn run(self) -> Result<ExitCode> {
        let Looking { json, place } = &self.looking;
        let json = Target::wanted(json.as_deref())?;
        let status = status::Status::of(&place.existing()?.read()?, &Host::live());
        tell(json.as_ref(), &status, || tune_status::status(&status, place, self.full, Style::stdout()))?;
        Ok(ExitCode::from(u8::from(status.needs_attention())))
    }
}

impl Past {
    pub(super) fn run(self) -> Result<ExitCode> {
        let Looking { json, place } = &self.looking;
        let json = Target::wanted(json.as_deref())?;
        let history = History::of(&place.existing()?.read()?);
        tell(json.as_ref(), &history, || tune_history::history(&history, Style::stdout()))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn tell(json: Option<&Target>, document: &impl Serialize, text: impl Fn() -> String) -> Result<()> {
    if let Some(target) = json {
        target.json(&Asked { document, version: env!("CARGO_PKG_VERSION"), argv: output::argv() })?;
    }
    if json == Some(&Target::Stdout) { Ok(()) } else { output::print(&text()) }
}
