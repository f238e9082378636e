//! `linerate tune undo`: restores the original values.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use linerate_host::Host;
use linerate_tune::journal::record::UndoReason;
use linerate_tune::persist::StandingFiles;
use linerate_tune::transaction::{self, UndoReport};

use super::arguments::{StateDirArgs, must_be_root};
use crate::command::netns;
use crate::command::results::write_result;
use crate::envelope::Envelope;
use crate::interrupt::InterruptFlag;
use crate::origin::{self, HostSummary};
use crate::output::OutputTarget;
use crate::view;

#[derive(Debug, Args)]
pub(super) struct TuneUndoArgs {
    /// Number of the tune [default: the latest in effect]
    #[arg(value_name = "ID")]
    id: Option<u64>,
    /// Print restored settings, and those that ended with their process, too
    #[arg(long)]
    full: bool,
    /// Write what became of each setting as JSON; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    json: Option<String>,
    #[command(flatten)]
    state_dir: StateDirArgs,
}

impl TuneUndoArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        must_be_root("undo")?;
        undo_and_print(&self.state_dir, self.id, self.full, self.json.as_deref())
    }
}

/// Undoes a tune and prints the outcome.
pub(crate) fn undo_and_print(
    state_dir: &StateDirArgs,
    id: Option<u64>,
    full: bool,
    json: Option<&str>,
) -> Result<ExitCode> {
    let json = OutputTarget::from_option(json)?;
    netns::enter_namespace_of_tune(&state_dir.existing_store()?.read()?, id)?;
    // A terminal that disappears during a link reset must not end the undo.
    let _interrupt = InterruptFlag::install_ignoring_hangup()?;
    let mut writer = state_dir.existing_store()?.lock()?;
    if let Some(corruption) = writer.trouble() {
        let journal = writer.store().journal_path().display().to_string();
        status_line!("linerate: {}", view::tune::journal_damage(corruption, &journal));
    }
    let (host, started_unix_seconds) = (Host::live(), origin::unix_seconds());
    let undo_report = transaction::undo(&mut writer, &host, id, UndoReason::Asked)?;
    let persists = StandingFiles::of(&writer.store().read()?).paths().next().is_some();
    drop(writer);
    let status = status(&undo_report);
    let envelope = Envelope::new(HostSummary::observe(&host), started_unix_seconds, undo_report);
    write_result(json.as_ref(), &envelope, || view::tune::undo(&envelope, full))?;
    if persists {
        status_line!("files still apply settings at boot: {} removes them", state_dir.command("unpersist"));
    }
    Ok(status)
}

/// 0: all restored; 1: a setting was left as it is; 2: a setting was refused.
fn status(undo_report: &UndoReport) -> ExitCode {
    match (undo_report.has_failures(), undo_report.has_skipped()) {
        (true, _) => ExitCode::from(2),
        (false, true) => ExitCode::from(1),
        (false, false) => ExitCode::SUCCESS,
    }
}
