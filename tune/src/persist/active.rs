//! The settings of the tunes in effect.

use linerate_host::{Host, Setting, SettingValue};

use crate::TunePlan;
use crate::device::DeviceStatus;
use crate::journal::{JournalError, StateStore};
use crate::status::{JournalStatus, SettingState, TuneStatus};
use crate::transaction::TuneNamespace;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActiveSettings {
    /// Settings under their current names with values, in the order in which they were made.
    pub settings: Vec<(Setting, SettingValue)>,
    /// Settings that do not have the value of the tune and will not persist, in words.
    pub others: Vec<String>,
    /// The goals of these tunes.
    pub goals: Vec<String>,
    /// Number of the latest tune in effect.
    pub tune: Option<u64>,
    /// A tune that may still undo itself: confirm or undo it before you persist.
    pub pending: Option<u64>,
}

impl ActiveSettings {
    /// The settings in a status, and the settings that already had the wanted value when its tunes
    /// were planned. Both persist, because the next boot may start from other values.
    pub fn of(status: &JournalStatus, host: &Host, store: &StateStore) -> Result<Self, JournalError> {
        let mut active = Self::default();
        for tune in &status.tunes {
            active.add_tune(tune, host);
        }
        let tunes = store.read()?.tunes();
        for tune in &status.tunes {
            // Interfaces and sysctls of another network namespace have other values here.
            let recorded = tunes.iter().find(|recorded| recorded.begun.tune == tune.tune);
            let is_here = recorded
                .is_none_or(|recorded| TuneNamespace::of(host, &recorded.begun) == TuneNamespace::Here);
            if let Some(plan) = store.plan(tune.tune)?.filter(|_| is_here) {
                active.add_targets(tune, &plan, host);
            }
        }
        Ok(active)
    }

    fn add_targets(&mut self, tune: &TuneStatus, plan: &TunePlan, host: &Host) {
        let targets = plan.target.iter().map(|target| (&target.setting, &target.value));
        // A saved plan may find that a change was made before.
        let changes = plan.changes.iter().map(|change| (&change.setting, &change.to));
        for (setting, value) in targets.chain(changes) {
            let setting = with_current_name(setting, tune, host);
            let is_known = self.settings.iter().any(|(known, _)| *known == setting);
            // A value that another program changed since does not persist.
            if !is_known && setting.read(host).is_ok_and(|current| setting.same(&current, value)) {
                self.settings.push((setting, value.clone()));
            }
        }
    }

    fn add_tune(&mut self, tune: &TuneStatus, host: &Host) {
        self.tune = Some(tune.tune);
        self.pending = self.pending.or(tune.until.map(|_| tune.tune));
        if !self.goals.contains(&tune.goal) {
            self.goals.push(tune.goal.clone());
        }
        for item in &tune.settings {
            match (&item.state, &item.to) {
                (SettingState::InEffect, Some(to)) => {
                    let setting = with_current_name(&item.setting, tune, host);
                    // If two tunes set the same value, the first one counts.
                    if self.settings.iter().all(|(known, _)| *known != setting) {
                        self.settings.push((setting, to.clone()));
                    }
                }
                (SettingState::Drifted, Some(to)) => {
                    self.others.push(format!("{}: set to {to}, and somebody changed it since", item.name));
                }
                (SettingState::EndedByBoot, Some(to)) => {
                    self.others.push(format!("{}: set to {to}, and the last boot ended it", item.name));
                }
                (
                    SettingState::Gone { why }
                    | SettingState::Unknown { why }
                    | SettingState::OtherNamespace { why },
                    Some(to),
                ) => {
                    self.others.push(format!("{}: set to {to}, and now {why}", item.name));
                }
                _ => {}
            }
        }
    }
}

/// The setting under the current name of its interface. After another boot indexes have no meaning.
fn with_current_name(setting: &Setting, tune: &TuneStatus, host: &Host) -> Setting {
    let interface = setting.interface().filter(|_| tune.earlier_boot == Some(false));
    let device = interface.and_then(|name| tune.devices.iter().find(|device| device.interface == name));
    match device.map(|device| device.status(host)) {
        Some(Ok(DeviceStatus::Renamed(current_name))) => setting.on_interface(&current_name),
        _ => setting.clone(),
    }
}
