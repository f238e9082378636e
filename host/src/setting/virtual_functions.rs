//! Number of virtual functions (`sriov_numvfs`, Linux 3.8; Documentation/PCI/pci-iov-howto.rst).
//!
//! The kernel changes the number only via 0 (`sriov_numvfs_store` of drivers/pci/iov.c), which
//! removes all functions with their addresses. Therefore functions in use are left alone.

use super::knob::{Knob, WriteRefusal, echo};
use super::value::SettingValue;
use crate::{Host, HostError};

const EXPECTED: &str = "a number of virtual functions";

pub(super) struct VirtualFunctions<'a> {
    pub(super) interface: &'a str,
}

impl VirtualFunctions<'_> {
    fn device(&self) -> String {
        format!("/sys/class/net/{}/device", self.interface)
    }

    fn path(&self) -> String {
        format!("{}/sriov_numvfs", self.device())
    }

    /// The user of a virtual function: a program with VFIO, such as a virtual machine, or an
    /// interface that is up.
    fn find_user(&self, host: &Host) -> Option<String> {
        let device = self.device();
        let names = host.list(&device).unwrap_or_default();
        names.iter().filter(|name| name.starts_with("virtfn")).find_map(|function| {
            let base = format!("{device}/{function}");
            let driver = host.read_link(&format!("{base}/driver")).unwrap_or_default();
            let driver = driver.rsplit('/').next().unwrap_or_default();
            // pci_vfs_assigned does not count VFIO, and a removal waits for the process that has
            // the function open.
            if driver.contains("vfio")
                || matches!(driver, "pci-stub" | "pciback" | "uio_pci_generic" | "igb_uio")
            {
                return Some(format!("{function} belongs to {driver}, as those of virtual machines do"));
            }
            let interfaces = host.list(&format!("{base}/net")).unwrap_or_default();
            let active_interface = interfaces.into_iter().find(|interface| {
                let flags = host.read(&format!("{base}/net/{interface}/flags")).unwrap_or_default();
                let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16);
                flags.is_ok_and(|flags| flags & libc::IFF_UP.cast_unsigned() != 0)
            });
            active_interface.map(|interface| format!("{function} is {interface}, which is up"))
        })
    }
}

impl Knob for VirtualFunctions<'_> {
    fn name(&self) -> String {
        format!("virtual functions of {}", self.interface)
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        host.read(&self.path()).map(SettingValue::new)
    }

    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str> {
        value.as_str().parse::<u16>().map(|number| number.to_string()).map_err(|_| EXPECTED)
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let before = self.read(host)?;
        if before == *value {
            return Ok(());
        }
        if before.as_str() != "0" {
            if let Some(user) = self.find_user(host) {
                return Err(WriteRefusal::Reason(format!(
                    "{user}: changing their number removes all of them"
                )));
            }
            host.write(&self.path(), "0").map_err(in_use_refusal)?;
        }
        if value.as_str() == "0" {
            return Ok(());
        }
        host.write(&self.path(), value.as_str()).map_err(|error| {
            // The previous number is better than none.
            match host.write(&self.path(), before.as_str()) {
                Ok(()) => WriteRefusal::Host(error),
                Err(restore_error) => {
                    WriteRefusal::Reason(format!("{error}; and none are left: {restore_error}"))
                }
            }
        })
    }

    fn can_leave(&self, _: &SettingValue, actual: &SettingValue) -> bool {
        actual.as_str() == "0"
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        let path = self.path();
        (value.as_str() == "0")
            .then(|| echo(value, &path))
            .or_else(|| Some(format!("{} && {}", echo(&SettingValue::new("0"), &path), echo(value, &path))))
    }
}

/// While a virtual machine has a function, drivers refuse with EPERM, EBUSY or EINVAL, and log the
/// reason.
fn in_use_refusal(error: HostError) -> WriteRefusal {
    match error.errno() {
        Some(libc::EPERM | libc::EBUSY) => {
            WriteRefusal::Reason(format!("{error}: the driver keeps them while a virtual machine has one"))
        }
        _ => WriteRefusal::Host(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{HostRecording, RecordedEntry};
    use crate::{Setting, SettingError};

    const PATH: &str = "/sys/class/net/eth0/device/sriov_numvfs";

    fn setting() -> Setting {
        Setting::VirtualFunctions { interface: "eth0".into() }
    }

    fn host(active: &str, more: &[(&str, RecordedEntry)]) -> Host {
        let mut recording = HostRecording::from_files([(PATH, active)]);
        for (path, entry) in more {
            recording.insert(format!("/sys/class/net/eth0/device/{path}"), entry.clone());
        }
        Host::rehearsal(recording)
    }

    #[test]
    fn virtual_function_count_is_set_to_zero_first() {
        let host = host("2\n", &[]);
        setting().write(&host, &SettingValue::new("4")).expect("written");
        assert_eq!(setting().read(&host).expect("read").as_str(), "4");
        assert_eq!(setting().command(&SettingValue::new("0")).as_deref(), Some(&*format!("echo 0 > {PATH}")));
        assert_eq!(
            setting().command(&SettingValue::new("4")).as_deref(),
            Some(&*format!("echo 0 > {PATH} && echo 4 > {PATH}"))
        );
        assert!(setting().check(&SettingValue::new("many")).is_err());
    }

    #[test]
    fn virtual_functions_in_use_are_not_removed() {
        let vfio = [("virtfn0/driver", RecordedEntry::Link("../../../bus/pci/drivers/vfio-pci".into()))];
        let error = setting().write(&host("1\n", &vfio), &SettingValue::new("4")).expect_err("in use");
        let expected = "virtual functions of eth0: virtfn0 belongs to vfio-pci, as those of virtual machines do: changing their \
                     number removes all of them";
        assert_eq!(error.to_string(), expected);
        let up = [("virtfn0/net/eth0v0/flags", RecordedEntry::File(b"0x1003\n".to_vec()))];
        let error = setting().write(&host("1\n", &up), &SettingValue::new("0")).expect_err("in use");
        assert!(error.to_string().contains("virtfn0 is eth0v0, which is up"), "{error}");
        let down = [("virtfn0/net/eth0v0/flags", RecordedEntry::File(b"0x1002\n".to_vec()))];
        setting().write(&host("1\n", &down), &SettingValue::new("0")).expect("written");
    }

    #[test]
    fn eperm_of_the_driver_means_functions_are_in_use() {
        let host = host("1\n", &[]).refusing(PATH, libc::EPERM);
        let error = setting().write(&host, &SettingValue::new("0")).expect_err("refused");
        assert!(matches!(error, SettingError::Refused { .. }), "{error}");
        assert!(
            error.to_string().ends_with("the driver keeps them while a virtual machine has one"),
            "{error}"
        );
    }
}
