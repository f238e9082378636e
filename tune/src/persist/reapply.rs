//! Putting in force again what was made to last: at boot, and when a device or a program comes again.

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

/// The goal of the tune that is made of it.
pub const GOAL: &str = "persisted";

/// What became of the settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReapplyResult {
    /// Number of the tune that it was; none where nothing was to be changed.
    pub tune: Option<u64>,
    /// Each setting, in the order in which they were made.
    pub settings: Vec<ReappliedSetting>,
}

/// What became of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReappliedSetting {
    /// The setting in words, by the names of this boot where it is there.
    pub name: String,
    /// What it is to be.
    pub value: SettingValue,
    /// What became of it.
    pub outcome: ReapplyOutcome,
}

/// What became of a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReapplyOutcome {
    /// It was so already.
    Already,
    Made {
        from: SettingValue,
    },
    /// Its device is not there. When it appears, it is set then.
    Absent {
        /// Why this is thought.
        why: String,
    },
    /// It was left, since somebody else would take it back.
    Left {
        /// Who, and what a person could type.
        why: String,
    },
    /// It was refused, or cannot be read.
    Refused {
        why: String,
    },
}

impl ReapplyResult {
    /// Whether a setting of a device that is there is not in force.
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

/// A part of the document on this host.
struct ReapplyPart {
    /// What is to be changed.
    plan: TunePlan,
    /// What became of the settings that are not.
    settled: Vec<ReappliedSetting>,
}

/// Puts the settings of a document in force: of the interface `only`, by its name of now, or all of them. What is so already
/// is left, and if all is, nothing is written at all. It waits for nothing but another process that changes settings.
///
/// # Errors
/// [`TuneError`] where the host tells nothing, or the journal cannot announce a change. What the host refuses is no error but
/// an [`ReapplyOutcome`].
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
        is_idle &= work.plan.changes.is_empty() && work.plan.agreements.is_empty();
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
        // A reset of the link gives others queues and vectors: each part is looked up when those before it are made.
        let work = wanted.work(&BootHost::observe(host)?, part);
        done.settings.extend(work.settled);
        for change in work.plan.agreements.iter().chain(&work.plan.changes) {
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

/// What is asked for.
struct ReapplyOptions<'a> {
    document: &'a PersistedSettings,
    only: Option<&'a str>,
}

impl<'a> ReapplyOptions<'a> {
    /// The settings, cut after each that resets a link.
    fn parts(&self) -> impl Iterator<Item = &'a [PersistedSetting]> {
        self.document.settings.split_inclusive(|lasting| resets_link(&lasting.setting))
    }

    /// The devices that are there.
    fn devices(&self, host: &Host) -> Result<Vec<NamedDevice>, HostError> {
        let arrival = BootHost::observe(host)?;
        let there = self.document.devices.iter().filter_map(|device| arrival.name(device));
        let there = there.filter(|name| self.only.is_none_or(|only| only == *name));
        Ok(there.filter_map(|name| NamedDevice::observe(host, &name).ok()).collect())
    }

    /// What a part takes to be in force.
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

/// Has others leave alone what is set, and leaves out what they would take back. What is so already is told, after it was
/// taken into account: an irqbalance that was started again does not know of the interrupts that are in their places.
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
    let left = plan.left.iter().find(|left| change.findings.contains(&left.finding));
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

/// After these, queues and vectors are others: drivers reset the interface for them.
fn resets_link(setting: &Setting) -> bool {
    plan::interrupts(setting) == ChangeImpact::Link
}

#[cfg(test)]
mod tests;
