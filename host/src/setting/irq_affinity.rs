//! The CPUs an interrupt may go to: `/proc/irq/N/smp_affinity`.
//!
//! A value is the mask, or `MASK at CPU` if the kernel chooses among several CPUs and reports its
//! choice (`effective_affinity`, Linux 4.15). A vector whose CPU is in a new mask stays there
//! (arch/x86/kernel/apic/vector.c, `assign_vector_locked`; on other machines the driver of the
//! interrupt controller decides), so `MASK at CPU` is written as that CPU alone first, and then as
//! the mask.
//! Interrupt numbers change with channels, drivers and boots. The name of the handler stays, so an
//! interrupt is identified by its name.

use std::time::{Duration, Instant};

use super::knob::{Knob, WriteRefusal};
use super::sysfs::mask;
use super::value::SettingValue;
use crate::interrupts;
use crate::{CpuSet, Host, HostError};

const EXPECTED: &str = "a mask of CPUs such as 00000003, or 000000ff at 2";

// Without interrupt remapping an x86 machine moves a vector at its next interrupt
// (`irq_move_masked_irq` of kernel/irq/migration.c). A NIC with traffic interrupts within this
// time; an idle NIC may stay on another CPU of its mask, where it does no harm.
const NEXT_INTERRUPT: Duration = Duration::from_millis(20);

// How long the old mask may be read after a write: between the interrupt that applies the new mask
// and the end of the move the kernel shows the old one (`irq_move_masked_irq` clears the pending
// mark first, and sets it again while the vector is busy; kernel/irq/migration.c, Linux 6.18).
const TAKE_OVER: Duration = Duration::from_secs(1);

pub(super) struct IrqAffinity<'a> {
    pub(super) irq: u32,
    pub(super) action: &'a str,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AffinityValue {
    cpus: CpuSet,
    at: Option<u32>,
}

impl AffinityValue {
    pub(crate) fn parse(value: &SettingValue) -> Option<Self> {
        let mut words = value.as_str().split_whitespace();
        let cpus = CpuSet::from_mask(words.next()?).ok()?;
        let at = match (words.next(), words.next()) {
            (None, _) => None,
            (Some("at"), Some(cpu)) => Some(cpu.parse().ok().filter(|cpu| cpus.contains(*cpu))?),
            _ => return None,
        };
        words.next().is_none().then_some(Self { cpus, at })
    }
}

impl IrqAffinity<'_> {
    /// The current interrupt number.
    fn number(&self, host: &Host) -> Result<u32, HostError> {
        let is_directory = |names: Vec<String>| names.iter().any(|name| name == self.action);
        // Handlers with the same name share no directory, and a handler with a slash in its name
        // has none (register_handler_proc of kernel/irq/proc.c). /proc/interrupts lists all
        // handlers.
        if self.action.is_empty() || host.list(&format!("/proc/irq/{}", self.irq)).is_ok_and(is_directory) {
            return Ok(self.irq);
        }
        let lines = host.read_parsed("/proc/interrupts", interrupts::parse)?;
        let has_name = |name: &str| name == self.action || name.split(", ").any(|name| name == self.action);
        let mut numbers = lines.iter().filter(|(_, line)| has_name(&line.name)).map(|(irq, _)| *irq);
        if lines.get(&self.irq).is_some_and(|line| has_name(&line.name)) {
            return Ok(self.irq);
        }
        match (numbers.next(), numbers.next()) {
            (Some(irq), None) => Ok(irq),
            // Ambiguous.
            _ => Err(HostError::Read {
                path: format!("/proc/irq/*/{}", self.action),
                source: std::io::Error::from_raw_os_error(libc::ENOENT),
            }),
        }
    }

    // `None` if there are several CPUs, or the kernel does not report them.
    fn effective(host: &Host, irq: u32) -> Option<u32> {
        let path = format!("/proc/irq/{irq}/effective_affinity");
        let list = host.read_parsed(&format!("{path}_list"), CpuSet::from_list);
        let cpus = list.or_else(|_| host.read_parsed(&path, CpuSet::from_mask)).ok()?;
        cpus.iter().next().filter(|_| cpus.len() == 1)
    }

    fn set(host: &Host, irq: u32, cpus: &CpuSet) -> Result<(), HostError> {
        host.write(&path(irq), &cpus.to_mask())?;
        let effective = Self::effective(host, irq);
        if let Some(cpu) = effective.filter(|cpu| cpus.contains(*cpu)).or(cpus.iter().next()) {
            let base = format!("/proc/irq/{irq}");
            host.rehearse(&format!("{base}/effective_affinity_list"), &format!("{cpu}\n"));
            let mask = CpuSet::from_iter([cpu]).to_mask();
            host.rehearse(&format!("{base}/effective_affinity"), &format!("{mask}\n"));
        }
        Ok(())
    }
}

/// Waits for something of which the kernel sends no event, at most for this time.
fn wait_until(limit: Duration, is_done: impl Fn() -> bool) {
    let deadline = Instant::now() + limit;
    while !is_done() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Knob for IrqAffinity<'_> {
    fn name(&self) -> String {
        if self.action.is_empty() {
            format!("affinity of IRQ {}", self.irq)
        } else {
            format!("affinity of IRQ {} ({})", self.irq, self.action)
        }
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        let irq = self.number(host)?;
        let mask = SettingValue::new(host.read(&path(irq))?);
        let shared_affinity = AffinityValue::parse(&mask).filter(|affinity| affinity.cpus.len() > 1);
        let effective_cpu = shared_affinity.and_then(|affinity| {
            Self::effective(host, irq).filter(|effective| affinity.cpus.contains(*effective))
        });
        Ok(effective_cpu.map_or(mask.clone(), |cpu| SettingValue::new(format!("{mask} at {cpu}"))))
    }

    // The CPU within the mask does not count, because the kernel chooses it.
    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str> {
        AffinityValue::parse(value).map(|affinity| affinity.cpus.to_mask()).ok_or(EXPECTED)
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let affinity = AffinityValue::parse(value).ok_or(EXPECTED)?;
        let irq = self.number(host)?;
        if let Some(cpu) = affinity.at.filter(|cpu| Self::effective(host, irq) != Some(*cpu)) {
            Self::set(host, irq, &CpuSet::from_iter([cpu]))?;
            wait_until(NEXT_INTERRUPT, || Self::effective(host, irq).is_none_or(|current| current == cpu));
        }
        let is_other = |mask: CpuSet| mask != affinity.cpus;
        let is_set = || !host.read_parsed(&path(irq), CpuSet::from_mask).is_ok_and(is_other);
        // Twice, because a virtual machine with Linux 6.12 was seen to move a vector and keep the old
        // mask. The mask that is read afterwards is checked by the caller.
        for _ in 0..2 {
            Self::set(host, irq, &affinity.cpus)?;
            wait_until(TAKE_OVER, is_set);
            if is_set() {
                break;
            }
        }
        Ok(())
    }

    /// An interrupted write of `MASK at CPU` may leave the single CPU.
    fn can_leave(&self, requested: &SettingValue, actual: &SettingValue) -> bool {
        let at = AffinityValue::parse(requested).and_then(|affinity| affinity.at);
        at.is_some_and(|cpu| mask(actual) == Ok(CpuSet::from_iter([cpu])))
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        let cpus =
            AffinityValue::parse(value).map_or_else(|| mask(value).ok(), |affinity| Some(affinity.cpus))?;
        Some(format!("echo {} > {}", cpus.to_mask(), path(self.irq)))
    }
}

fn path(irq: u32) -> String {
    format!("/proc/irq/{irq}/smp_affinity")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setting;

    const TABLE: &str = "           CPU0       CPU1\n 30:          0          7   PCI-MSIX-0000:01:00.0    1-edge      eth0-TxRx-0\n \
                         31:          0          7   PCI-MSIX-0000:01:00.0    2-edge      eth0-TxRx-1\n \
                         40:          0          7   PCI-MSIX-0000:02:00.0    2-edge      eth1\n \
                         41:          0          7   PCI-MSIX-0000:02:00.0    2-edge      eth1\n";

    fn setting(irq: u32, action: &str) -> Setting {
        Setting::IrqAffinity { irq, action: action.into() }
    }

    fn host() -> Host {
        Host::scripted([
            ("/proc/interrupts", TABLE),
            ("/proc/irq/30/smp_affinity", "3\n"),
            ("/proc/irq/30/effective_affinity_list", "1\n"),
            ("/proc/irq/30/effective_affinity", "2\n"),
            ("/proc/irq/31/smp_affinity", "2\n"),
            ("/proc/irq/31/eth0-TxRx-1/x", ""),
            ("/proc/irq/40/smp_affinity", "3\n"),
            ("/proc/irq/41/smp_affinity", "3\n"),
        ])
    }

    #[test]
    fn interrupt_is_found_by_action_name_or_by_number_without_name() {
        let read = |irq, action: &str| setting(irq, action).read(&host()).map(|value| value.to_string());
        assert_eq!(read(31, "eth0-TxRx-1").expect("by its directory"), "2");
        assert_eq!(read(99, "eth0-TxRx-1").expect("by the table"), "2");
        assert_eq!(read(31, "eth0-TxRx-0").expect("moved"), "3 at 1");
        assert_eq!(read(31, "").expect("by number"), "2");
        assert_eq!(read(41, "eth1").expect("interrupt 41 has this name"), "3");
        assert!(read(42, "eth1").is_err(), "two interrupts have this name");
        let error = setting(31, "eth0-TxRx-9").read(&host()).expect_err("no interrupt has this name");
        assert!(error.is_gone(), "{error}");
        assert_eq!(error.to_string().split(": ").next(), Some("affinity of IRQ 31 (eth0-TxRx-9)"));
        assert!(setting(99, "").read(&host()).expect_err("no such number").is_gone());
    }

    #[test]
    fn restored_affinity_includes_the_effective_cpu() {
        let (host, setting) = (host(), setting(30, "eth0-TxRx-0"));
        let before = setting.read(&host).expect("read");
        setting.write(&host, &SettingValue::new("1")).expect("written");
        assert_eq!(setting.read(&host).expect("read").as_str(), "00000001");
        setting.write(&host, &before).expect("written");
        assert_eq!(setting.read(&host).expect("read").as_str(), "00000003 at 1");
        assert_eq!(host.read("/proc/irq/30/effective_affinity").expect("read"), "00000002\n");
    }

    #[test]
    fn write_waits_until_the_affinity_mask_takes_effect() {
        let path = "/proc/irq/31/smp_affinity";
        let delaying_host = host().delaying(path, 3);
        setting(31, "eth0-TxRx-1").write(&delaying_host, &SettingValue::new("1")).expect("in the end");
        assert_eq!(delaying_host.read(path).expect("read"), "00000001");
        let error = setting(31, "eth0-TxRx-1").write(&host().ignoring(path), &SettingValue::new("1"));
        assert!(error.expect_err("never").to_string().contains("it still reads '2'"));
    }

    #[test]
    fn affinity_values_are_compared_checked_and_have_a_command() {
        let setting = setting(30, "eth0-TxRx-0");
        assert!(setting.same(&SettingValue::new("3 at 1"), &SettingValue::new("00000003")));
        assert!(!setting.same(&SettingValue::new("3 at 1"), &SettingValue::new("1")));
        assert!(setting.can_leave(&SettingValue::new("3 at 1"), &SettingValue::new("2")));
        assert!(!setting.can_leave(&SettingValue::new("3"), &SettingValue::new("2")));
        let command = setting.command(&SettingValue::new("3 at 1"));
        assert_eq!(command.as_deref(), Some("echo 00000003 > /proc/irq/30/smp_affinity"));
        for bad in ["", "x", "3 at", "3 at 2", "3 on 1", "3 at 1 2", "at 1"] {
            assert!(setting.check(&SettingValue::new(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn affinity_without_action_is_read_from_json() {
        let old: Setting = serde_json::from_str(r#"{"irq_affinity": {"irq": 30}}"#).expect("read");
        assert_eq!(old, setting(30, ""));
    }
}
