//! Applies persisted settings again: at boot, and when a device appears or a program is restarted.

use std::fmt;

use linerate_host::{Host, HostError, Setting, SettingValue};
use serde::Serialize;

use super::PersistedSettings;
use super::context::BootHost;
use super::document::PersistedSetting;
use crate::NamedDevice;
use crate::conflicts::{self, SettingOwners};
use crate::journal::StateStore;
use crate::plan::{self, ChangeImpact, PlannedChange, TunePlan};
use crate::transaction::{ChangeResult, TuneError, TuneStart, TuneTransaction, undo_overdue};

/// The goal of the resulting tune.
pub const GOAL: &str = "persisted";

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
    #[must_use]
    pub fn has_failures(&self) -> bool {
        self.settings
            .iter()
            .any(|one| matches!(one.outcome, ReapplyOutcome::Left { .. } | ReapplyOutcome::Refused { .. }))
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

/// Settings of the document up to a link reset, on this host.
struct ReapplyPart {
    plan: TunePlan,
    // Settings that need no change or cannot be changed.
    settled: Vec<ReappliedSetting>,
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
    let wanted = ReapplyOptions { document, only };
    let mut idle = ReapplyResult::default();
    let mut is_idle = true;
    for part in wanted.parts() {
        let work = wanted.work(&BootHost::observe(host)?, part);
        is_idle &= work.plan.changes.is_empty() && work.plan.exclusions.is_empty();
        idle.settings.extend(work.settled);
    }
    if is_idle {
        return Ok(idle);
    }
    let mut writer = store.lock_waiting()?;
    undo_overdue(&mut writer, host)?;
    let begin = TuneStart { devices: wanted.devices(host)?, ..TuneStart::new(GOAL, argv) };
    let mut transaction = TuneTransaction::begin(&mut writer, host, begin)?;
    let mut done = ReapplyResult { tune: Some(transaction.id()), settings: Vec::new() };
    for part in wanted.parts() {
        // A link reset changes queues and vectors, so each part is resolved after the previous
        // part.
        let work = wanted.work(&BootHost::observe(host)?, part);
        done.settings.extend(work.settled);
        for change in work.plan.exclusions.iter().chain(&work.plan.changes) {
            done.settings.push(make(&mut transaction, host, change)?);
        }
    }
    transaction.end(None)?;
    Ok(done)
}

fn make(
    transaction: &mut TuneTransaction<'_>,
    host: &Host,
    change: &PlannedChange,
) -> Result<ReappliedSetting, TuneError> {
    let outcome = match transaction.change(host, &change.setting, &change.to) {
        Ok(ChangeResult::Already) => ReapplyOutcome::Already,
        Ok(ChangeResult::Made { from }) => ReapplyOutcome::Made { from },
        Ok(ChangeResult::Refused { why }) => ReapplyOutcome::Refused { why },
        Err(error @ TuneError::ChangedSince { .. }) => ReapplyOutcome::Refused { why: error.to_string() },
        Err(error) => return Err(error),
    };
    Ok(told(&change.setting, &change.to, outcome))
}

fn told(setting: &Setting, value: &SettingValue, outcome: ReapplyOutcome) -> ReappliedSetting {
    ReappliedSetting { name: setting.to_string(), value: value.clone(), outcome }
}

struct ReapplyOptions<'a> {
    document: &'a PersistedSettings,
    only: Option<&'a str>,
}

impl<'a> ReapplyOptions<'a> {
    /// The settings, split after each link reset.
    fn parts(&self) -> impl Iterator<Item = &'a [PersistedSetting]> {
        self.document.settings.split_inclusive(|lasting| resets_link(&lasting.setting))
    }

    /// The present devices.
    fn devices(&self, host: &Host) -> Result<Vec<NamedDevice>, HostError> {
        let arrival = BootHost::observe(host)?;
        let there = self.document.devices.iter().filter_map(|device| arrival.name(device));
        let there = there.filter(|name| self.only.is_none_or(|only| only == *name));
        Ok(there.filter_map(|name| NamedDevice::observe(host, &name).ok()).collect())
    }

    /// The changes that a part requires.
    fn work(&self, arrival: &BootHost<'_>, part: &[PersistedSetting]) -> ReapplyPart {
        let mut plan = TunePlan::new(GOAL);
        let mut settled = Vec::new();
        for lasting in part {
            let interface = lasting.interface();
            let device = interface.as_deref().and_then(|name| self.document.device(name));
            let now = device.and_then(|device| arrival.name(device));
            if self.only.is_some() && now.as_deref() != self.only {
                continue;
            }
            let setting = match arrival.setting(lasting, device) {
                Ok(setting) => setting,
                Err(why) => {
                    settled.push(told(&lasting.setting, &lasting.value, ReapplyOutcome::Absent { why }));
                    continue;
                }
            };
            match setting.read(arrival.host()) {
                Ok(from) => plan.changes.push(change(setting, from, lasting.value.clone())),
                Err(error) => {
                    let outcome = ReapplyOutcome::Refused { why: error.to_string() };
                    settled.push(told(&setting, &lasting.value, outcome));
                }
            }
        }
        agree(&mut plan, &mut settled, arrival.host());
        ReapplyPart { plan, settled }
    }
}

fn change(setting: Setting, from: SettingValue, to: SettingValue) -> PlannedChange {
    // The finding is the setting, by which a skipped change is found.
    let findings = vec![setting.to_string()];
    PlannedChange { findings, ..PlannedChange::new(setting, from, to, "it was made to last") }
}

// Resolves conflicts with other owners, and skips changes that they would revert. Settings in effect
// count, too: a restarted irqbalance has no ban for interrupts that are in place.
fn agree(plan: &mut TunePlan, settled: &mut Vec<ReappliedSetting>, host: &Host) {
    let is_so = |change: &PlannedChange| change.setting.same(&change.from, &change.to);
    let of_others = |change: &PlannedChange| matches!(change.setting, Setting::IrqAffinity { .. });
    let wanted = plan.changes.clone();
    if wanted.iter().any(|change| !is_so(change) || of_others(change)) {
        conflicts::resolve(plan, &SettingOwners::observe(host));
    }
    plan.changes.retain(|change| !is_so(change));
    for change in wanted {
        if is_so(&change) {
            settled.push(told(&change.setting, &change.to, ReapplyOutcome::Already));
        } else if plan.changes.iter().all(|kept| kept.setting != change.setting) {
            let why = why_left(plan, &change);
            settled.push(told(&change.setting, &change.to, ReapplyOutcome::Left { why }));
        }
    }
}

fn why_left(plan: &TunePlan, change: &PlannedChange) -> String {
    let left = plan.skipped.iter().find(|left| change.findings.contains(&left.finding));
    left.map_or_else(
        || "another program sets it".to_owned(),
        |left| {
            if left.commands.is_empty() {
                left.why.clone()
            } else {
                format!("{}; {}", left.why, left.commands.join("; "))
            }
        },
    )
}

// Whether drivers reset the interface for this setting, so that queues and vectors change.
fn resets_link(setting: &Setting) -> bool {
    plan::interrupts(setting) == ChangeImpact::Link
}

#[cfg(test)]
mod tests;
