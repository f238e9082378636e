//! Interrupts that a running irqbalance bans by number: `24-31,40`.
//!
//! Bans end with the process, so the setting belongs to one process, identified by its id and start
//! time.

use std::collections::BTreeSet;

use super::knob::{Knob, WriteRefusal};
use super::value::SettingValue;
use crate::root::ExplainedErrno;
use crate::root::irqbalance::ban_message;
use crate::{CpuSet, Host, HostError, Setting, process};

const EXPECTED: &str = "a list of interrupts such as 24-31,40 that fits one message to irqbalance";

pub(super) struct IrqbalanceBans {
    pub(super) pid: u32,
    pub(super) started: u64,
}

impl Setting {
    /// The bans of the running irqbalance with this process id.
    ///
    /// # Errors
    /// [`HostError`] without such a process, or if its start time is unknown.
    pub fn irqbalance_bans(host: &Host, pid: u32) -> Result<Self, HostError> {
        Ok(Setting::IrqbalanceBans { pid, started: process::start_time(host, &format!("/proc/{pid}"))? })
    }
}

impl IrqbalanceBans {
    fn check_running(&self, host: &Host) -> Result<(), HostError> {
        match process::start_time(host, &format!("/proc/{}", self.pid)) {
            Ok(started) if started == self.started => Ok(()),
            Err(error) if !error.is_missing() => Err(error),
            _ => {
                let words = "it has ended, and its list of interrupts with it";
                let source = ExplainedErrno::error(libc::ENOENT, words);
                Err(HostError::Call { what: format!("irqbalance ({})", self.pid), source })
            }
        }
    }
}

impl Knob for IrqbalanceBans {
    fn name(&self) -> String {
        format!("interrupts that irqbalance ({}) leaves alone", self.pid)
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        self.check_running(host)?;
        host.irqbalance_setup(self.pid).map(|setup| list(&setup.banned))
    }

    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str> {
        let irqs = parse(value.as_str()).ok_or(EXPECTED)?;
        ban_message(&irqs).map(|_| list(&irqs).to_string()).map_err(|_| EXPECTED)
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let irqs = parse(value.as_str()).ok_or(EXPECTED)?;
        self.check_running(host)?;
        Ok(host.ban_from_irqbalance(self.pid, &irqs)?)
    }
}

/// Interrupts as a list with ranges, which has the form of a list of CPUs.
pub fn list(irqs: &BTreeSet<u32>) -> SettingValue {
    SettingValue::new(irqs.iter().copied().collect::<CpuSet>().to_string())
}

// `None` if it is not a list.
fn parse(text: &str) -> Option<BTreeSet<u32>> {
    CpuSet::from_list(text).ok().map(|irqs| irqs.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "612 (irqbalance (x)) S 1 612 612 0 -1 4194304 1 0 0 0 5 3 0 0 20 0 2 0 1234 8 9 10\n";

    fn host(stat: &str) -> Host {
        Host::scripted([
            ("/proc/612/stat", stat),
            ("/calls/irqbalance/612/setup.json", r#"{"interval_seconds": 10, "banned": [24]}"#),
        ])
    }

    #[test]
    fn bans_are_read_and_written() {
        let host = host(STAT);
        let setting = Setting::irqbalance_bans(&host, 612).expect("a running irqbalance");
        assert_eq!(setting, Setting::IrqbalanceBans { pid: 612, started: 1234 });
        assert_eq!(setting.read(&host).expect("read").as_str(), "24");
        setting.write(&host, &SettingValue::new("24-26,40")).expect("written");
        assert_eq!(setting.read(&host).expect("read").as_str(), "24-26,40");
        setting.write(&host, &SettingValue::new("")).expect("written");
        assert_eq!(setting.read(&host).expect("read").as_str(), "");
    }

    #[test]
    fn bans_of_a_restarted_irqbalance_are_gone() {
        let setting = Setting::irqbalance_bans(&host(STAT), 612).expect("a running irqbalance");
        for stat in [STAT.replace(" 1234 ", " 1235 "), String::new()] {
            assert!(setting.read(&host(&stat)).is_err());
        }
        let error = setting
            .write(&host(&STAT.replace("1234", "1235")), &SettingValue::new("24"))
            .expect_err("another process");
        assert!(error.is_gone(), "{error}");
        let host_without_process = Host::scripted([("/proc/1/stat", "")]);
        assert!(setting.read(&host_without_process).expect_err("ended").is_gone());
    }

    #[test]
    fn invalid_and_too_long_ban_lists_are_refused() {
        let setting = Setting::IrqbalanceBans { pid: 612, started: 1234 };
        assert!(setting.check(&SettingValue::new("100-219")).is_ok());
        for text in ["0", "5-3", "x", "1,,2", "1-4000000000", "100-220", "-"] {
            assert!(setting.check(&SettingValue::new(text)).is_err(), "{text}");
        }
    }
}
