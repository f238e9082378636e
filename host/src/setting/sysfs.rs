//! Settings that are one file of sysfs.
//!
//! Masks of a queue: `rps_cpus` (RPS, Linux 2.6.35) has the CPUs that process packets of a receive
//! queue. `xps_cpus` (XPS, 2.6.38) has the CPUs whose packets leave by a transmit queue, and
//! `xps_rxqs` (4.18) has the receive queues whose sockets send by it. See
//! Documentation/networking/scaling.rst. All masks require `CAP_NET_ADMIN` in the initial user
//! namespace.

use serde::{Deserialize, Serialize};

use super::knob::{Knob, WriteRefusal, echo};
use super::value::SettingValue;
use crate::{CpuSet, Host, HostError};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueDirection {
    /// `rx-N`.
    Receive,
    /// `tx-N`.
    Transmit,
}

/// Parameters of NAPI polling (Linux Documentation/networking/napi.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NapiKnob {
    /// Nanoseconds for which GRO holds packets back, and interrupts are deferred with
    /// `DeferHardIrqs` (3.19).
    GroFlushTimeout,
    /// Number of consecutive empty polls before interrupts are enabled again (5.11).
    DeferHardIrqs,
    /// 1: a kernel thread per queue polls instead of softirqs (5.12).
    Threaded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileForm {
    Number,
    /// A set of CPUs or queues.
    Mask,
    Word,
}

pub(super) struct SysfsFile {
    name: String,
    path: String,
    form: FileForm,
}

impl SysfsFile {
    pub(super) fn cpus(interface: &str, direction: QueueDirection, queue: u32) -> Self {
        let file = match direction {
            QueueDirection::Receive => format!("rx-{queue}/rps_cpus"),
            QueueDirection::Transmit => format!("tx-{queue}/xps_cpus"),
        };
        Self::of_queue(interface, &file, FileForm::Mask)
    }

    pub(super) fn receive_queues(interface: &str, queue: u32) -> Self {
        Self::of_queue(interface, &format!("tx-{queue}/xps_rxqs"), FileForm::Mask)
    }

    // RFS flow table size of a receive queue (2.6.35; the kernel rounds up to a power of two).
    pub(super) fn flows(interface: &str, queue: u32) -> Self {
        Self::of_queue(interface, &format!("rx-{queue}/rps_flow_cnt"), FileForm::Number)
    }

    pub(super) fn napi(interface: &str, knob: NapiKnob) -> Self {
        let file = match knob {
            NapiKnob::GroFlushTimeout => "gro_flush_timeout",
            NapiKnob::DeferHardIrqs => "napi_defer_hard_irqs",
            NapiKnob::Threaded => "threaded",
        };
        let path = format!("/sys/class/net/{interface}/{file}");
        Self { name: format!("{file} of {interface}"), path, form: FileForm::Number }
    }

    pub(super) fn governor(cpu: u32) -> Self {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
        Self { name: format!("governor of CPU {cpu}"), path, form: FileForm::Word }
    }

    fn of_queue(interface: &str, file: &str, form: FileForm) -> Self {
        let path = format!("/sys/class/net/{interface}/queues/{file}");
        Self { name: format!("{interface} {file}"), path, form }
    }
}

impl FileForm {
    /// The text to write for a value; the error describes the valid values.
    fn text(self, value: &SettingValue) -> Result<String, &'static str> {
        let word = value.as_str();
        match self {
            FileForm::Number => word.parse::<u64>().map(|number| number.to_string()).map_err(|_| "a number"),
            FileForm::Mask => mask(value).map(|cpus| cpus.to_mask()),
            FileForm::Word if word.is_empty() || word.contains(char::is_whitespace) => {
                Err("a governor such as performance")
            }
            FileForm::Word => Ok(word.to_owned()),
        }
    }
}

impl Knob for SysfsFile {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        host.read(&self.path).map(SettingValue::new)
    }

    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str> {
        self.form.text(value)
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let text = self.form.text(value)?;
        Ok(host.write(&self.path, &text)?)
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        Some(echo(value, &self.path))
    }
}

/// The CPUs or queues in a mask.
pub(super) fn mask(value: &SettingValue) -> Result<CpuSet, &'static str> {
    CpuSet::from_mask(value.as_str()).map_err(|_| "a mask such as 00000003")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setting;

    #[test]
    fn cpu_masks_compare_by_value() {
        let setting =
            Setting::QueueCpus { interface: "eth0".into(), direction: QueueDirection::Receive, queue: 0 };
        let host = Host::scripted([("/sys/class/net/eth0/queues/rx-0/rps_cpus", "00000000,00000001\n")]);
        assert_eq!(setting.to_string(), "eth0 rx-0/rps_cpus");
        assert!(setting.same(&SettingValue::new("1"), &setting.read(&host).expect("read")));
        setting.write(&host, &SettingValue::new("3")).expect("written");
        let error = setting.write(&host, &SettingValue::new("zz")).expect_err("not a mask");
        assert_eq!(error.to_string(), "eth0 rx-0/rps_cpus: 'zz' is not a mask such as 00000003");
        assert!(!setting.same(&SettingValue::new("zz"), &SettingValue::new("0")));
    }

    #[test]
    fn cpu_masks_above_64_cpus_are_written_in_32_bit_words() {
        let setting =
            Setting::QueueCpus { interface: "eth0".into(), direction: QueueDirection::Transmit, queue: 7 };
        let path = "/sys/class/net/eth0/queues/tx-7/xps_cpus";
        let host = Host::scripted([(path, "00000000,00000000,00000000\n")]);
        let cpus = CpuSet::from_iter([3, 64, 95]).to_mask();
        setting.write(&host, &SettingValue::new(&cpus)).expect("written");
        assert_eq!(host.read(path).expect("read"), "80000001,00000000,00000008");
    }

    #[test]
    fn rps_flow_count_and_napi_settings_are_files_of_the_interface() {
        let flows = Setting::QueueFlows { interface: "eth0".into(), queue: 3 };
        let timeout = Setting::Napi { interface: "eth0".into(), knob: NapiKnob::GroFlushTimeout };
        let threaded = Setting::Napi { interface: "eth0".into(), knob: NapiKnob::Threaded };
        let host = Host::scripted([
            ("/sys/class/net/eth0/queues/rx-3/rps_flow_cnt", "0\n"),
            ("/sys/class/net/eth0/gro_flush_timeout", "0\n"),
        ]);
        flows.write(&host, &SettingValue::new("4096")).expect("written");
        assert_eq!(flows.read(&host).expect("read").as_str(), "4096");
        timeout.write(&host, &SettingValue::new("200000")).expect("written");
        let command = timeout.command(&SettingValue::new("200000"));
        assert_eq!(command.as_deref(), Some("echo 200000 > /sys/class/net/eth0/gro_flush_timeout"));
        assert!(threaded.read(&host).expect_err("an older kernel").is_gone());
        assert_eq!(flows.to_string(), "eth0 rx-3/rps_flow_cnt");
        assert_eq!(threaded.to_string(), "threaded of eth0");
        for bad in ["", "-1", "on", "1 2"] {
            assert!(flows.check(&SettingValue::new(bad)).is_err(), "{bad}");
        }
        let json = serde_json::to_string(&timeout).expect("written");
        assert_eq!(json, r#"{"napi":{"interface":"eth0","knob":"gro_flush_timeout"}}"#);
    }

    #[test]
    fn governor_is_read_and_written_as_one_word() {
        let setting = Setting::Governor { cpu: 2 };
        let path = "/sys/devices/system/cpu/cpu2/cpufreq/scaling_governor";
        let host = Host::scripted([(path, "powersave\n")]);
        setting.write(&host, &SettingValue::new("performance")).expect("written");
        assert_eq!(setting.read(&host).expect("read").as_str(), "performance");
        assert!(setting.check(&SettingValue::new("on demand")).is_err());
        assert!(Setting::Governor { cpu: 3 }.read(&host).expect_err("no such CPU").is_gone());
    }
}
