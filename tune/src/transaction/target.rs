//! What changes are made to.

use linerate_host::{Host, HostError, Setting, SettingError, SettingValue};

use super::shape;
use crate::NamedDevice;
use crate::device::DeviceStatus;

/// What changes are made to: a host, or one that tells of each read and write.
pub trait ChangeTarget {
    fn host(&self) -> &Host;

    /// Reads a setting.
    ///
    /// # Errors
    /// As [`Setting::read`].
    fn read(&self, setting: &Setting) -> Result<SettingValue, SettingError> {
        setting.read(self.host())
    }

    /// Writes a setting and reads it back.
    ///
    /// # Errors
    /// As [`Setting::write`].
    fn write(&self, setting: &Setting, value: &SettingValue) -> Result<(), SettingError> {
        setting.write(self.host(), value)
    }

    /// The running boot.
    ///
    /// # Errors
    /// [`HostError`] where the host does not tell.
    fn boot(&self) -> Result<String, HostError> {
        Ok(self.host().read("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
    }

    /// The device that has this name now.
    ///
    /// # Errors
    /// [`HostError`] where there is none.
    fn device(&self, interface: &str) -> Result<NamedDevice, HostError> {
        NamedDevice::observe(self.host(), interface)
    }

    /// Whether a device still has its name; else what became of it, in words.
    ///
    /// # Errors
    /// The words.
    fn must_be_in_place(&self, device: &NamedDevice) -> Result<(), String> {
        let name = &device.interface;
        match device.whereabouts(self.host()) {
            Ok(DeviceStatus::Same) => Ok(()),
            Ok(DeviceStatus::Renamed(now)) => Err(format!("{name} was renamed to {now}")),
            Ok(DeviceStatus::Gone) => Err(format!("{name} is gone")),
            Ok(DeviceStatus::Replaced) => Err(format!("{name} is another device now")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The settings that a change of this one resets.
    fn hanging_on(&self, setting: &Setting) -> Vec<Setting> {
        shape::hanging_on(self.host(), setting)
    }
}

impl ChangeTarget for Host {
    fn host(&self) -> &Host {
        self
    }
}
