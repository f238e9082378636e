//! `linerate tune undo`: every setting back to what it was.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use linerate_host::Host;
use linerate_tune::journal::record::UndoReason;
use linerate_tune::transaction::{self, UndoReport};
use serde::Serialize;

use super::apply::carrying::tell;
use super::arguments::{StateDirArgs, must_be_root};
use super::planning;
use crate::command::netns;
use crate::interrupt::InterruptFlag;
use crate::origin;
use crate::output::{self, OutputTarget};
use crate::render::style::TextStyle;
use crate::render::{tune_status, tune_undo};

/// Arguments of `tune undo`.
#[derive(Debug, Args)]
pub(super) struct TuneUndoArgs {
    /// Number of the tune [default: the latest in effect]
    #[arg(value_name = "ID")]
    id: Option<u64>,
    /// Print restored settings, too
    #[arg(long)]
    full: bool,
    /// Write what became of each setting as JSON; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    json: Option<String>,
    #[command(flatten)]
    place: StateDirArgs,
}

/// What became of it, as `--json` has it.
#[derive(Serialize)]
struct TuneUndoDocument<'a> {
    schema: &'static str,
    version: &'static str,
    argv: Vec<String>,
    started_unix_seconds: Option<u64>,
    host: String,
    #[serde(flatten)]
    undone: &'a UndoReport,
}

impl TuneUndoArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        must_be_root("undo")?;
        take_back(&self.place, self.id, self.full, self.json.as_deref())
    }
}

/// Undoes a tune, and tells what became of it.
pub(crate) fn take_back(
    place: &StateDirArgs,
    id: Option<u64>,
    full: bool,
    json: Option<&str>,
) -> Result<ExitCode> {
    let json = OutputTarget::from_option(json)?;
    netns::enter_that_of(&place.existing()?.read()?, id)?;
    // A terminal that goes away with a link that is reset ends nothing.
    let _interrupt = InterruptFlag::install_ignoring_hangup()?;
    let mut writer = place.existing()?.lock()?;
    if let Some(trouble) = writer.trouble() {
        let journal = writer.store().journal_path().display().to_string();
        tell(&format!("linerate: {}\n", tune_status::damage(trouble, &journal)));
    }
    let (host, started_unix_seconds) = (Host::live(), origin::unix_seconds());
    let undone = transaction::undo(&mut writer, &host, id, UndoReason::Asked)?;
    drop(writer);
    if let Some(target) = &json {
        let (schema, version) = ("linerate.tune-undo/1", env!("CARGO_PKG_VERSION"));
        target.write_json(&TuneUndoDocument {
            schema,
            version,
            argv: output::argv(),
            started_unix_seconds,
            host: planning::host_name(&host),
            undone: &undone,
        })?;
    }
    if json != Some(OutputTarget::Stdout) {
        output::print_if_read(&tune_undo::undo_text(&undone, full, TextStyle::stdout()))?;
    }
    Ok(status(&undone))
}

/// 0: all is as before; 1: something was left; 2: something was refused.
pub(super) fn status(undone: &UndoReport) -> ExitCode {
    match (undone.has_failures(), undone.has_left()) {
        (true, _) => ExitCode::from(2),
        (false, true) => ExitCode::from(1),
        (false, false) => ExitCode::SUCCESS,
    }
}
