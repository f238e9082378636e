//! RPS and XPS masks of a queue.
//!
//! `rps_cpus` (Linux 2.6.35): the CPUs that process packets of a receive queue; `xps_cpus`
//! (2.6.38): the CPUs whose packets leave by a transmit queue; `xps_rxqs` (4.18): the receive
//! queues whose sockets' packets do. Documentation/networking/scaling.rst. All require
//! `CAP_NET_ADMIN` in the initial user namespace.

use serde::{Deserialize, Serialize};

use super::SettingValue;
use super::knob::{Knob, WriteRefusal, echo};
use crate::{CpuSet, Host, HostError};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueDirection {
    /// `rx-N`.
    Receive,
    /// `tx-N`.
    Transmit,
}

pub(super) struct QueueMask<'a> {
    interface: &'a str,
    file: String,
}

impl<'a> QueueMask<'a> {
    pub(super) fn cpus(interface: &'a str, direction: QueueDirection, queue: u32) -> Self {
        let file = match direction {
            QueueDirection::Receive => format!("rx-{queue}/rps_cpus"),
            QueueDirection::Transmit => format!("tx-{queue}/xps_cpus"),
        };
        Self { interface, file }
    }

    pub(super) fn receive_queues(interface: &'a str, queue: u32) -> Self {
        Self { interface, file: format!("tx-{queue}/xps_rxqs") }
    }

    fn path(&self) -> String {
        format!("/sys/class/net/{}/queues/{}", self.interface, self.file)
    }
}

impl Knob for QueueMask<'_> {
    fn name(&self) -> String {
        format!("{} {}", self.interface, self.file)
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        host.read(&self.path()).map(SettingValue::new)
    }

    fn check(&self, value: &SettingValue) -> Result<(), &'static str> {
        mask(value).map(|_| ())
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let cpus = mask(value).map_err(WriteRefusal::BadValue)?;
        Ok(host.write(&self.path(), &cpus.to_mask())?)
    }

    fn same(&self, one: &SettingValue, other: &SettingValue) -> bool {
        same_masks(one, other)
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        Some(echo(value, &self.path()))
    }
}

pub(super) fn mask(value: &SettingValue) -> Result<CpuSet, &'static str> {
    CpuSet::from_mask(value.as_str()).map_err(|_| "a mask such as 00000003")
}

pub(super) fn same_masks(one: &SettingValue, other: &SettingValue) -> bool {
    mask(one).is_ok_and(|one| mask(other) == Ok(one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setting;

    #[test]
    fn masks_compare_by_meaning() {
        let setting =
            Setting::QueueCpus { interface: "eth0".into(), direction: QueueDirection::Receive, queue: 0 };
        let host = Host::scripted([("/sys/class/net/eth0/queues/rx-0/rps_cpus", "00000000,00000001\n")]);
        assert_eq!(setting.to_string(), "eth0 rx-0/rps_cpus");
        assert!(setting.same(&SettingValue::new("1"), &setting.read(&host).expect("read")));
        setting.write(&host, &SettingValue::new("3")).expect("written");
        let error = setting.write(&host, &SettingValue::new("zz")).expect_err("not a mask");
        assert_eq!(error.to_string(), "eth0 rx-0/rps_cpus: 'zz' is not a mask such as 00000003");
        assert!(!setting.same(&SettingValue::new("zz"), &SettingValue::new("zz")));
    }

    #[test]
    fn the_receive_queues_of_a_transmit_queue_are_a_mask_too() {
        let setting = Setting::QueueReceivers { interface: "eth0".into(), queue: 2 };
        let host = Host::scripted([("/sys/class/net/eth0/queues/tx-2/xps_rxqs", "00\n")]);
        setting.write(&host, &SettingValue::new("4")).expect("written");
        assert!(setting.same(&setting.read(&host).expect("read"), &SettingValue::new("04")));
        assert_eq!(setting.to_string(), "eth0 tx-2/xps_rxqs");
    }

    #[test]
    fn cpus_above_64_are_written_in_words() {
        let setting =
            Setting::QueueCpus { interface: "eth0".into(), direction: QueueDirection::Transmit, queue: 7 };
        let path = "/sys/class/net/eth0/queues/tx-7/xps_cpus";
        let host = Host::scripted([(path, "00000000,00000000,00000000\n")]);
        let cpus = CpuSet::from_iter([3, 64, 95]).to_mask();
        setting.write(&host, &SettingValue::new(&cpus)).expect("written");
        assert_eq!(host.read(path).expect("read"), "80000001,00000000,00000008");
    }
}
