//! The journal, before anything is read.

use anyhow::{Result, ensure};
use linerate_host::Host;
use linerate_tune::journal::StateStore;
use linerate_tune::transaction;

use super::carrying::tell;
use crate::command::tune::StateDirArgs;
use crate::render::tune_undo;

/// Undoes what is overdue, and sees that no other tune is open on the way, unless that is to be resumed. Another that changes
/// settings is told before anything is read; the journal is free again for its guard.
pub(crate) fn must_be_free(
    store: &StateStore,
    host: &Host,
    place: &StateDirArgs,
    resume: bool,
) -> Result<()> {
    let mut writer = store.lock()?;
    for undone in transaction::undo_overdue(&mut writer, host)? {
        tell(&format!("overdue: {}\n", tune_undo::summary(&undone)));
    }
    let Some(last) = writer.tunes().last() else { return Ok(()) };
    let number = last.begun.tune;
    ensure!(
        resume || !(last.ended.is_none() && last.is_open()),
        "tune {number} was not finished, since its program died: {} finishes it, {} takes it back",
        place.command("apply --resume"),
        place.command(&format!("undo {number}"))
    );
    Ok(())
}
