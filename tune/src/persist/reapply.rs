//! Applies persisted settings again: at boot, and when a device appears or a program is restarted.

use std::fmt;
use std::time::{Duration, Instant};

use linerate_host::{Host, HostError, Setting, SettingValue};
use serde::Serialize;

use super::PersistedSettings;
use super::context::BootHost;
use super::document::PersistedSetting;
use crate::NamedDevice;
use crate::conflicts::{self, SettingOwners};
use crate::journal::record::UndoReason;
use crate::journal::{JournalWriter, RecordedTune, StateStore};
use crate::plan::{ChangeImpact, PlannedChange, TunePlan};
use crate::transaction::{
    ChangeOutcome, SettingLocations, TuneError, TuneStart, TuneTransaction, boot_id, undo, undo_overdue,
};

/// The goal of the resulting tune.
pub const GOAL: &str = "persisted";

/// Time to end tunes of earlier boots. A later run ends the others.
const CLEANUP_TIME: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReapplyResult {
    /// Number of the tune; `None` if all settings were in effect.
    pub tune: Option<u64>,
    /// In the order in which they were made.
    pub settings: Vec<ReappliedSetting>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReappliedSetting {
    /// The setting in words, with the names of this boot if its device is present.
    pub name: String,
    pub value: SettingValue,
    pub outcome: ReapplyOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReapplyOutcome {
    Already,
    Made {
        from: SettingValue,
    },
    /// Its device is absent. The setting is applied when the device appears.
    Absent {
        why: String,
    },
    /// Skipped because another program would revert it.
    Left {
        /// The program, and commands to reconfigure it.
        why: String,
    },
    /// Refused or not readable.
    Refused {
        why: String,
    },
}

impl ReapplyResult {
    /// Whether a setting of a present device is not in effect.
    pub fn has_failures(&self) -> bool {
        self.settings.iter().any(|setting| {
            matches!(setting.outcome, ReapplyOutcome::Left { .. } | ReapplyOutcome::Refused { .. })
        })
    }
}

impl fmt::Display for ReappliedSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, outcome } = self;
        match outcome {
            ReapplyOutcome::Already => write!(f, "{name}: is {value} already"),
            ReapplyOutcome::Made { from } => write!(f, "{name}: {from} -> {value}"),
            ReapplyOutcome::Absent { why } => write!(f, "{name}: not set, {why}"),
            ReapplyOutcome::Left { why } | ReapplyOutcome::Refused { why } => {
                write!(f, "{name}: not set to {value}: {why}")
            }
        }
    }
}

/// Applies the settings of a document: all, or those of the interface with the current name `only`.
/// If all are in effect, nothing is written. It waits only for another process that changes
/// settings.
///
/// # Errors
/// [`TuneError`] if the host or the journal cannot be read or written. A refused setting is a
/// [`ReapplyOutcome`].
pub fn reapply(
    store: &StateStore,
    host: &Host,
    document: &PersistedSettings,
    only: Option<&str>,
    argv: Vec<String>,
) -> Result<ReapplyResult, TuneError> {
    let mut document = document.clone();
    // A link reset would reset settings before it.
    document.settings.sort_by_key(|persisted| !resets_link(&persisted.setting));
    let options = ReapplyOptions { document: &document, only };
    let mut idle_result = ReapplyResult::default();
    let mut is_idle = true;
    for part in options.parts() {
        let (plan, settled) = options.plan_part(&BootHost::observe(host)?, part);
        is_idle &= plan.changes.is_empty() && plan.exclusions.is_empty();
        idle_result.settings.extend(settled);
    }
    if is_idle {
        return Ok(idle_result);
    }
    let mut writer = store.lock_waiting()?;
    undo_overdue(&mut writer, host)?;
    end_earlier_boots(&mut writer, host)?;
    let begin = TuneStart { devices: options.devices(host)?, ..TuneStart::new(GOAL, argv) };
    let mut transaction = TuneTransaction::begin(&mut writer, host, begin)?;
    let mut result = ReapplyResult { tune: Some(transaction.id()), settings: Vec::new() };
    for part in options.parts() {
        // A link reset changes queues and vectors, so each part is resolved after the previous
        // part.
        let (plan, settled) = options.plan_part(&BootHost::observe(host)?, part);
        result.settings.extend(settled);
        for change in plan.exclusions.iter().chain(&plan.changes) {
            result.settings.push(apply_change(&mut transaction, host, change)?);
        }
    }
    transaction.end(None)?;
    Ok(result)
}

/// Ends the tunes of earlier boots that applied persisted settings: their changes ended with the
/// boots, and each boot adds such a tune. Nothing is written to the host. A tune stays open if a
/// setting has its value in this boot, too, because its undo would change that.
fn end_earlier_boots(writer: &mut JournalWriter, host: &Host) -> Result<(), TuneError> {
    let boot = boot_id(host)?;
    let has_ended = |tune: &&RecordedTune| {
        let locations = SettingLocations::observe(host, tune, Some(&boot));
        tune.tracked.iter().all(|tracked| {
            match locations.find(&tracked.setting).map(|setting| setting.read(host)) {
                Ok(Ok(now)) => tracked.setting.same(&tracked.original, &now) || !tracked.expects(&now),
                Ok(Err(error)) => error.is_gone(),
                Err(_) => true,
            }
        })
    };
    let tunes = writer.tunes().iter().rev();
    let candidates = tunes.filter(|tune| tune.is_open() && tune.begun.goal == GOAL);
    let earlier_tunes = candidates.filter(|tune| tune.begun.is_of_earlier_boot(&boot) == Some(true));
    let ended: Vec<u64> = earlier_tunes.filter(has_ended).map(|tune| tune.begun.tune).collect();
    let begin = Instant::now();
    for tune in ended.into_iter().take_while(|_| begin.elapsed() < CLEANUP_TIME) {
        undo(writer, host, Some(tune), UndoReason::Finished)?;
    }
    Ok(())
}

fn apply_change(
    transaction: &mut TuneTransaction<'_>,
    host: &Host,
    change: &PlannedChange,
) -> Result<ReappliedSetting, TuneError> {
    let outcome = match transaction.change(host, &change.setting, &change.to) {
        Ok(ChangeOutcome::Already) => ReapplyOutcome::Already,
        Ok(ChangeOutcome::Made) => {
            let from = transaction.original(&change.setting).unwrap_or(&change.from).clone();
            ReapplyOutcome::Made { from }
        }
        Ok(ChangeOutcome::Refused { why }) => ReapplyOutcome::Refused { why },
        Err(error @ TuneError::ChangedSince { .. }) => ReapplyOutcome::Refused { why: error.to_string() },
        Err(error) => return Err(error),
    };
    Ok(reapplied_setting(&change.setting, &change.to, outcome))
}

fn reapplied_setting(setting: &Setting, value: &SettingValue, outcome: ReapplyOutcome) -> ReappliedSetting {
    ReappliedSetting { name: setting.to_string(), value: value.clone(), outcome }
}

struct ReapplyOptions<'a> {
    document: &'a PersistedSettings,
    only: Option<&'a str>,
}

impl<'a> ReapplyOptions<'a> {
    /// The settings, split after each link reset.
    fn parts(&self) -> impl Iterator<Item = &'a [PersistedSetting]> {
        self.document.settings.split_inclusive(|persisted| resets_link(&persisted.setting))
    }

    fn devices(&self, host: &Host) -> Result<Vec<NamedDevice>, HostError> {
        let boot_host = BootHost::observe(host)?;
        let names = self.document.devices.iter().filter_map(|device| boot_host.name(device));
        let names = names.filter(|name| self.only.is_none_or(|only| only == *name));
        Ok(names.filter_map(|name| NamedDevice::observe(host, &name).ok()).collect())
    }

    /// The changes of a part, and its settings that need no change or cannot be changed.
    fn plan_part(
        &self,
        boot_host: &BootHost<'_>,
        part: &[PersistedSetting],
    ) -> (TunePlan, Vec<ReappliedSetting>) {
        let mut plan = TunePlan::new(GOAL);
        let mut settled = Vec::new();
        for persisted in part {
            let interface = persisted.interface();
            let device = interface.as_deref().and_then(|name| self.document.device(name));
            let current_name = device.and_then(|device| boot_host.name(device));
            if self.only.is_some() && current_name.as_deref() != self.only {
                continue;
            }
            let setting = match boot_host.setting(persisted, device) {
                Ok(setting) => setting,
                Err(why) => {
                    let outcome = ReapplyOutcome::Absent { why };
                    settled.push(reapplied_setting(&persisted.setting, &persisted.value, outcome));
                    continue;
                }
            };
            match setting.read(boot_host.host) {
                Ok(from) => {
                    let to = persisted.value.clone();
                    plan.changes.push(PlannedChange::new(setting, from, to, "it was made to last"));
                }
                Err(error) => {
                    let outcome = ReapplyOutcome::Refused { why: error.to_string() };
                    settled.push(reapplied_setting(&setting, &persisted.value, outcome));
                }
            }
        }
        resolve_conflicts(&mut plan, &mut settled, boot_host.host);
        (plan, settled)
    }
}

// Resolves conflicts with other owners, and skips changes that they would revert. Settings in effect
// count, too: a restarted irqbalance has no ban for interrupts that are in place.
fn resolve_conflicts(plan: &mut TunePlan, settled: &mut Vec<ReappliedSetting>, host: &Host) {
    let is_in_effect = |change: &PlannedChange| change.setting.same(&change.from, &change.to);
    let is_moved_by_others = |change: &PlannedChange| matches!(change.setting, Setting::IrqAffinity { .. });
    let planned_changes = plan.changes.clone();
    let left_out =
        match planned_changes.iter().any(|change| !is_in_effect(change) || is_moved_by_others(change)) {
            true => conflicts::resolve(plan, &SettingOwners::observe(host)),
            false => Vec::new(),
        };
    plan.changes.retain(|change| !is_in_effect(change));
    for change in planned_changes {
        let left = left_out.iter().find(|left| left.setting == change.setting);
        let outcome = match (left.and_then(skip_reason), is_in_effect(&change)) {
            (None, false) => continue,
            (None, true) => ReapplyOutcome::Already,
            (Some(why), false) => ReapplyOutcome::Left { why },
            // A present value that does not last.
            (Some(why), true) => ReapplyOutcome::Left { why: format!("it has this value now, but {why}") },
        };
        settled.push(reapplied_setting(&change.setting, &change.to, outcome));
    }
}

fn skip_reason(change: &PlannedChange) -> Option<String> {
    let (reason, commands) = conflicts::revert_reason(change)?;
    Some([&[reason], commands].concat().join("; "))
}

// Whether drivers reset the interface for this setting, so that queues and vectors change.
fn resets_link(setting: &Setting) -> bool {
    ChangeImpact::of(setting) == ChangeImpact::Link
}

#[cfg(test)]
mod tests;
