//! The frequency governor of a CPU.

use super::SettingValue;
use super::knob::{Knob, WriteRefusal, echo};
use crate::{Host, HostError};

pub(super) struct GovernorKnob {
    pub(super) cpu: u32,
}

impl GovernorKnob {
    fn path(&self) -> String {
        format!("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", self.cpu)
    }
}

impl Knob for GovernorKnob {
    fn name(&self) -> String {
        format!("governor of CPU {}", self.cpu)
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        host.read(&self.path()).map(SettingValue::new)
    }

    fn check(&self, value: &SettingValue) -> Result<(), &'static str> {
        let one_word = !value.as_str().is_empty() && !value.as_str().contains(char::is_whitespace);
        if one_word { Ok(()) } else { Err("a governor such as performance") }
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        Ok(host.write(&self.path(), value.as_str())?)
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        Some(echo(value, &self.path()))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Host, Setting, SettingValue};

    #[test]
    fn a_governor_is_one_word() {
        let setting = Setting::Governor { cpu: 2 };
        let path = "/sys/devices/system/cpu/cpu2/cpufreq/scaling_governor";
        let host = Host::scripted([(path, "powersave\n")]);
        setting.write(&host, &SettingValue::new("performance")).expect("written");
        assert_eq!(setting.read(&host).expect("read").as_str(), "performance");
        assert!(setting.check(&SettingValue::new("on demand")).is_err());
        assert!(Setting::Governor { cpu: 3 }.read(&host).expect_err("no such CPU").is_gone());
    }
}
