//! The state of a tune, computed from its records.

use std::collections::BTreeSet;

use linerate_host::setting::SteeringTable;
use linerate_host::stats::ComparisonVerdict;
use linerate_host::{Setting, SettingValue};

use super::record::{BeginRecord, UndoOutcome, UndoReason};
use super::{DamagedLine, JournalLine, JournalRecord};
use crate::NamedDevice;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordedTune {
    pub begun: BeginRecord,
    /// Settings that the tune changed or reset, in the order of their first records.
    pub tracked: Vec<TrackedSetting>,
    /// Settings that could not be read or written, with the host's error.
    pub refused: Vec<(Setting, String)>,
    /// `None` if its program died or still runs.
    pub ended: Option<TuneEnd>,
    pub confirmed: bool,
    /// The measured effect of the changes on the service, and the figures that differ. `None` if it
    /// was not measured.
    pub measured: Option<(ComparisonVerdict, String)>,
    pub undo: Option<RecordedUndo>,
    /// Files that make it persist were written and not removed.
    pub persisted: bool,
    /// Number of the next change.
    pub next_step: u32,
    /// Damaged lines of the journal that may belong to the tune, so that changes may be missing.
    pub damaged_lines: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TuneEnd {
    /// Why changes are missing; `None` if all were made.
    pub broke_off: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedUndo {
    pub why: UndoReason,
    /// When it last began, seconds since 1970.
    pub unix_seconds: u64,
    /// Whether the undo reached all settings.
    pub ended: bool,
}

/// A setting that a tune changed or reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackedSetting {
    pub setting: Setting,
    /// The value before this tune.
    pub original: SettingValue,
    /// The last value that the tune wrote; `None` if another change only reset the setting.
    pub wanted: Option<SettingValue>,
    /// The last value that was written for certain.
    pub applied: Option<SettingValue>,
    pub expected: ExpectedValue,
    /// The changes that may reset it.
    pub depends_on: Vec<Setting>,
    /// Number of a change whose outcome is unknown.
    pub open_step: Option<u32>,
    /// The host's error if the last change was refused.
    pub refused: Option<String>,
    /// The outcome of its undo; `None` before, and after another change.
    pub outcome: Option<UndoOutcome>,
}

/// The values that a setting may have unless another program changed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedValue {
    OneOf(Vec<SettingValue>),
    /// A change that resets the setting was begun, and its value after that was not recorded.
    Anything,
}

impl RecordedTune {
    /// Whether every setting is restored, or was reported as changed by another program.
    pub fn is_undone(&self) -> bool {
        // A setting that was only reset and came back by itself has no record.
        let is_back = |tracked: &TrackedSetting| {
            tracked.is_settled() || (tracked.wanted.is_none() && tracked.outcome.is_none())
        };
        self.undo.is_some_and(|undo| undo.ended) && self.tracked.iter().all(is_back)
    }

    /// Whether undo has something to do.
    pub fn is_open(&self) -> bool {
        !self.is_undone() && (self.undo.is_some() || self.tracked.iter().any(TrackedSetting::is_in_effect))
    }

    /// Whether changes are missing and no undo was begun.
    pub fn is_unfinished(&self) -> bool {
        self.undo.is_none() && self.ended.as_ref().is_none_or(|ended| ended.broke_off.is_some())
    }

    pub fn tracked(&self, setting: &Setting) -> Option<&TrackedSetting> {
        self.tracked.iter().find(|tracked| tracked.setting == *setting)
    }

    /// The device that had this name when the tune recorded it.
    pub fn device(&self, interface: &str) -> Option<&NamedDevice> {
        self.begun.devices.iter().find(|device| device.interface == interface)
    }

    fn tracked_mut(&mut self, setting: &Setting) -> Option<&mut TrackedSetting> {
        self.tracked.iter_mut().find(|tracked| tracked.setting == *setting)
    }

    fn track(&mut self, setting: &Setting, original: &SettingValue) -> &mut TrackedSetting {
        let index = match self.tracked.iter().position(|tracked| tracked.setting == *setting) {
            Some(index) => index,
            None => {
                self.tracked.push(TrackedSetting::new(setting, original));
                self.tracked.len() - 1
            }
        };
        &mut self.tracked[index]
    }

    /// After the intent of a change, the settings that it resets may have any value, even settings
    /// that were restored before.
    fn expect_anything(&mut self, with: &Setting) {
        for tracked in self.tracked.iter_mut().filter(|tracked| tracked.depends_on.contains(with)) {
            tracked.expected = ExpectedValue::Anything;
            tracked.outcome = tracked.outcome.take().filter(|outcome| !outcome.is_back());
        }
    }

    fn apply(&mut self, record: &JournalRecord, unix_seconds: u64) {
        match record {
            // The end of files is that of the files of all tunes: see `apply_entry`.
            JournalRecord::Begun(_) | JournalRecord::Unpersisted { .. } => {}
            JournalRecord::Resumed { .. } => self.ended = None,
            JournalRecord::Device { device, .. } => self.begun.devices.push(device.clone()),
            JournalRecord::Noted { with, values, .. } => {
                for (setting, value) in values {
                    let tracked = self.track(setting, value);
                    tracked.expected = ExpectedValue::just(value);
                    if !tracked.depends_on.contains(with) {
                        tracked.depends_on.push(with.clone());
                    }
                }
            }
            JournalRecord::Intent { step, setting, from, to, .. } => {
                self.expect_anything(setting);
                let tracked = self.track(setting, from);
                tracked.wanted = Some(to.clone());
                tracked.expected = ExpectedValue::OneOf(vec![from.clone(), to.clone()]);
                tracked.open_step = Some(*step);
                tracked.refused = None;
                tracked.outcome = None;
                self.next_step = step.saturating_add(1);
            }
            JournalRecord::Done { tune, step, found, change } => {
                let is_announced = self.tracked.iter().any(|tracked| tracked.open_step == Some(*step));
                if let (false, Some((setting, from))) = (is_announced, change) {
                    let (setting, from, to) = (setting.clone(), from.clone(), found.clone());
                    let intent = JournalRecord::Intent { tune: *tune, step: *step, setting, from, to };
                    self.apply(&intent, unix_seconds);
                }
                let is_open = |tracked: &&mut TrackedSetting| tracked.open_step == Some(*step);
                if let Some(tracked) = self.tracked.iter_mut().find(is_open) {
                    tracked.expected = ExpectedValue::just(found);
                    tracked.applied.clone_from(&tracked.wanted);
                    tracked.open_step = None;
                }
            }
            JournalRecord::Refused { step, setting, why, found, .. } => {
                self.record_refusal(*step, setting, why, found.as_ref());
            }
            JournalRecord::Ended { broke_off, .. } => {
                self.ended = Some(TuneEnd { broke_off: broke_off.clone() });
            }
            JournalRecord::Confirmed { .. } => self.confirmed = true,
            JournalRecord::Measured { verdict, summary, .. } => {
                self.measured = Some((*verdict, summary.clone()));
            }
            JournalRecord::UndoBegun { why, .. } => {
                self.undo = Some(RecordedUndo { why: *why, unix_seconds, ended: false });
            }
            JournalRecord::UndoIntent { setting, from, to, .. } => {
                self.expect_anything(setting);
                if let Some(tracked) = self.tracked_mut(setting) {
                    tracked.expected = ExpectedValue::OneOf(vec![from.clone(), to.clone()]);
                    tracked.outcome = None;
                }
            }
            JournalRecord::UndoDone { setting, outcome, .. } => {
                if let Some(tracked) = self.tracked_mut(setting) {
                    tracked.set_outcome(outcome);
                }
            }
            JournalRecord::UndoEnded { .. } => {
                if let Some(undo) = &mut self.undo {
                    undo.ended = true;
                }
            }
            JournalRecord::Persisting { .. } | JournalRecord::Persisted { .. } => self.persisted = true,
        }
    }

    fn record_refusal(&mut self, step: u32, setting: &Setting, reason: &str, found: Option<&SettingValue>) {
        self.next_step = step.saturating_add(1);
        self.refused.retain(|(refused, _)| refused != setting);
        let Some(tracked) = self.tracked_mut(setting) else {
            self.refused.push((setting.clone(), reason.to_owned()));
            return;
        };
        tracked.refused = Some(reason.to_owned());
        if tracked.open_step == Some(step)
            && let Some(found) = found
        {
            tracked.expected = ExpectedValue::just(found);
            tracked.open_step = None;
        }
    }
}

impl TrackedSetting {
    fn new(setting: &Setting, original: &SettingValue) -> Self {
        Self {
            setting: setting.clone(),
            original: original.clone(),
            wanted: None,
            applied: None,
            expected: ExpectedValue::just(original),
            depends_on: Vec::new(),
            open_step: None,
            refused: None,
            outcome: None,
        }
    }

    /// Whether the tune may have changed the value, and undo has not restored it.
    pub fn is_in_effect(&self) -> bool {
        !self.is_settled()
            && match &self.expected {
                ExpectedValue::Anything => true,
                ExpectedValue::OneOf(values) => values.iter().any(|value| *value != self.original),
            }
    }

    /// Whether this may be a value that the tune left.
    pub fn expects(&self, value: &SettingValue) -> bool {
        match &self.expected {
            ExpectedValue::Anything => true,
            ExpectedValue::OneOf(values) => {
                // A write with an unknown outcome may have been killed at an intermediate value.
                let is_intermediate =
                    |candidate| values.len() > 1 && self.setting.can_leave(candidate, value);
                values
                    .iter()
                    .any(|candidate| self.setting.same(candidate, value) || is_intermediate(candidate))
            }
        }
    }

    /// Whether it is the steering of a reuseport group whose sockets have all closed, and `to` is a
    /// table of other sockets. Their group is a new one, without steering.
    pub fn is_of_closed_sockets(&self, current: &SettingValue, to: &SettingValue) -> bool {
        let cookies = |value: &SettingValue| {
            let table = value.as_str().parse::<SteeringTable>().ok()?;
            Some(table.by_cpu.into_values().flatten().collect::<BTreeSet<u64>>())
        };
        let (steered, new) = (self.wanted.as_ref().and_then(cookies), cookies(to));
        matches!(self.setting, Setting::Steering { .. })
            && current.as_str() == "none"
            && steered.zip(new).is_some_and(|(steered, new)| steered.is_disjoint(&new))
    }

    fn is_settled(&self) -> bool {
        self.outcome.as_ref().is_some_and(UndoOutcome::is_final) || !self.was_touched()
    }

    /// Whether undo has to restore it, or has to restore a setting that may reset it again.
    pub(crate) fn is_to_undo(&self, tune: &RecordedTune) -> bool {
        let pending = |with: &Setting| tune.tracked(with).is_some_and(|with| !with.is_settled());
        match &self.outcome {
            Some(UndoOutcome::Gone { .. }) => false,
            Some(outcome) if outcome.is_final() => self.depends_on.iter().any(pending),
            _ => true,
        }
    }

    /// Whether the tune intended to write it, or a setting that resets it.
    fn was_touched(&self) -> bool {
        self.wanted.is_some() || !self.depends_on.is_empty()
    }

    fn set_outcome(&mut self, outcome: &UndoOutcome) {
        match outcome {
            UndoOutcome::Restored | UndoOutcome::Already => {
                self.expected = ExpectedValue::just(&self.original);
            }
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
        apply_entry(&mut tunes, entry);
        let is_of = |line: &&DamagedLine| {
            let is_before = line.after == number && !matches!(entry.record, JournalRecord::Begun(_));
            is_before || line.after == number + 1
        };
        if let Some(tune) = find_tune(&mut tunes, entry.record.tune()) {
            tune.damaged_lines.extend(damage.iter().filter(is_of).map(|line| line.line));
            tune.damaged_lines.dedup();
        }
    }
    tunes
}

/// The last tune in effect, or the last tune of all, if it is unfinished. Its plan lacks the values
/// of later tunes, so a tune before another tune in effect cannot be resumed.
pub(crate) fn resumable(tunes: &[RecordedTune]) -> Option<&RecordedTune> {
    let last = tunes.last()?.begun.tune;
    let holds = |tune: &&RecordedTune| tune.is_open() || (tune.is_unfinished() && tune.begun.tune == last);
    tunes.iter().rev().find(holds).filter(|tune| tune.is_unfinished())
}

fn find_tune(tunes: &mut [RecordedTune], number: u64) -> Option<&mut RecordedTune> {
    tunes.iter_mut().rev().find(|tune| tune.begun.tune == number)
}

pub(super) fn apply_entry(tunes: &mut Vec<RecordedTune>, entry: &JournalLine) {
    let record = &entry.record;
    if let JournalRecord::Begun(begun) = record {
        tunes.push(RecordedTune { begun: begun.clone(), ..RecordedTune::default() });
        return;
    }
    if let JournalRecord::UndoDone { tune, setting, outcome: UndoOutcome::Covered { by } } = record {
        hand_over(tunes, *tune, *by, setting);
    }
    if let JournalRecord::Unpersisted { .. } = record {
        tunes.iter_mut().for_each(|tune| tune.persisted = false);
    }
    let number = record.tune();
    if find_tune(tunes, number).is_none() {
        // The record of its start is damaged.
        let position = tunes.partition_point(|tune| tune.begun.tune < number);
        let begun = BeginRecord::lost(number, entry.unix_seconds);
        tunes.insert(position, RecordedTune { begun, ..RecordedTune::default() });
    }
    if let Some(tune) = find_tune(tunes, number) {
        tune.apply(record, entry.unix_seconds);
    }
}

/// A tune was undone although a later tune has the setting: the later tune now restores the
/// original value of the earlier tune.
fn hand_over(tunes: &mut [RecordedTune], from: u64, to: u64, setting: &Setting) {
    let position = |number: u64| tunes.iter().position(|tune| tune.begun.tune == number);
    let (Some(from), Some(to)) = (position(from), position(to)) else { return };
    let Some(earlier) = tunes[from].tracked(setting).cloned() else { return };
    if let Some(tracked) = tunes[to].tracked_mut(setting)
        && earlier.expects(&tracked.original)
    {
        tracked.original = earlier.original;
    }
}
