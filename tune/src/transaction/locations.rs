//! The current names of a tune's devices and interrupts.

use linerate_host::{Host, Setting};

use super::namespace::{self, TuneNamespace};
use crate::device::DeviceStatus;
use crate::journal::RecordedTune;

#[derive(Debug)]
pub(crate) struct SettingLocations<'h> {
    host: &'h Host,
    /// Interfaces that were renamed or are gone, with the new name, or why they are gone.
    moved: Vec<(String, Result<String, String>)>,
    /// Physical interfaces of a namespace that is gone. The kernel moved them to the initial one
    /// (default_device_exit_net of net/core/dev.c).
    returned: Vec<String>,
    pub(crate) namespace: TuneNamespace,
}

impl<'h> SettingLocations<'h> {
    pub(crate) fn observe(host: &'h Host, tune: &RecordedTune, boot: Option<&str>) -> Self {
        let same_boot = boot == Some(tune.begun.boot.as_str());
        let locate = |device: &crate::NamedDevice| {
            let name = device.interface.clone();
            let status = if same_boot { device.status(host) } else { device.status_in_later_boot(host) };
            let location = match status {
                // If interfaces cannot be listed, reading the setting reports the reason.
                Ok(DeviceStatus::Same) | Err(_) => return None,
                Ok(DeviceStatus::Renamed(new_name)) => Ok(new_name),
                Ok(DeviceStatus::Gone) => Err(format!("there is no interface {name} any more")),
                Ok(DeviceStatus::Replaced) => Err(format!("{name} is another device now")),
            };
            Some((name, location))
        };
        let namespace = TuneNamespace::of(host, &tune.begun);
        let is_gone = matches!(namespace, TuneNamespace::Gone { .. });
        let devices = &tune.begun.devices;
        let returned = devices.iter().filter(|device| is_gone && device.device.is_some());
        Self {
            host,
            moved: devices.iter().filter_map(locate).collect(),
            returned: returned.map(|device| device.interface.clone()).collect(),
            namespace,
        }
    }

    /// The setting under the current name of its interface.
    ///
    /// # Errors
    /// Why it is gone, in words.
    pub(crate) fn find(&self, setting: &Setting) -> Result<Setting, String> {
        let interface = setting.interface();
        // The sysctls of an interface end with its namespace.
        let is_returned = !matches!(setting, Setting::Sysctl(_))
            && self.returned.iter().any(|name| Some(name.as_str()) == interface.as_deref());
        if let Some(reason) = self.namespace.unreachable_reason()
            && namespace::is_of_namespace(setting)
            && !is_returned
        {
            return Err(reason);
        }
        if let Setting::IrqAffinity { irq, action } = setting {
            return self.find_interrupt(*irq, action);
        }
        let location = self.moved.iter().find(|(name, _)| Some(name.as_str()) == interface.as_deref());
        match location.map(|(_, location)| location) {
            None => Ok(setting.clone()),
            Some(Ok(new_name)) => Ok(setting.on_interface(new_name)),
            Some(Err(reason)) => Err(reason.clone()),
        }
    }

    /// The former name of a setting's interface, if it was renamed or removed.
    pub(crate) fn former_name(&self, setting: &Setting) -> Option<String> {
        let is_concerned = |name: &str| match setting {
            Setting::IrqAffinity { action, .. } => names(action, name).is_some(),
            setting => setting.interface().as_deref() == Some(name),
        };
        self.moved.iter().map(|(name, _)| name).find(|name| is_concerned(name)).cloned()
    }

    // Finds an interrupt whose name contains that of its interface. Drivers name interrupts when an
    // interface comes up, so that after a renaming the old name stays until the interface was down.
    fn find_interrupt(&self, irq: u32, action: &str) -> Result<Setting, String> {
        let interrupt = |action: String| Setting::IrqAffinity { irq, action };
        let candidates =
            self.moved.iter().filter_map(|(name, location)| Some((names(action, name)?, name, location)));
        // Of `br` and `br-lan` the longer name counts.
        let Some((offset, name, location)) = candidates.max_by_key(|(_, name, _)| name.len()) else {
            return Ok(interrupt(action.to_owned()));
        };
        let new_name = location.as_ref().map_err(Clone::clone)?;
        let renamed = format!("{}{new_name}{}", &action[..offset], &action[offset + name.len()..]);
        let has_action = |action: &str| {
            self.host
                .list(&format!("/proc/irq/{irq}"))
                .is_ok_and(|names| names.iter().any(|name| name == action))
        };
        let is_of_device = ["device", "device/.."].iter().any(|device| {
            let vectors = self.host.list(&format!("/sys/class/net/{new_name}/{device}/msi_irqs"));
            vectors.is_ok_and(|numbers| numbers.contains(&irq.to_string()))
        });
        Ok(interrupt(if has_action(action) && is_of_device { action.to_owned() } else { renamed }))
    }
}

/// The position of an interface's name as a word in that of an interrupt: `eth0-TxRx-3`,
/// `i40e-eth0-TxRx-3`.
fn names(action: &str, interface: &str) -> Option<usize> {
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '.');
    let is_word = |at: &usize| {
        let (before, after) = (&action[..*at], &action[*at + interface.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    };
    action.match_indices(interface).map(|(at, _)| at).find(is_word)
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn interrupt_actions_match_interfaces_as_whole_words() {
        assert_eq!(names("eth0-TxRx-3", "eth0"), Some(0));
        assert_eq!(names("i40e-eth0-TxRx-3", "eth0"), Some(5));
        assert_eq!(names("eth0", "eth0"), Some(0));
        assert_eq!(names("eth01-TxRx-3", "eth0"), None);
        assert_eq!(names("eth0.5-TxRx-3", "eth0"), None);
        assert_eq!(names("virtio0-input.0", "eth0"), None);
    }
}
