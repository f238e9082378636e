//! Files of an interface that contain a number.

use serde::{Deserialize, Serialize};

use super::SettingValue;
use super::knob::{Knob, WriteRefusal, echo};
use crate::{Host, HostError};

const EXPECTED: &str = "a number";

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

pub(super) struct NumberFile {
    name: String,
    path: String,
}

impl NumberFile {
    /// RFS flow table size of a receive queue (2.6.35; the kernel rounds up to a power of two).
    pub(super) fn flows(interface: &str, queue: u32) -> Self {
        let file = format!("rx-{queue}/rps_flow_cnt");
        Self {
            name: format!("{interface} {file}"),
            path: format!("/sys/class/net/{interface}/queues/{file}"),
        }
    }

    pub(super) fn napi(interface: &str, knob: NapiKnob) -> Self {
        let file = match knob {
            NapiKnob::GroFlushTimeout => "gro_flush_timeout",
            NapiKnob::DeferHardIrqs => "napi_defer_hard_irqs",
            NapiKnob::Threaded => "threaded",
        };
        Self { name: format!("{file} of {interface}"), path: format!("/sys/class/net/{interface}/{file}") }
    }
}

impl Knob for NumberFile {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        host.read(&self.path).map(SettingValue::new)
    }

    fn check(&self, value: &SettingValue) -> Result<(), &'static str> {
        number(value).map(|_| ()).ok_or(EXPECTED)
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let number = number(value).ok_or(WriteRefusal::BadValue(EXPECTED))?;
        Ok(host.write(&self.path, &number.to_string())?)
    }

    fn same(&self, one: &SettingValue, other: &SettingValue) -> bool {
        number(one).is_some() && number(one) == number(other)
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        Some(echo(value, &self.path))
    }
}

fn number(value: &SettingValue) -> Option<u64> {
    value.as_str().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setting;

    #[test]
    fn flows_and_napi_are_files_of_an_interface() {
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
        assert_eq!(
            timeout.command(&SettingValue::new("200000")).as_deref(),
            Some("echo 200000 > /sys/class/net/eth0/gro_flush_timeout")
        );
        assert!(threaded.read(&host).expect_err("an older kernel").is_gone());
        assert_eq!(
            (flows.to_string(), threaded.to_string()),
            ("eth0 rx-3/rps_flow_cnt".into(), "threaded of eth0".into())
        );
        for bad in ["", "-1", "on", "1 2"] {
            assert!(flows.check(&SettingValue::new(bad)).is_err(), "{bad}");
        }
        assert_eq!(
            serde_json::to_string(&timeout).expect("written"),
            r#"{"napi":{"interface":"eth0","knob":"gro_flush_timeout"}}"#
        );
    }
}
