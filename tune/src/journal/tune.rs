//! What the records of a tune add up to.

use linerate_host::{Setting, SettingValue};

use super::record::{BeginRecord, UndoOutcome, UndoReason, WrittenFile};
use super::{DamagedLine, JournalLine, JournalRecord};
use crate::NamedDevice;

/// A tune, as far as its records tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedTune {
    pub begun: BeginRecord,
    /// The settings that it changed, or that a change of its resets, in the order in which they were first named.
    pub held: Vec<TrackedSetting>,
    /// Settings that it never wrote, since they could not be read or did not take the value; with the host's words.
    pub refused: Vec<(Setting, String)>,
    /// Its end; none where its program died, or is at it.
    pub ended: Option<TuneEnd>,
    pub confirmed: bool,
    /// Its undoing; none where nobody began.
    pub undo: Option<RecordedUndo>,
    /// Files that make it last.
    pub persisted: Vec<WrittenFile>,
    /// Number of the next change.
    pub next_step: u32,
    /// Lines of the journal that may be its own and are damaged, so that there may be more of it
    /// than is told.
    pub damaged_lines: Vec<u64>,
}

/// The end of a tune.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TuneEnd {
    /// Why it broke off; none where it made all changes.
    pub broke_off: Option<String>,
}

/// The undoing of a tune.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedUndo {
    pub why: UndoReason,
    /// Whether all settings had their turn.
    pub ended: bool,
}

/// A setting that a tune holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackedSetting {
    pub setting: Setting,
    /// What it was before this tune.
    pub first: SettingValue,
    /// What this tune last set it to; none where it is only reset by another change.
    pub wanted: Option<SettingValue>,
    /// What this tune last set it to for certain; none where it never did.
    pub made: Option<SettingValue>,
    /// What it reads unless somebody else changed it.
    pub expected: ExpectedValue,
    /// The change that may reset it.
    pub hangs_on: Vec<Setting>,
    /// Number of a change of which it is not known whether it was made.
    pub open_step: Option<u32>,
    /// The host's words, where the last change was refused.
    pub refused: Option<String>,
    /// What became of undoing it; none where it was not, or was changed again since.
    pub outcome: Option<UndoOutcome>,
}

/// What a setting reads unless somebody else changed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedValue {
    OneOf(Vec<SettingValue>),
    /// Anything: a change that resets it was begun, and what it read after that was not written down.
    Anything,
}

impl RecordedTune {
    /// Whether every setting is back, or was told to be somebody else's.
    #[must_use]
    pub fn is_undone(&self) -> bool {
        // Nothing is written of what another change resets where it came back with that.
        let back =
            |held: &TrackedSetting| held.is_settled() || (held.wanted.is_none() && held.outcome.is_none());
        self.undo.is_some_and(|undo| undo.ended) && self.held.iter().all(back)
    }

    /// Whether there is anything to undo.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.is_undone() && (self.undo.is_some() || self.held.iter().any(TrackedSetting::is_in_effect))
    }

    /// Whether it did not come to its end, or broke off, and was not undone.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        self.undo.is_none() && self.ended.as_ref().is_none_or(|ended| ended.broke_off.is_some())
    }

    /// The setting among those held.
    #[must_use]
    pub fn held(&self, setting: &Setting) -> Option<&TrackedSetting> {
        self.held.iter().find(|held| held.setting == *setting)
    }

    /// The device that an interface's name meant in it.
    #[must_use]
    pub fn device(&self, interface: &str) -> Option<&NamedDevice> {
        self.begun.devices.iter().find(|device| device.interface == interface)
    }

    fn held_mut(&mut self, setting: &Setting) -> Option<&mut TrackedSetting> {
        self.held.iter_mut().find(|held| held.setting == *setting)
    }

    fn hold(&mut self, setting: &Setting, first: &SettingValue) -> &mut TrackedSetting {
        let at = match self.held.iter().position(|held| held.setting == *setting) {
            Some(at) => at,
            None => {
                self.held.push(TrackedSetting::new(setting, first));
                self.held.len() - 1
            }
        };
        &mut self.held[at]
    }

    /// What hangs on a change may read anything from the moment it is about to be made, also what
    /// was put back before.
    fn loosen(&mut self, with: &Setting) {
        for held in self.held.iter_mut().filter(|held| held.hangs_on.contains(with)) {
            held.expected = ExpectedValue::Anything;
            held.outcome = held.outcome.take().filter(|outcome| !outcome.is_back());
        }
    }

    fn take(&mut self, record: &JournalRecord) {
        match record {
            JournalRecord::Begun(_) => {}
            JournalRecord::Resumed { .. } => self.ended = None,
            JournalRecord::Device { device, .. } => self.begun.devices.push(device.clone()),
            JournalRecord::Noted { with, values, .. } => {
                for (setting, value) in values {
                    let held = self.hold(setting, value);
                    held.expected = ExpectedValue::just(value);
                    if !held.hangs_on.contains(with) {
                        held.hangs_on.push(with.clone());
                    }
                }
            }
            JournalRecord::Intent { step, setting, from, to, .. } => {
                self.loosen(setting);
                let held = self.hold(setting, from);
                held.wanted = Some(to.clone());
                held.expected = ExpectedValue::OneOf(vec![from.clone(), to.clone()]);
                held.open_step = Some(*step);
                held.refused = None;
                held.outcome = None;
                self.next_step = step.saturating_add(1);
            }
            JournalRecord::Done { tune, step, found, change } => {
                let is_announced = self.held.iter().any(|held| held.open_step == Some(*step));
                if let (false, Some((setting, from))) = (is_announced, change) {
                    let (setting, from, to) = (setting.clone(), from.clone(), found.clone());
                    self.take(&JournalRecord::Intent { tune: *tune, step: *step, setting, from, to });
                }
                if let Some(held) = self.held.iter_mut().find(|held| held.open_step == Some(*step)) {
                    held.expected = ExpectedValue::just(found);
                    held.made.clone_from(&held.wanted);
                    held.open_step = None;
                }
            }
            JournalRecord::Refused { step, setting, why, found, .. } => {
                self.refuse(*step, setting, why, found.as_ref());
            }
            JournalRecord::Ended { broke_off, .. } => {
                self.ended = Some(TuneEnd { broke_off: broke_off.clone() });
            }
            JournalRecord::Confirmed { .. } => self.confirmed = true,
            JournalRecord::UndoBegun { why, .. } => {
                self.undo = Some(RecordedUndo { why: *why, ended: false });
            }
            JournalRecord::UndoIntent { setting, from, to, .. } => {
                self.loosen(setting);
                if let Some(held) = self.held_mut(setting) {
                    held.expected = ExpectedValue::OneOf(vec![from.clone(), to.clone()]);
                    held.outcome = None;
                }
            }
            JournalRecord::UndoDone { setting, outcome, .. } => {
                if let Some(held) = self.held_mut(setting) {
                    held.undone(outcome);
                }
            }
            JournalRecord::UndoEnded { .. } => {
                if let Some(undo) = &mut self.undo {
                    undo.ended = true;
                }
            }
            JournalRecord::Persisting { files, .. } | JournalRecord::Persisted { files, .. } => {
                self.persisted.clone_from(files);
            }
            JournalRecord::Unpersisted { removed, left, .. } => {
                self.persisted.retain(|file| !removed.contains(&file.path) && !left.contains(&file.path));
            }
        }
    }

    fn refuse(&mut self, step: u32, setting: &Setting, why: &str, found: Option<&SettingValue>) {
        self.next_step = step.saturating_add(1);
        self.refused.retain(|(refused, _)| refused != setting);
        let Some(held) = self.held_mut(setting) else {
            self.refused.push((setting.clone(), why.to_owned()));
            return;
        };
        held.refused = Some(why.to_owned());
        if held.open_step == Some(step)
            && let Some(found) = found
        {
            held.expected = ExpectedValue::just(found);
            held.open_step = None;
        }
    }
}

impl TrackedSetting {
    fn new(setting: &Setting, first: &SettingValue) -> Self {
        Self {
            setting: setting.clone(),
            first: first.clone(),
            wanted: None,
            made: None,
            expected: ExpectedValue::just(first),
            hangs_on: Vec::new(),
            open_step: None,
            refused: None,
            outcome: None,
        }
    }

    /// Whether it may read otherwise than before the tune, by the tune's doing.
    #[must_use]
    pub fn is_in_effect(&self) -> bool {
        !self.is_settled()
            && match &self.expected {
                ExpectedValue::Anything => true,
                ExpectedValue::OneOf(values) => values.iter().any(|value| *value != self.first),
            }
    }

    /// Whether this is a value that the tune left it at.
    #[must_use]
    pub fn expects(&self, value: &SettingValue) -> bool {
        match &self.expected {
            ExpectedValue::Anything => true,
            ExpectedValue::OneOf(values) => {
                // A write of which it is not known whether it was made may have been killed on its way.
                let on_the_way = |one| values.len() > 1 && self.setting.passes(one, value);
                values.iter().any(|one| self.setting.same(one, value) || on_the_way(one))
            }
        }
    }

    fn is_settled(&self) -> bool {
        self.outcome.as_ref().is_some_and(UndoOutcome::is_final) || !self.was_touched()
    }

    /// Whether undoing it still has to do something, or what it hangs on may yet be undone and
    /// reset it again.
    pub(crate) fn is_to_undo(&self, tune: &RecordedTune) -> bool {
        let pending = |with: &Setting| tune.held(with).is_some_and(|with| !with.is_settled());
        match &self.outcome {
            Some(UndoOutcome::Gone { .. } | UndoOutcome::Covered { .. }) => false,
            Some(outcome) if outcome.is_final() => self.hangs_on.iter().any(pending),
            _ => true,
        }
    }

    /// Whether anything was about to be written to it, or to what resets it.
    fn was_touched(&self) -> bool {
        self.wanted.is_some() || !self.hangs_on.is_empty()
    }

    fn undone(&mut self, outcome: &UndoOutcome) {
        match outcome {
            UndoOutcome::Restored | UndoOutcome::Already => self.expected = ExpectedValue::just(&self.first),
            UndoOutcome::Failed { found: Some(found), .. } => self.expected = ExpectedValue::just(found),
            UndoOutcome::Failed { found: None, .. }
            | UndoOutcome::Drift { .. }
            | UndoOutcome::Gone { .. }
            | UndoOutcome::Covered { .. } => {}
        }
        self.outcome = Some(outcome.clone());
    }
}

impl ExpectedValue {
    fn just(value: &SettingValue) -> Self {
        ExpectedValue::OneOf(vec![value.clone()])
    }
}

/// The tunes of a journal, the earliest first.
pub(super) fn tunes(entries: &[JournalLine], damage: &[DamagedLine]) -> Vec<RecordedTune> {
    let mut tunes = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        take(&mut tunes, entry);
        let is_of = |line: &&DamagedLine| {
            let before = line.after == number && !matches!(entry.record, JournalRecord::Begun(_));
            before || line.after == number + 1
        };
        if let Some(tune) = find(&mut tunes, entry.record.tune()) {
            tune.damaged_lines.extend(damage.iter().filter(is_of).map(|line| line.line));
            tune.damaged_lines.dedup();
        }
    }
    tunes
}

fn find(tunes: &mut [RecordedTune], number: u64) -> Option<&mut RecordedTune> {
    tunes.iter_mut().rev().find(|tune| tune.begun.tune == number)
}

/// Adds a record to those before it.
pub(super) fn take(tunes: &mut Vec<RecordedTune>, entry: &JournalLine) {
    let record = &entry.record;
    if let JournalRecord::Begun(begun) = record {
        tunes.push(RecordedTune::new(begun));
        return;
    }
    if let JournalRecord::UndoDone { tune, setting, outcome: UndoOutcome::Covered { by } } = record {
        hand_over(tunes, *tune, *by, setting);
    }
    let number = record.tune();
    if find(tunes, number).is_none() {
        // The record of its start is damaged.
        let place = tunes.partition_point(|tune| tune.begun.tune < number);
        tunes.insert(place, RecordedTune::new(&BeginRecord::lost(number, entry.unix_seconds)));
    }
    if let Some(tune) = find(tunes, number) {
        tune.take(record);
    }
}

/// A tune that is undone under a later one: what it had found is what the later one now has to put back.
fn hand_over(tunes: &mut [RecordedTune], from: u64, to: u64, setting: &Setting) {
    let find = |number: u64| tunes.iter().position(|tune| tune.begun.tune == number);
    let (Some(from), Some(to)) = (find(from), find(to)) else { return };
    let Some((first, ours)) = tunes[from].held(setting).map(|held| (held.first.clone(), held.clone())) else {
        return;
    };
    if let Some(held) = tunes[to].held_mut(setting)
        && ours.expects(&held.first)
    {
        held.first = first;
    }
}

impl RecordedTune {
    fn new(begun: &BeginRecord) -> Self {
        Self {
            begun: begun.clone(),
            held: Vec::new(),
            refused: Vec::new(),
            ended: None,
            confirmed: false,
            undo: None,
            persisted: Vec::new(),
            next_step: 0,
            damaged_lines: Vec::new(),
        }
    }
}
