//! The host that a tune changes.

use linerate_host::{Host, HostError, Setting, SettingError, SettingValue};

use super::dependents;
use crate::NamedDevice;
use crate::device::DeviceStatus;

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

    /// The id of the running boot.
    fn boot(&self) -> Result<String, HostError> {
        Ok(self.host().read("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
    }

    /// The device that has this name now.
    fn device(&self, interface: &str) -> Result<NamedDevice, HostError> {
        NamedDevice::observe(self.host(), interface)
    }

    /// Fails with the reason if a device does not have its name any more.
    fn must_be_in_place(&self, device: &NamedDevice) -> Result<(), String> {
        let name = &device.interface;
        match device.status(self.host()) {
            Ok(DeviceStatus::Same) => Ok(()),
            Ok(DeviceStatus::Renamed(new_name)) => Err(format!("{name} was renamed to {new_name}")),
            Ok(DeviceStatus::Gone) => Err(format!("{name} is gone")),
            Ok(DeviceStatus::Replaced) => Err(format!("{name} is another device now")),
            Err(error) => Err(error.to_string()),
        }
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
