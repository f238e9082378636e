//! What the verbs of `linerate tune` take.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;
use linerate_tune::journal::record::UndoDeadline;
use linerate_tune::journal::{STATE_DIR, StateStore};
use linerate_tune::transaction::boot_seconds;

use crate::quantity;
use crate::render::format;

/// Where the journal is.
#[derive(Debug, Clone, Args)]
pub(crate) struct StateDirArgs {
    /// Keep the journal in this directory
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    state_dir: PathBuf,
}

/// When changes are undone without being asked for.
#[derive(Debug, Clone, Copy, Args)]
#[group(multiple = false)]
pub(crate) struct AutoUndoArgs {
    /// Undo everything after this time, such as 10m
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_period)]
    for_duration: Option<Duration>,
    /// Undo everything after this time unless you run `linerate tune confirm`, and at once if this
    /// program dies
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_period)]
    until_confirmed: Option<Duration>,
}

impl StateDirArgs {
    pub(crate) fn store(&self) -> StateStore {
        StateStore::at(&self.state_dir)
    }

    /// The journal of earlier tunes.
    ///
    /// # Errors
    /// Where a directory was named that is not there: an empty journal would say that nothing is in
    /// force.
    pub(crate) fn existing(&self) -> Result<StateStore> {
        let directory = self.state_dir.display();
        ensure!(
            self.state_dir == Path::new(STATE_DIR) || self.state_dir.is_dir(),
            "--state-dir {directory}: there is no such directory, and so no journal: give the directory that `apply` was \
             given; without --state-dir it is {STATE_DIR}"
        );
        Ok(self.store())
    }

    /// The journal, which is begun where there is none.
    ///
    /// # Errors
    /// Where the directory that is to have it could not be made but with others above it.
    pub(crate) fn begun(&self) -> Result<StateStore> {
        let above = self.state_dir.parent().filter(|above| !above.as_os_str().is_empty());
        if let Some(above) = above.filter(|above| self.state_dir != Path::new(STATE_DIR) && !above.is_dir()) {
            bail!(
                "--state-dir {}: there is no directory {}: make it, or correct the path",
                self.state_dir.display(),
                above.display()
            );
        }
        Ok(self.store())
    }

    /// Whether a tune changed anything that is not restored. True if the journal cannot be read.
    pub(crate) fn is_in_effect(&self, tune: u64) -> bool {
        self.store().read().map_or(true, |journal| {
            journal.tunes().iter().any(|found| found.begun.tune == tune && found.is_open())
        })
    }

    /// What to do after the journal failed in the middle of a tune.
    pub(crate) fn after_a_stop(&self, tune: u64) -> String {
        if self.is_in_effect(tune) {
            let (status, undo) = (self.command("status"), self.command(&format!("undo {tune}")));
            format!("{status} shows what was changed, {undo} restores it")
        } else {
            "nothing was changed".to_owned()
        }
    }

    /// A command for a person to type, which finds the same journal.
    pub(crate) fn command(&self, verb: &str) -> String {
        let mut words = vec!["linerate".to_owned(), "tune".to_owned()];
        words.extend(verb.split_whitespace().map(str::to_owned));
        if self.state_dir != Path::new(STATE_DIR) {
            words.extend(["--state-dir".to_owned(), self.state_dir.to_string_lossy().into_owned()]);
        }
        format::command_line(&words)
    }
}

impl AutoUndoArgs {
    /// The time at which they are undone, counted from now.
    pub(crate) fn until(self) -> Option<UndoDeadline> {
        let at = |time: Duration| boot_seconds().saturating_add(time.as_secs());
        match (self.for_duration, self.until_confirmed) {
            (Some(time), _) => Some(UndoDeadline::Time { boot_seconds: at(time) }),
            (None, Some(time)) => Some(UndoDeadline::Confirmed { boot_seconds: at(time) }),
            (None, None) => None,
        }
    }
}

/// Settings of a host are root's.
pub(super) fn must_be_root(verb: &str) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "tune {verb} changes settings of the host, which takes root: run it with sudo (plan takes no privilege)"
    );
    Ok(())
}
