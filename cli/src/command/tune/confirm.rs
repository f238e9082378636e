//! Tunes that undo themselves: `linerate tune confirm`, the prompt after `apply`, and the guard process.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use linerate_host::Host;
use linerate_tune::guard::{self, TuneGuard};
use linerate_tune::journal::StateStore;
use linerate_tune::transaction::{self, TuneError, boot_seconds};

use super::arguments::{StateDirArgs, forget_typed_ahead, must_be_root};
use crate::interrupt::InterruptFlag;
use crate::output::{self, ProgressLine};

#[derive(Debug, Args)]
pub(super) struct TuneConfirmArgs {
    /// Number of the tune [default: the latest that waits for it]
    #[arg(value_name = "ID")]
    id: Option<u64>,
    #[command(flatten)]
    state_dir: StateDirArgs,
}

impl TuneConfirmArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        must_be_root("confirm")?;
        let mut writer = self.state_dir.existing_store()?.lock()?;
        let id = transaction::confirm(&mut writer, &Host::live(), self.id)?;
        drop(writer);
        let undo = self.state_dir.command(&format!("undo {id}"));
        output::print(&format!("Tune {id} is confirmed and stays. To undo it: {undo}\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Debug, Args)]
pub(super) struct TuneGuardArgs {
    /// Number of the tune
    #[arg(value_name = "ID")]
    id: u64,
    #[command(flatten)]
    state_dir: StateDirArgs,
}

impl TuneGuardArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        guard::run(&self.state_dir.store(), self.id, &Host::live())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Starts the process that undoes the tune at its deadline.
pub(crate) fn start_guard(state_dir: &StateDirArgs, tune: u64) -> Result<TuneGuard> {
    Ok(guard::start(guard_arguments(&guard_directory(&state_dir.store())?, tune))?)
}

/// The journal's directory for a guard. The path must be absolute, because the guard changes its working directory.
pub(crate) fn guard_directory(store: &StateStore) -> Result<PathBuf> {
    store.directory().canonicalize().context("the journal's directory is gone")
}

/// The arguments of the process that undoes the tune at its deadline.
pub(crate) fn guard_arguments(directory: &Path, tune: u64) -> Vec<OsString> {
    let arguments = ["tune", "guard", &tune.to_string(), "--state-dir"].map(OsString::from);
    arguments.into_iter().chain([directory.into()]).collect()
}

const TICK: Duration = Duration::from_millis(500);

/// Waits on a terminal until Enter is pressed, the deadline is over, or the tune is confirmed or undone
/// elsewhere, and prints the outcome. Returns whether the tune was undone.
pub(crate) fn is_undone(
    state_dir: &StateDirArgs,
    host: &Host,
    tune: u64,
    deadline: u64,
    interrupt: &InterruptFlag,
) -> Result<bool> {
    let (stdin, store) = (std::io::stdin(), state_dir.store());
    if !stdin.is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(false);
    }
    forget_typed_ahead();
    let progress_line = ProgressLine::new();
    loop {
        let journal = store.read()?;
        let tunes = journal.tunes();
        let recorded_tune = tunes
            .iter()
            .find(|recorded_tune| recorded_tune.begun.tune == tune)
            .context("the journal lost the tune")?;
        if recorded_tune.confirmed {
            drop(progress_line);
            status_line!("Tune {tune} is confirmed and stays.");
            return Ok(false);
        }
        if recorded_tune.undo.is_some_and(|undo| undo.ended) {
            drop(progress_line);
            if recorded_tune.is_undone() {
                status_line!("Tune {tune} is undone: {} has the reason.", state_dir.command("history"));
            } else {
                let undo = state_dir.command(&format!("undo {tune}"));
                status_line!(
                    "Tune {tune} is undone except for settings that the host refused: {undo} tries again."
                );
            }
            return Ok(true);
        }
        let remaining = deadline.saturating_sub(boot_seconds());
        progress_line.show(&format!("undone in {remaining} s; Enter keeps it (Ctrl-C: decide later) "));
        let has_input = interrupt.wait_for(&stdin, Some(TICK))?;
        if interrupt.is_raised() {
            return Ok(false);
        }
        if has_input {
            let mut buffer = [0; 256];
            match rustix::io::read(&stdin, &mut buffer) {
                // The terminal has disappeared.
                Ok(0) | Err(_) => return Ok(false),
                // Too late: the guard undoes the tune. Input that stays unread would end each wait at once.
                Ok(_) if remaining == 0 => {}
                Ok(_) => match transaction::confirm(&mut store.lock_waiting()?, host, Some(tune)) {
                    // The guard was faster: the journal has the outcome.
                    Ok(_) | Err(TuneError::TooLate { .. } | TuneError::NothingToConfirm) => {}
                    Err(error) => return Err(error.into()),
                },
            }
        }
    }
}
