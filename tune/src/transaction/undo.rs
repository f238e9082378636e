//! Undo: restores every setting of a tune unless another program changed it since.

use std::collections::BTreeMap;

use linerate_host::{CpuSet, Setting, SettingError, SettingValue};
use serde::{Deserialize, Serialize};

use super::locations::SettingLocations;
use super::{ChangeTarget, TuneError, TuneNamespace, boot_id, undo_rooms};
use crate::journal::record::{UndoOutcome, UndoReason};
use crate::journal::tune::TrackedSetting;
use crate::journal::{JournalError, JournalRecord, JournalWriter, RecordedTune};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoReport {
    pub tune: u64,
    pub why: UndoReason,
    /// The tune was made before the last boot, which ended its changes.
    pub earlier_boot: bool,
    /// In the order in which they were restored.
    pub settings: Vec<UndoneSetting>,
    /// Damaged lines of the journal that may belong to the tune: their changes are not undone.
    pub damaged_lines: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoneSetting {
    /// The setting as the tune named it.
    pub setting: Setting,
    /// The setting in words, with the present name of its interface.
    pub name: String,
    /// The former name of a renamed interface.
    pub renamed_from: Option<String>,
    /// The value before the tune.
    pub original: SettingValue,
    pub outcome: UndoOutcome,
}

impl UndoReport {
    /// Whether the host refused to restore a setting, so that the tune stays open.
    pub fn has_failures(&self) -> bool {
        self.settings.iter().any(|setting| !setting.outcome.is_final())
    }

    /// Whether a setting was skipped because another program changed it or because it is gone, or
    /// may have been skipped because a record of the tune is damaged. Settings of a process that has
    /// ended do not count: they ended with it.
    pub fn has_skipped(&self) -> bool {
        let is_skipped = |setting: &UndoneSetting| match setting.outcome {
            UndoOutcome::Drift { .. } => true,
            UndoOutcome::Gone { .. } => !ends_with_process(&setting.setting),
            _ => false,
        };
        !self.damaged_lines.is_empty() || self.settings.iter().any(is_skipped)
    }
}

/// Whether the setting needs no undo after its process has ended.
pub(crate) fn ends_with_process(setting: &Setting) -> bool {
    setting.is_of_process() || matches!(setting, Setting::IrqbalanceBans { .. })
}

/// Undoes a tune: tune `id`, or the latest tune in effect. An undo that is killed can be repeated.
///
/// # Errors
/// [`TuneError::NoSuchTune`], [`TuneError::NothingToUndo`], [`TuneError::UndoneAlready`], [`TuneError::OtherNamespace`];
/// [`TuneError::Journal`] if an intent cannot be recorded: then the setting is not written. A setting
/// that the host refuses is not an error.
pub fn undo<T: ChangeTarget>(
    writer: &mut JournalWriter,
    target: &T,
    id: Option<u64>,
    why: UndoReason,
) -> Result<UndoReport, TuneError> {
    let tune = choose(writer, id)?;
    let boot = boot_id(target.host()).ok();
    TuneNamespace::of(target.host(), &tune.begun).check_here(tune.begun.tune)?;
    writer.reserve(undo_rooms(&tune))?;
    let mut run = UndoRun {
        id: tune.begun.tune,
        places: SettingLocations::observe(target.host(), &tune, boot.as_deref()),
        kept: BTreeMap::new(),
        fitted: Vec::new(),
        settings: Vec::new(),
        writer,
        target,
    };
    run.writer.append(JournalRecord::UndoBegun { tune: run.id, why })?;
    let order = restore_order(&tune);
    run.record_foreign_values(&order)?;
    for setting in &order {
        run.fit_table(setting)?;
        run.restore_setting(setting)?;
    }
    let earlier_boot = boot.and_then(|boot| tune.begun.is_of_earlier_boot(&boot)) == Some(true);
    // The threads of an earlier boot are gone, and their ids belong to others.
    if !earlier_boot {
        run.restore_inherited(&tune);
    }
    run.restore_reset_settings(&order)?;
    run.report_earlier_skips();
    run.writer.append(JournalRecord::UndoEnded { tune: run.id })?;
    let (settings, damaged_lines) = (run.settings, tune.damaged_lines);
    Ok(UndoReport { tune: run.id, why, earlier_boot, settings, damaged_lines })
}

fn choose(writer: &JournalWriter, id: Option<u64>) -> Result<RecordedTune, TuneError> {
    let Some(id) = id else {
        let latest = writer.tunes().iter().rev().find(|tune| tune.is_open());
        return latest.cloned().ok_or(TuneError::NothingToUndo);
    };
    let tune = writer.tune(id).ok_or(TuneError::NoSuchTune { tune: id })?;
    if tune.is_undone() { Err(TuneError::UndoneAlready { tune: id }) } else { Ok(tune.clone()) }
}

/// The settings to restore, in reverse order of their first changes.
fn restore_order(tune: &RecordedTune) -> Vec<Setting> {
    let position = |setting: &Setting| tune.tracked.iter().position(|tracked| tracked.setting == *setting);
    let is_to_restore = |(at, tracked): &(usize, &TrackedSetting)| {
        // A setting that a change created disappears with it.
        let was_created = tracked.depends_on.iter().any(|with| position(with).is_some_and(|with| with < *at));
        tracked.is_to_undo(tune) && (tracked.wanted.is_some() || !was_created)
    };
    let mut order: Vec<_> = tune.tracked.iter().enumerate().filter(is_to_restore).collect();
    order.reverse();
    order.into_iter().map(|(_, tracked)| tracked.setting.clone()).collect()
}

struct UndoRun<'a, T> {
    writer: &'a mut JournalWriter,
    target: &'a T,
    id: u64,
    places: SettingLocations<'a>,
    /// Values that other programs or later tunes set and that undoing a change may reset.
    kept: BTreeMap<Setting, SettingValue>,
    /// Tables that were restored before the channels.
    fitted: Vec<Setting>,
    settings: Vec<UndoneSetting>,
}

impl<T: ChangeTarget> UndoRun<'_, T> {
    /// Records the values that other programs and later tunes set, before undoing a change of channels
    /// resets them.
    fn record_foreign_values(&mut self, order: &[Setting]) -> Result<(), JournalError> {
        for setting in order {
            let Some(tracked) = self.dependent(setting) else { continue };
            let Some((_, now)) = self.current(setting) else { continue };
            let outcome = match (&tracked.outcome, self.covering_tune(&tracked, &now)) {
                (Some(UndoOutcome::Drift { .. } | UndoOutcome::Covered { .. }), _) => None,
                (_, Some(by)) => Some(UndoOutcome::Covered { by }),
                (_, None) if !is_drift(&tracked, &now) => continue,
                // irqbalance moves interrupts all the time, those without a queue, too. The tune did not set it.
                (_, None) if is_moved_interrupt(&tracked) => None,
                (_, None) => Some(UndoOutcome::Drift { found: now.clone() }),
            };
            self.kept.insert(setting.clone(), now);
            if let Some(outcome) = outcome {
                self.finish(&tracked, outcome)?;
            }
        }
        Ok(())
    }

    // The kernel refuses fewer channels while the indirection table names queues that would go
    // (`ethtool_check_max_channel`, net/ethtool/common.c, Linux 6.18). Therefore the table is restored
    // first if it fits both counts, and again after the channels, because drivers reset it. It is
    // written again even if they do not, because it may be the default table only of fewer channels:
    // a default table must not count as the user's (`set_table` of host/src/sys/ethtool/receive.rs).
    fn fit_table(&mut self, setting: &Setting) -> Result<(), JournalError> {
        let Setting::Channels { interface } = setting else { return Ok(()) };
        let table = Setting::RssTable { interface: interface.clone() };
        let original = self.tracked(setting).map(|tracked| tracked.original.clone());
        let now = self.current(setting).map(|(_, now)| now);
        let shrinks = receive_channels(original.as_ref()) < receive_channels(now.as_ref());
        if shrinks && !self.kept.contains_key(&table) && self.tracked(&table).is_some() {
            self.restore_setting(&table)?;
            let outcome = self.tracked(&table).and_then(|tracked| tracked.outcome.as_ref());
            if outcome == Some(&UndoOutcome::Restored) {
                self.fitted.push(table);
            }
        }
        Ok(())
    }

    /// Reports the settings that an earlier, killed undo skipped.
    fn report_earlier_skips(&mut self) {
        let Some(tune) = self.writer.tune(self.id).cloned() else { return };
        for tracked in &tune.tracked {
            let is_reported = self.settings.iter().any(|reported| reported.setting == tracked.setting);
            if let (Some(outcome @ (UndoOutcome::Drift { .. } | UndoOutcome::Gone { .. })), false) =
                (&tracked.outcome, is_reported)
            {
                self.report_setting(tracked, outcome.clone());
            }
        }
    }

    /// Threads that started later inherited the CPUs of their parents. They are not journalled: a
    /// repeated undo finds them again. Threads that another tune pinned since keep their CPUs.
    fn restore_inherited(&mut self, tune: &RecordedTune) {
        for (setting, original) in super::inherited_cpus::inherited(self.target.host(), tune) {
            if self.writer.tunes().iter().any(|tune| held_setting(tune, &setting).is_some()) {
                continue;
            }
            let outcome = write_original(self.target, &setting, &original);
            let name = setting.to_string();
            self.settings.push(UndoneSetting { setting, name, renamed_from: None, original, outcome });
        }
    }

    /// Restores settings again that a later restoration reset. A tune that is not fully restored
    /// stays open.
    fn restore_reset_settings(&mut self, order: &[Setting]) -> Result<(), JournalError> {
        for setting in order {
            let Some(tracked) = self.dependent(setting) else { continue };
            let is_back = tracked.outcome.as_ref().is_none_or(UndoOutcome::is_back);
            if self.kept.contains_key(setting) || !is_back {
                continue;
            }
            if let Some((current_setting, now)) = self.current(setting)
                && (self.fitted.contains(setting) || !setting.same(&tracked.original, &now))
            {
                self.restore(&tracked, &current_setting, now)?;
            }
        }
        Ok(())
    }

    fn restore_setting(&mut self, setting: &Setting) -> Result<(), JournalError> {
        if let Some(value) = self.kept.get(setting) {
            self.restore_foreign_value(setting, value);
            return Ok(());
        }
        let Some(tracked) = self.tracked(setting).cloned() else { return Ok(()) };
        let current_setting = match self.places.find(setting) {
            Ok(current_setting) => current_setting,
            Err(why) => return self.finish(&tracked, UndoOutcome::Gone { why }),
        };
        let now = match self.target.read(&current_setting) {
            Ok(now) => now,
            Err(error) => return self.finish(&tracked, failed_outcome(&error, None)),
        };
        if let Some(by) = self.covering_tune(&tracked, &now) {
            return self.finish(&tracked, UndoOutcome::Covered { by });
        }
        if now == tracked.original {
            return self.finish(&tracked, UndoOutcome::Already);
        }
        if is_drift(&tracked, &now) {
            return self.finish(&tracked, UndoOutcome::Drift { found: now });
        }
        if !tracked.expects(&now) {
            return self.finish(&tracked, UndoOutcome::Already);
        }
        self.restore(&tracked, &current_setting, now)
    }

    fn restore(
        &mut self,
        tracked: &TrackedSetting,
        current_setting: &Setting,
        now: SettingValue,
    ) -> Result<(), JournalError> {
        self.writer.append(JournalRecord::UndoIntent {
            tune: self.id,
            setting: tracked.setting.clone(),
            from: now,
            to: tracked.original.clone(),
        })?;
        let outcome = write_original(self.target, current_setting, &tracked.original);
        self.finish(tracked, outcome)
    }

    /// Writes a value of another program again after the undo of a change reset it.
    fn restore_foreign_value(&self, setting: &Setting, value: &SettingValue) {
        if let Some((current_setting, now)) = self.current(setting)
            && now != *value
        {
            // The report has it as drift, except interrupts that irqbalance moves. If it cannot be
            // set any more, its queue or device is gone.
            let _ = self.target.write(&current_setting, value);
        }
    }

    /// The first later tune that changed or reset the setting, if a later tune set the current value.
    fn covering_tune(&self, tracked: &TrackedSetting, now: &SettingValue) -> Option<u64> {
        let tunes = self.writer.tunes();
        later_holder(tunes, self.id, &tracked.setting, now)?;
        let has_changed = |later: &&RecordedTune| {
            later.begun.tune > self.id && held_setting(later, &tracked.setting).is_some()
        };
        tunes.iter().find(has_changed).map(|later| later.begun.tune)
    }

    fn tracked(&self, setting: &Setting) -> Option<&TrackedSetting> {
        self.writer.tune(self.id)?.tracked(setting)
    }

    /// A setting that another change of the tune may reset.
    fn dependent(&self, setting: &Setting) -> Option<TrackedSetting> {
        self.tracked(setting).filter(|tracked| !tracked.depends_on.is_empty()).cloned()
    }

    /// A setting under its current name, and its value, if it can be read.
    fn current(&self, setting: &Setting) -> Option<(Setting, SettingValue)> {
        let current_setting = self.places.find(setting).ok()?;
        let now = self.target.read(&current_setting).ok()?;
        Some((current_setting, now))
    }

    fn finish(&mut self, tracked: &TrackedSetting, outcome: UndoOutcome) -> Result<(), JournalError> {
        // A setting that was only reset and is back by itself needs no record.
        if tracked.wanted.is_none() && outcome == UndoOutcome::Already {
            return Ok(());
        }
        self.report_setting(tracked, outcome.clone());
        self.writer.append(JournalRecord::UndoDone {
            tune: self.id,
            setting: tracked.setting.clone(),
            outcome,
        })
    }

    fn report_setting(&mut self, tracked: &TrackedSetting, outcome: UndoOutcome) {
        let current_setting = self.places.find(&tracked.setting).unwrap_or_else(|_| tracked.setting.clone());
        let is_renamed = current_setting != tracked.setting;
        self.settings.retain(|reported| reported.setting != tracked.setting);
        self.settings.push(UndoneSetting {
            setting: tracked.setting.clone(),
            name: current_setting.to_string(),
            renamed_from: is_renamed.then(|| self.places.former_name(&tracked.setting)).flatten(),
            original: tracked.original.clone(),
            outcome,
        });
    }
}

/// Whether a value that no later tune set is that of another program: neither the original nor the
/// tune's.
fn is_drift(tracked: &TrackedSetting, now: &SettingValue) -> bool {
    !tracked.expects(now) && !tracked.setting.same(&tracked.original, now)
}

fn is_moved_interrupt(tracked: &TrackedSetting) -> bool {
    tracked.wanted.is_none() && matches!(tracked.setting, Setting::IrqAffinity { .. })
}

/// The number of receive queues of a channels value.
fn receive_channels(value: Option<&SettingValue>) -> Option<u32> {
    let words: Vec<&str> = value?.as_str().split_whitespace().collect();
    let counts = words.chunks(2).filter(|pair| pair.first().is_some_and(|name| *name != "tx"));
    counts.map(|pair| pair.get(1)?.parse::<u32>().ok()).sum()
}

/// The latest tune after `tune` that is in effect and set this value.
pub(crate) fn later_holder(
    tunes: &[RecordedTune],
    tune: u64,
    setting: &Setting,
    now: &SettingValue,
) -> Option<u64> {
    let has_left_value =
        |later: &&RecordedTune| held_setting(later, setting).is_some_and(|tracked| tracked.expects(now));
    tunes
        .iter()
        .rev()
        .take_while(|later| later.begun.tune > tune)
        .find(has_left_value)
        .map(|later| later.begun.tune)
}

/// The setting, if a tune in effect changed or reset it.
fn held_setting<'a>(tune: &'a RecordedTune, setting: &Setting) -> Option<&'a TrackedSetting> {
    let tracked = tune.tracked(setting).filter(|_| tune.is_open())?;
    tracked.is_in_effect().then_some(tracked)
}

fn write_original<T: ChangeTarget>(target: &T, setting: &Setting, original: &SettingValue) -> UndoOutcome {
    let Err(error) = target.write(setting, original) else { return UndoOutcome::Restored };
    match target.read(setting) {
        // The kernel chooses the CPU of a managed interrupt, and refuses writes (`write_irq_affinity` of
        // kernel/irq/proc.c, Linux 6.18).
        Ok(found) if setting.same(original, &found) => UndoOutcome::Already,
        _ if is_narrowed(setting, original, &error) => UndoOutcome::Restored,
        found => failed_outcome(&error, found.ok()),
    }
}

/// Whether a thread has as many of these CPUs as its cpuset allows: the kernel accepts a list and leaves
/// out the others (`__sched_setaffinity` of kernel/sched/syscalls.c, Linux 6.18).
fn is_narrowed(setting: &Setting, cpus: &SettingValue, error: &SettingError) -> bool {
    let found = error.found().and_then(|found| CpuSet::from_list(found).ok());
    matches!(setting, Setting::ThreadCpus { .. })
        && found.zip(CpuSet::from_list(cpus.as_str()).ok()).is_some_and(|(found, requested)| {
            !found.is_empty() && found.iter().all(|cpu| requested.contains(cpu))
        })
}

fn failed_outcome(error: &SettingError, found: Option<SettingValue>) -> UndoOutcome {
    let why = error.reason();
    if error.is_gone() { UndoOutcome::Gone { why } } else { UndoOutcome::Failed { why, found } }
}
