//! What of the tunes in force is to last.

use linerate_host::{Host, Setting, SettingValue};

use crate::TunePlan;
use crate::device::DeviceStatus;
use crate::journal::{JournalError, StateStore};
use crate::status::{JournalStatus, SettingState, TuneStatus};

/// The settings of the tunes that are in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActiveSettings {
    /// The settings by the names of now, and what they were set to, in the order in which that was done.
    pub settings: Vec<(Setting, SettingValue)>,
    /// Settings of these tunes that are not as they were left, in words: they are not made to last.
    pub others: Vec<String>,
    /// The goals of these tunes.
    pub goals: Vec<String>,
    /// Number of the latest of them; none where no tune is in force.
    pub tune: Option<u64>,
    /// A tune among them that may yet undo itself: it should be confirmed, or undone, before anything lasts.
    pub pending: Option<u64>,
}

impl ActiveSettings {
    /// What a status says, and what the plans of its tunes found to be right already: a difference
    /// would be made again only where the next boot finds the rest as this one did.
    ///
    /// # Errors
    /// [`JournalError`] where a plan that was kept cannot be read.
    pub fn of(status: &JournalStatus, host: &Host, store: &StateStore) -> Result<Self, JournalError> {
        let mut found = Self::default();
        for tune in &status.tunes {
            found.take(tune, host);
        }
        for tune in &status.tunes {
            if let Some(plan) = store.plan(tune.tune)? {
                found.take_target(tune, &plan, host);
            }
        }
        Ok(found)
    }

    fn take_target(&mut self, tune: &TuneStatus, plan: &TunePlan, host: &Host) {
        for target in &plan.target {
            let setting = named_now(&target.setting, tune, host);
            let is_known = self.settings.iter().any(|(known, _)| *known == setting);
            // What somebody changed since is theirs.
            if !is_known && setting.read(host).is_ok_and(|now| setting.same(&now, &target.value)) {
                self.settings.push((setting, target.value.clone()));
            }
        }
    }

    fn take(&mut self, tune: &TuneStatus, host: &Host) {
        self.tune = Some(tune.tune);
        self.pending = self.pending.or(tune.until.map(|_| tune.tune));
        if !self.goals.contains(&tune.goal) {
            self.goals.push(tune.goal.clone());
        }
        for one in &tune.settings {
            match (&one.state, &one.to) {
                (SettingState::InForce, Some(to)) => {
                    let setting = named_now(&one.setting, tune, host);
                    // What two tunes set alike was in force first when the first did.
                    if self.settings.iter().all(|(known, _)| *known != setting) {
                        self.settings.push((setting, to.clone()));
                    }
                }
                (SettingState::Drifted, Some(to)) => {
                    self.others.push(format!("{}: set to {to}, and somebody changed it since", one.name));
                }
                (SettingState::Gone { why } | SettingState::Unknown { why }, Some(to)) => {
                    self.others.push(format!("{}: set to {to}, and now {why}", one.name));
                }
                _ => {}
            }
        }
    }
}

/// An index means a device in its boot only; of another, the setting was found in force by its name.
fn named_now(setting: &Setting, tune: &TuneStatus, host: &Host) -> Setting {
    let interface = setting.interface().filter(|_| tune.earlier_boot == Some(false));
    let device = interface.and_then(|name| tune.devices.iter().find(|device| device.interface == name));
    match device.map(|device| device.whereabouts(host)) {
        Some(Ok(DeviceStatus::Renamed(now))) => setting.on_interface(&now),
        _ => setting.clone(),
    }
}
