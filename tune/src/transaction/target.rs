//! The host that a tune changes.

use linerate_host::{Host, Setting, SettingError, SettingValue};

use super::dependents;

/// The host that a tune changes. Tests implement it with failing hosts.
pub trait ChangeTarget {
    fn host(&self) -> &Host;

    fn read(&self, setting: &Setting) -> Result<SettingValue, SettingError> {
        setting.read(self.host())
    }

    /// Writes a setting and reads it back.
    fn write(&self, setting: &Setting, value: &SettingValue) -> Result<(), SettingError> {
        setting.write(self.host(), value)
    }

    /// The settings that a change of this one resets.
    fn dependents(&self, setting: &Setting) -> Vec<Setting> {
        dependents::dependents(self.host(), setting)
    }
}

impl ChangeTarget for Host {
    fn host(&self) -> &Host {
        self
    }
}
