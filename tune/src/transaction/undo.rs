//! Undoing a tune: every setting back to what it was, unless somebody else changed it since.

use linerate_host::{Setting, SettingError, SettingValue};
use serde::{Deserialize, Serialize};

use super::place::SettingLocations;
use super::{ChangeTarget, TuneError, TuneNamespace, undo_room};
use crate::journal::record::{UndoOutcome, UndoReason};
use crate::journal::tune::TrackedSetting;
use crate::journal::{JournalError, JournalRecord, JournalWriter, RecordedTune};

/// What became of undoing a tune.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoReport {
    pub tune: u64,
    /// Why it was undone.
    pub why: UndoReason,
    /// It was made before the last boot, which ended its changes: what is told is what was found now.
    pub earlier_boot: bool,
    /// Its settings, in the order in which they were put back.
    pub settings: Vec<UndoneSetting>,
    /// Lines of the journal that may be its own and are damaged: what they said is not undone.
    pub damaged_lines: Vec<u64>,
}

/// What became of a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoneSetting {
    /// Which one, as the tune named it.
    pub setting: Setting,
    /// The setting in words, by its interface's name of now.
    pub name: String,
    /// The name that the interface had and has no more.
    pub renamed_from: Option<String>,
    /// What it was before the tune.
    pub first: SettingValue,
    /// What became of it.
    pub outcome: UndoOutcome,
}

impl UndoReport {
    /// Whether a setting was refused, so that the tune remains to be undone.
    #[must_use]
    pub fn has_failures(&self) -> bool {
        self.settings.iter().any(|setting| !setting.outcome.is_final())
    }

    /// Whether a setting was left as it is, because it is somebody else's or gone. What is of a
    /// process ends with it, as with a worker that is forked anew: nothing of it is left. Nor is it
    /// known whether all was put back where a record of the tune is damaged.
    #[must_use]
    pub fn has_left(&self) -> bool {
        let left = |setting: &UndoneSetting| match setting.outcome {
            UndoOutcome::Drift { .. } => true,
            UndoOutcome::Gone { .. } => !setting.setting.is_of_process(),
            _ => false,
        };
        !self.damaged_lines.is_empty() || self.settings.iter().any(left)
    }
}

/// Undoes a tune, the latest that is in force unless told which. It may be ended at any point and be done again.
///
/// # Errors
/// [`TuneError::NoSuchTune`], [`TuneError::NothingToUndo`], [`TuneError::UndoneAlready`], [`TuneError::OtherNamespace`];
/// [`TuneError::Journal`] where what is about to be done cannot be written down: then it is not done. A setting that is
/// refused is no error.
pub fn undo<T: ChangeTarget>(
    writer: &mut JournalWriter,
    target: &T,
    id: Option<u64>,
    why: UndoReason,
) -> Result<UndoReport, TuneError> {
    let tune = choose(writer, id)?;
    let boot = target.boot().ok();
    TuneNamespace::of(target.host(), &tune.begun).must_not_be_elsewhere(tune.begun.tune)?;
    let records: Vec<JournalRecord> =
        tune.held.iter().flat_map(|held| undo_room(tune.begun.tune, &held.setting, &held.first)).collect();
    writer.reserve(&records)?;
    let mut undoing = UndoRun {
        id: tune.begun.tune,
        places: SettingLocations::observe(target.host(), &tune, boot.as_deref()),
        order: in_order(&tune),
        kept: Vec::new(),
        settings: Vec::new(),
        writer,
        target,
    };
    undoing.writer.append(JournalRecord::UndoBegun { tune: undoing.id, why })?;
    undoing.keep_what_others_set()?;
    for setting in undoing.order.clone() {
        undoing.make_fit(&setting)?;
        undoing.put_back(&setting)?;
    }
    undoing.restore_inherited(&tune);
    undoing.look_again()?;
    undoing.tell_what_was_left_before();
    undoing.writer.append(JournalRecord::UndoEnded { tune: undoing.id })?;
    let earlier_boot = boot.and_then(|boot| tune.begun.is_of_earlier_boot(&boot)) == Some(true);
    let (settings, damaged_lines) = (undoing.settings, tune.damaged_lines);
    Ok(UndoReport { tune: undoing.id, why, earlier_boot, settings, damaged_lines })
}

fn choose(writer: &JournalWriter, id: Option<u64>) -> Result<RecordedTune, TuneError> {
    let Some(id) = id else {
        let open = writer.tunes().iter().rev().find(|tune| tune.is_open());
        return open.cloned().ok_or(TuneError::NothingToUndo);
    };
    let tune = writer.tune(id).ok_or(TuneError::NoSuchTune { tune: id })?;
    if tune.is_undone() { Err(TuneError::UndoneAlready { tune: id }) } else { Ok(tune.clone()) }
}

/// The settings that are to be put back, the one first that was first changed last.
fn in_order(tune: &RecordedTune) -> Vec<Setting> {
    let position = |setting: &Setting| tune.held.iter().position(|held| held.setting == *setting);
    let to_do = |(at, held): &(usize, &TrackedSetting)| {
        // What came to be with a change goes with it.
        let came_with_it = held.hangs_on.iter().any(|with| position(with).is_some_and(|with| with < *at));
        held.is_to_undo(tune) && (held.wanted.is_some() || !came_with_it)
    };
    let mut order: Vec<_> = tune.held.iter().enumerate().filter(to_do).collect();
    order.reverse();
    order.into_iter().map(|(_, held)| held.setting.clone()).collect()
}

struct UndoRun<'a, T> {
    writer: &'a mut JournalWriter,
    target: &'a T,
    id: u64,
    places: SettingLocations<'a>,
    order: Vec<Setting>,
    /// Settings that somebody else set, which a change that is undone may reset, and what they read.
    kept: Vec<(Setting, SettingValue)>,
    settings: Vec<UndoneSetting>,
}

impl<T: ChangeTarget> UndoRun<'_, T> {
    /// Undoing a change of channels resets what hangs on it. What of that is somebody else's has to be known before.
    fn keep_what_others_set(&mut self) -> Result<(), JournalError> {
        for setting in self.order.clone() {
            let Some(held) = self.held(&setting).filter(|held| !held.hangs_on.is_empty()).cloned() else {
                continue;
            };
            let now = self.places.find(&setting).ok().and_then(|setting| self.target.read(&setting).ok());
            if let (Some(UndoOutcome::Drift { .. }), Some(now)) = (&held.outcome, &now) {
                self.kept.push((setting.clone(), now.clone()));
                continue;
            }
            let Some(now) = now.filter(|now| self.is_drift(&held, now)) else { continue };
            self.kept.push((setting.clone(), now.clone()));
            self.finish(&held, UndoOutcome::Drift { found: now })?;
        }
        Ok(())
    }

    /// Fewer channels are refused as long as the indirection table names queues that would go
    /// (`ethtool_check_max_channel`, net/ethtool/common.c, Linux 6.18), so that the table is put
    /// back first where it fits both counts. Drivers reset the table with the channels: it has its
    /// own turn after them.
    fn make_fit(&mut self, setting: &Setting) -> Result<(), JournalError> {
        let Setting::Channels { interface } = setting else { return Ok(()) };
        let table = Setting::RssTable { interface: interface.clone() };
        let first = self.held(setting).map(|held| held.first.clone());
        let now = self.places.find(setting).ok().and_then(|here| self.target.read(&here).ok());
        let shrinks = receive_channels(first.as_ref()) < receive_channels(now.as_ref());
        let is_kept = self.kept.iter().any(|(kept, _)| *kept == table);
        if shrinks && !is_kept && self.held(&table).is_some() {
            self.put_back(&table)?;
        }
        Ok(())
    }

    /// An undo that was ended on its way told nobody what it had left.
    fn tell_what_was_left_before(&mut self) {
        let Some(tune) = self.writer.tune(self.id).cloned() else { return };
        for held in &tune.held {
            let is_told = self.settings.iter().any(|told| told.setting == held.setting);
            if let (Some(outcome @ (UndoOutcome::Drift { .. } | UndoOutcome::Gone { .. })), false) =
                (&held.outcome, is_told)
            {
                self.tell(held, outcome.clone());
            }
        }
    }

    /// Threads that came since have the CPUs of those that started them. They were never this tune's
    /// to journal: an undo that is cut short finds them again when it is repeated.
    fn restore_inherited(&mut self, tune: &RecordedTune) {
        for (setting, first) in super::inherited::inherited(self.target.host(), tune) {
            let outcome = match self.target.write(&setting, &first) {
                Ok(()) => UndoOutcome::Restored,
                Err(error) => failure(&error, None),
            };
            let name = setting.to_string();
            self.settings.push(UndoneSetting { setting, name, renamed_from: None, first, outcome });
        }
    }

    /// What was put back may have been reset by what was put back after it: a tune that is not as
    /// before stays open.
    fn look_again(&mut self) -> Result<(), JournalError> {
        for setting in self.order.clone() {
            let Some(held) = self.held(&setting).filter(|held| !held.hangs_on.is_empty()).cloned() else {
                continue;
            };
            let is_kept = self.kept.iter().any(|(kept, _)| *kept == setting);
            if is_kept || !held.outcome.as_ref().is_none_or(UndoOutcome::is_back) {
                continue;
            }
            let Ok(here) = self.places.find(&setting) else { continue };
            if let Ok(now) = self.target.read(&here)
                && !setting.same(&held.first, &now)
            {
                self.restore(&held, &here, now)?;
            }
        }
        Ok(())
    }

    fn put_back(&mut self, setting: &Setting) -> Result<(), JournalError> {
        if let Some((_, value)) = self.kept.iter().find(|(kept, _)| kept == setting) {
            return self.put_others_back(setting, value);
        }
        let Some(held) = self.held(setting).cloned() else { return Ok(()) };
        let here = match self.places.find(setting) {
            Ok(here) => here,
            Err(why) => return self.finish(&held, UndoOutcome::Gone { why }),
        };
        let now = match self.target.read(&here) {
            Ok(now) => now,
            Err(error) => return self.finish(&held, failure(&error, None)),
        };
        if let Some(by) = self.covered(&held, &now) {
            return self.finish(&held, UndoOutcome::Covered { by });
        }
        if now == held.first {
            return self.finish(&held, UndoOutcome::Already);
        }
        if self.is_drift(&held, &now) {
            return self.finish(&held, UndoOutcome::Drift { found: now });
        }
        if !held.expects(&now) {
            return self.finish(&held, UndoOutcome::Already);
        }
        self.restore(&held, &here, now)
    }

    fn restore(
        &mut self,
        held: &TrackedSetting,
        here: &Setting,
        now: SettingValue,
    ) -> Result<(), JournalError> {
        self.writer.append(JournalRecord::UndoIntent {
            tune: self.id,
            setting: held.setting.clone(),
            from: now,
            to: held.first.clone(),
        })?;
        let outcome = match self.target.write(here, &held.first) {
            Ok(()) => UndoOutcome::Restored,
            Err(error) => failure(&error, self.target.read(here).ok()),
        };
        self.finish(held, outcome)
    }

    /// A value that somebody else set, after undoing a change that reset it. Their value was never this tune's to journal.
    fn put_others_back(&self, setting: &Setting, value: &SettingValue) -> Result<(), JournalError> {
        if let Ok(here) = self.places.find(setting)
            && self.target.read(&here).is_ok_and(|now| now != *value)
        {
            // The setting was told as drift; where it cannot be set any more, its value went with what it belonged to.
            let _ = self.target.write(&here, value);
        }
        Ok(())
    }

    /// Whether somebody else set it: it is neither what it was nor what the tune left.
    fn is_drift(&self, held: &TrackedSetting, now: &SettingValue) -> bool {
        !held.expects(now) && !held.setting.same(&held.first, now) && self.covered(held, now).is_none()
    }

    /// Where a later tune holds the setting as it is: the first one after this that changed it, and so found what this left.
    fn covered(&self, held: &TrackedSetting, now: &SettingValue) -> Option<u64> {
        let tunes = self.writer.tunes();
        later_holder(tunes, self.id, &held.setting, now)?;
        let changed =
            |later: &&RecordedTune| later.begun.tune > self.id && holds(later, &held.setting).is_some();
        tunes.iter().find(changed).map(|later| later.begun.tune)
    }

    fn held(&self, setting: &Setting) -> Option<&TrackedSetting> {
        self.writer.tune(self.id)?.held(setting)
    }

    fn finish(&mut self, held: &TrackedSetting, outcome: UndoOutcome) -> Result<(), JournalError> {
        // What another change only resets is worth a line where it did not come back by itself.
        if held.wanted.is_none() && outcome == UndoOutcome::Already {
            return Ok(());
        }
        self.tell(held, outcome.clone());
        self.writer.append(JournalRecord::UndoDone { tune: self.id, setting: held.setting.clone(), outcome })
    }

    fn tell(&mut self, held: &TrackedSetting, outcome: UndoOutcome) {
        let here = self.places.find(&held.setting).unwrap_or_else(|_| held.setting.clone());
        let renamed = here != held.setting;
        self.settings.retain(|told| told.setting != held.setting);
        self.settings.push(UndoneSetting {
            setting: held.setting.clone(),
            name: here.to_string(),
            renamed_from: renamed.then(|| self.places.name_before(&held.setting)).flatten(),
            first: held.first.clone(),
            outcome,
        });
    }
}

/// How many receive queues a value of channels makes; none where it is no such value.
fn receive_channels(value: Option<&SettingValue>) -> Option<u32> {
    let words: Vec<&str> = value?.as_str().split_whitespace().collect();
    let counts = words.chunks(2).filter(|pair| pair.first().is_some_and(|name| *name != "tx"));
    counts.map(|pair| pair.get(1)?.parse::<u32>().ok()).sum()
}

/// The latest tune after this one that is in force and left the setting at this value.
pub(crate) fn later_holder(
    tunes: &[RecordedTune],
    tune: u64,
    setting: &Setting,
    now: &SettingValue,
) -> Option<u64> {
    let as_left = |later: &&RecordedTune| holds(later, setting).is_some_and(|held| held.expects(now));
    tunes.iter().rev().take_while(|later| later.begun.tune > tune).find(as_left).map(|later| later.begun.tune)
}

/// The setting, where a tune in force changed it.
fn holds<'a>(tune: &'a RecordedTune, setting: &Setting) -> Option<&'a TrackedSetting> {
    let held = tune.held(setting).filter(|_| tune.is_open())?;
    (held.wanted.is_some() && held.is_in_effect()).then_some(held)
}

fn failure(error: &SettingError, found: Option<SettingValue>) -> UndoOutcome {
    let why = error.reason();
    if error.is_gone() { UndoOutcome::Gone { why } } else { UndoOutcome::Failed { why, found } }
}
