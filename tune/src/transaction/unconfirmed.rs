//! Tunes that undo themselves unless they are confirmed.

use rustix::time::{ClockId, clock_gettime};

use super::{ChangeTarget, TuneError, TuneNamespace, UndoReport, boot_id, undo};
use crate::journal::record::{UndoDeadline, UndoReason};
use crate::journal::{JournalRecord, JournalWriter, RecordedTune};

/// Seconds since boot, sleep included (`CLOCK_BOOTTIME`).
pub fn boot_seconds() -> u64 {
    u64::try_from(clock_gettime(ClockId::Boottime).tv_sec).unwrap_or(0)
}

/// Whether a tune may still undo itself.
pub(crate) fn is_pending(tune: &RecordedTune) -> bool {
    has_deadline(tune) && tune.is_open()
}

pub(super) fn has_deadline(tune: &RecordedTune) -> bool {
    tune.begun.until.is_some_and(|until| !(tune.confirmed && until.takes_confirmation()))
}

/// Why a tune is due to be undone. `maker_runs`: whether a process holds the journal's lock.
pub fn due(tune: &RecordedTune, boot: &str, boot_seconds: u64, maker_runs: bool) -> Option<UndoReason> {
    let until = tune.begun.until.filter(|_| is_pending(tune))?;
    let expired = match until {
        UndoDeadline::Time { .. } => UndoReason::Expired,
        UndoDeadline::Confirmed { .. } => UndoReason::Unconfirmed,
        UndoDeadline::Maker {} => UndoReason::Died,
    };
    if tune.begun.boot != boot || until.boot_seconds().is_some_and(|deadline| deadline <= boot_seconds) {
        return Some(expired);
    }
    let is_unfinished = tune.ended.is_none() || until == UndoDeadline::Maker {};
    (is_unfinished && !maker_runs).then_some(UndoReason::Died)
}

/// Undoes all tunes that are overdue because their guards were killed, the latest first. Tunes of
/// other network namespaces are skipped.
pub fn undo_overdue<T: ChangeTarget>(
    writer: &mut JournalWriter,
    target: &T,
) -> Result<Vec<UndoReport>, TuneError> {
    let boot = boot_id(target.host())?;
    let now = boot_seconds();
    let overdue: Vec<_> = writer
        .tunes()
        .iter()
        .rev()
        // This process holds the lock, and makes no tune yet.
        .filter_map(|tune| due(tune, &boot, now, false).map(|reason| (&tune.begun, reason)))
        .filter(|(begun, _)| TuneNamespace::of(target.host(), begun).check_here(begun.tune).is_ok())
        .map(|(begun, reason)| (begun.tune, reason))
        .collect();
    overdue.into_iter().map(|(tune, reason)| undo(writer, target, Some(tune), reason)).collect()
}

/// Confirms a tune, so that it stays: tune `id`, or the tune that waits for a confirmation. Returns
/// its number.
pub fn confirm<T: ChangeTarget>(
    writer: &mut JournalWriter,
    target: &T,
    id: Option<u64>,
) -> Result<u64, TuneError> {
    let is_waiting = |tune: &&RecordedTune| {
        id.is_none_or(|id| tune.begun.tune == id)
            && is_pending(tune)
            && tune.begun.until.is_some_and(UndoDeadline::takes_confirmation)
    };
    let tune = writer.tunes().iter().rev().find(is_waiting).ok_or(TuneError::NothingToConfirm)?;
    let id = tune.begun.tune;
    // An undo that was killed or partly refused does not make the rest stay.
    if tune.undo.is_some() || due(tune, &boot_id(target.host())?, boot_seconds(), false).is_some() {
        return Err(TuneError::TooLate { tune: id });
    }
    writer.append(JournalRecord::Confirmed { tune: id })?;
    Ok(id)
}
