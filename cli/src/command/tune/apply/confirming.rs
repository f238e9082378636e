//! Waiting for a person to confirm what would be undone otherwise.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::{Context, Result};
use linerate_host::Host;
use linerate_tune::journal::StateStore;
use linerate_tune::transaction::{self, TuneError, boot_seconds};

use super::carrying::tell;
use crate::command::tune::ask;
use crate::interrupt::InterruptFlag;

/// How often the time that is left is written anew, and the journal looked at.
const TICK: Duration = Duration::from_millis(500);

/// How the waiting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfirmationAnswer {
    /// It is confirmed, here or elsewhere.
    Confirmed,
    /// It was undone.
    Undone,
    /// Nobody answered yet: the guard waits on.
    Open,
}

/// Waits on a terminal until Enter is pressed, its time is over, or somebody confirms or undoes it elsewhere.
pub(crate) fn wait(
    store: &StateStore,
    host: &Host,
    tune: u64,
    deadline: u64,
    interrupt: &InterruptFlag,
) -> Result<ConfirmationAnswer> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(ConfirmationAnswer::Open);
    }
    ask::forget_typed_ahead();
    let answer = loop {
        let journal = store.read()?;
        let tunes = journal.tunes();
        let known =
            tunes.iter().find(|known| known.begun.tune == tune).context("the journal lost the tune")?;
        if known.confirmed {
            break ConfirmationAnswer::Confirmed;
        }
        if known.undo.is_some_and(|undo| undo.ended) {
            break ConfirmationAnswer::Undone;
        }
        let left = deadline.saturating_sub(boot_seconds());
        tell(&format!("\r\u{1b}[Kundone in {left} s; Enter keeps it (Ctrl-C: decide later) "));
        let typed = interrupt.wait_for(&stdin, Some(TICK))?;
        if interrupt.is_raised() {
            break ConfirmationAnswer::Open;
        }
        if typed && left > 0 {
            let mut some = [0; 256];
            match rustix::io::read(&stdin, &mut some) {
                // The terminal is gone: whoever asked cannot be asked.
                Ok(0) | Err(_) => break ConfirmationAnswer::Open,
                Ok(_) => match transaction::confirm(&mut store.lock_waiting()?, host, Some(tune)) {
                    // The guard was first; the journal tells.
                    Ok(_) | Err(TuneError::TooLate { .. } | TuneError::NothingToConfirm) => {}
                    Err(error) => return Err(error.into()),
                },
            }
        }
    };
    tell("\r\u{1b}[K");
    Ok(answer)
}
