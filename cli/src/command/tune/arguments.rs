//! Arguments that several actions of `linerate tune` have.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use linerate_tune::journal::record::UndoDeadline;
use linerate_tune::journal::{STATE_DIR, StateStore};
use linerate_tune::transaction::boot_seconds;

use crate::interrupt::InterruptFlag;
use crate::quantity;
use crate::render::format;

#[derive(Debug, Clone, Args)]
pub(crate) struct StateDirArgs {
    /// Keep the journal in this directory
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    state_dir: PathBuf,
}

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
    /// If the named directory is missing. An empty journal would mean that no tune is in effect.
    pub(crate) fn existing_store(&self) -> Result<StateStore> {
        let directory = self.state_dir.display();
        ensure!(
            self.state_dir == Path::new(STATE_DIR) || self.state_dir.is_dir(),
            "--state-dir {directory}: there is no such directory, and so no journal: name the directory of `apply`; the \
             default is {STATE_DIR}"
        );
        Ok(self.store())
    }

    /// The journal, which is created if it is missing.
    ///
    /// # Errors
    /// If the parent of the named directory is missing.
    pub(crate) fn writable_store(&self) -> Result<StateStore> {
        let parent = self.state_dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) =
            parent.filter(|parent| self.state_dir != Path::new(STATE_DIR) && !parent.is_dir())
        {
            bail!(
                "--state-dir {}: there is no directory {}: make it, or correct the path",
                self.state_dir.display(),
                parent.display()
            );
        }
        Ok(self.store())
    }

    /// A command line that uses the same journal.
    pub(crate) fn command(&self, subcommand: &str) -> String {
        let mut argv = vec!["linerate".to_owned(), "tune".to_owned()];
        argv.extend(subcommand.split_whitespace().map(str::to_owned));
        if self.state_dir != Path::new(STATE_DIR) {
            argv.extend(["--state-dir".to_owned(), self.state_dir.to_string_lossy().into_owned()]);
        }
        format::command_line(&argv)
    }
}

impl StateDirArgs {
    /// Whether a tune changed anything that is not restored. True if the journal cannot be read.
    pub(crate) fn is_in_effect(&self, tune: u64) -> bool {
        self.store().read().map_or(true, |journal| {
            journal.tunes().iter().any(|recorded| recorded.begun.tune == tune && recorded.is_open())
        })
    }

    /// Instructions after the journal failed in the middle of a tune.
    pub(crate) fn recovery_hint(&self, tune: u64) -> String {
        if self.is_in_effect(tune) {
            let (status, undo) = (self.command("status"), self.command(&format!("undo {tune}")));
            format!("{status} shows what was changed, {undo} restores it")
        } else {
            "nothing was changed".to_owned()
        }
    }
}

impl AutoUndoArgs {
    /// The deadline, counted from now.
    pub(crate) fn deadline(self) -> Option<UndoDeadline> {
        let deadline_after = |time: Duration| boot_seconds().saturating_add(time.as_secs());
        match (self.for_duration, self.until_confirmed) {
            (Some(time), _) => Some(UndoDeadline::Time { boot_seconds: deadline_after(time) }),
            (None, Some(time)) => Some(UndoDeadline::Confirmed { boot_seconds: deadline_after(time) }),
            (None, None) => None,
        }
    }
}

pub(super) fn must_be_root(subcommand: &str) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "tune {subcommand} changes settings of the host, which requires root: run it with sudo (plan does not)"
    );
    Ok(())
}

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct ConsentMode {
    /// Assume yes; do not prompt
    #[arg(short = 'y', long)]
    yes: bool,
}

impl ConsentMode {
    /// Fails before the work if there is no terminal to prompt on.
    pub(crate) fn check(self) -> Result<()> {
        let has_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        ensure!(self.yes || has_terminal, "there is no terminal to prompt on: --yes answers the question");
        Ok(())
    }

    /// Whether the user is prompted.
    pub(crate) fn prompts(self) -> bool {
        !self.yes
    }

    /// Prompts. Any answer but yes is no.
    pub(crate) fn confirm(self, question: &str, interrupt: &InterruptFlag) -> Result<bool> {
        if self.yes {
            return Ok(true);
        }
        forget_typed_ahead();
        status!("{question} [y/N] ");
        let answer = line(interrupt)?;
        if answer.is_none() {
            status!("\n");
        }
        Ok(answer.is_some_and(|answer| ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())))
    }
}

/// A line from standard input; `None` if it ended, or after a signal.
fn line(interrupt: &InterruptFlag) -> Result<Option<String>> {
    let mut text = Vec::new();
    // Not through the standard library's buffer, because `wait_for` does not see the buffer.
    let stdin = std::io::stdin();
    while !interrupt.is_raised() {
        if !interrupt.wait_for(&stdin, None)? {
            continue;
        }
        let mut buffer = [0; 256];
        // A terminal returns one line per read.
        let length = rustix::io::read(&stdin, &mut buffer).context("cannot read the answer")?;
        let Some(bytes) = buffer.get(..length).filter(|bytes| !bytes.is_empty()) else { return Ok(None) };
        text.extend_from_slice(bytes);
        if bytes.contains(&b'\n') {
            return Ok(Some(String::from_utf8_lossy(&text).into_owned()));
        }
    }
    Ok(None)
}

/// Discards input typed before the prompt.
pub(super) fn forget_typed_ahead() {
    // Fails if standard input is not a terminal.
    let _ = rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush);
}
