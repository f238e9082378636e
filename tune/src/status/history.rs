//! Summaries of all tunes in the journal.

use serde::{Deserialize, Serialize};

use crate::journal::record::{UndoOutcome, UndoReason};
use crate::journal::tune::RecordedUndo;
use crate::journal::{Journal, JournalCorruption, LockHolder, RecordedTune};

/// All tunes, the earliest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TuneHistory {
    pub journal: String,
    /// Why tunes may be missing here; `None` if the whole journal was read.
    pub trouble: Option<JournalCorruption>,
    /// The process that changes settings at present.
    pub holder: Option<LockHolder>,
    pub tunes: Vec<PastTune>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastTune {
    pub tune: u64,
    /// When it began, seconds since 1970.
    pub unix_seconds: u64,
    /// Version of linerate that made it.
    pub version: String,
    pub argv: Vec<String>,
    /// Name of the profile, or the purpose of the changes.
    pub goal: String,
    /// Settings that it wrote.
    pub written: usize,
    pub refused: usize,
    /// Whether it made all of its changes.
    pub complete: bool,
    /// Why changes are missing; `None` if it was killed.
    pub broke_off: Option<String>,
    pub confirmed: bool,
    pub undo: Option<PastUndo>,
    /// Files were written that make it persist.
    pub persisted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastUndo {
    pub why: UndoReason,
    /// When it last began, seconds since 1970.
    pub unix_seconds: u64,
    /// Whether the undo reached all settings.
    pub complete: bool,
    /// Settings that were skipped because another program changed them or because they are gone.
    pub skipped: usize,
    pub refused: usize,
}

impl TuneHistory {
    pub fn of(journal: &Journal) -> Self {
        Self {
            journal: journal.path.display().to_string(),
            trouble: journal.trouble.clone(),
            holder: journal.holder,
            tunes: journal.tunes().iter().map(past_tune).collect(),
        }
    }
}

fn past_tune(tune: &RecordedTune) -> PastTune {
    let refused =
        tune.tracked.iter().filter(|tracked| tracked.refused.is_some()).count() + tune.refused.len();
    PastTune {
        tune: tune.begun.tune,
        unix_seconds: tune.begun.unix_seconds,
        version: tune.begun.version.clone(),
        argv: tune.begun.argv.clone(),
        goal: tune.begun.goal.clone(),
        written: tune.tracked.iter().filter(|tracked| tracked.wanted.is_some()).count(),
        refused,
        complete: tune.ended.as_ref().is_some_and(|ended| ended.broke_off.is_none()),
        broke_off: tune.ended.as_ref().and_then(|ended| ended.broke_off.clone()),
        confirmed: tune.confirmed,
        undo: tune.undo.map(|undo| past_undo(tune, undo)),
        persisted: tune.persisted,
    }
}

fn past_undo(tune: &RecordedTune, undo: RecordedUndo) -> PastUndo {
    let outcomes = || tune.tracked.iter().filter_map(|tracked| tracked.outcome.as_ref());
    let is_skipped =
        |outcome: &&UndoOutcome| matches!(outcome, UndoOutcome::Drift { .. } | UndoOutcome::Gone { .. });
    PastUndo {
        why: undo.why,
        unix_seconds: undo.unix_seconds,
        complete: undo.ended,
        skipped: outcomes().filter(is_skipped).count(),
        refused: outcomes().filter(|outcome| !outcome.is_final()).count(),
    }
}
