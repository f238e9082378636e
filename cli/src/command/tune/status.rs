//! `linerate tune status` and `history`: what is in force, and what ever was.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use linerate_host::Host;
use linerate_tune::status::{self, TuneHistory};
use serde::Serialize;

use super::arguments::StateDirArgs;
use crate::output::{self, OutputTarget};
use crate::render::style::TextStyle;
use crate::render::{tune_history, tune_status};

/// Arguments of `tune status`.
#[derive(Debug, Args)]
pub(super) struct TuneStatusArgs {
    /// Print all settings, not only those that differ from the tune
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    looking: TuneStatusReader,
}

/// Arguments of `tune history`.
#[derive(Debug, Args)]
pub(super) struct TuneHistoryArgs {
    #[command(flatten)]
    looking: TuneStatusReader,
}

#[derive(Debug, Args)]
struct TuneStatusReader {
    /// Write the result as JSON; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    json: Option<String>,
    #[command(flatten)]
    place: StateDirArgs,
}

/// A document with how it was asked for.
#[derive(Serialize)]
struct TuneStatusDocument<'a, T> {
    #[serde(flatten)]
    document: &'a T,
    version: &'static str,
    argv: Vec<String>,
}

impl TuneStatusArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let TuneStatusReader { json, place } = &self.looking;
        let json = OutputTarget::from_option(json.as_deref())?;
        let status = status::JournalStatus::of(&place.existing()?.read()?, &Host::live());
        tell(json.as_ref(), &status, || tune_status::status(&status, place, self.full, TextStyle::stdout()))?;
        Ok(ExitCode::from(u8::from(status.needs_attention())))
    }
}

impl TuneHistoryArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let TuneStatusReader { json, place } = &self.looking;
        let json = OutputTarget::from_option(json.as_deref())?;
        let history = TuneHistory::of(&place.existing()?.read()?);
        tell(json.as_ref(), &history, || tune_history::history(&history, TextStyle::stdout()))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn tell(json: Option<&OutputTarget>, document: &impl Serialize, text: impl Fn() -> String) -> Result<()> {
    if let Some(target) = json {
        target.write_json(&TuneStatusDocument {
            document,
            version: env!("CARGO_PKG_VERSION"),
            argv: output::argv(),
        })?;
    }
    if json == Some(&OutputTarget::Stdout) { Ok(()) } else { output::print(&text()) }
}
