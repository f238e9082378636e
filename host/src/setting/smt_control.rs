//! Simultaneous multithreading: whether the further hardware threads of each core are online.

use super::knob::{Knob, WriteRefusal, echo};
use super::value::SettingValue;
use crate::process::task::read_allowed_cpus;
use crate::{CpuSet, Host, HostError};

/// Documentation/ABI/testing/sysfs-devices-system-cpu, Linux 4.19. The file may also contain
/// `forceoff`, `notsupported` or `notimplemented`, which cannot be changed.
const CONTROL: &str = "/sys/devices/system/cpu/smt/control";
const CPUS: &str = "/sys/devices/system/cpu";

pub(super) struct SmtKnob;

impl Knob for SmtKnob {
    fn name(&self) -> String {
        "hardware threads (SMT)".to_owned()
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        host.read(CONTROL).map(|text| SettingValue::new(text.trim()))
    }

    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str> {
        match value.as_str() {
            state @ ("on" | "off") => Ok(state.to_owned()),
            _ => Err("on or off"),
        }
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        if value.as_str() == "off"
            && let Some(thread) = thread_bound_to_siblings(host)
        {
            return Err(WriteRefusal::Reason(format!(
                "{thread} may only run on CPUs that would go offline, and the kernel would forget that"
            )));
        }
        Ok(host.write(CONTROL, value.as_str())?)
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        Some(echo(value, CONTROL))
    }
}

/// The CPUs that are not the first hardware thread of their core.
fn siblings(host: &Host) -> CpuSet {
    let is_sibling = |cpu: &u32| {
        let path = format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list");
        let list = host.read_parsed(&path, CpuSet::from_list);
        list.is_ok_and(|list| list.iter().next().is_some_and(|first| first != *cpu))
    };
    host.list_numbers(CPUS, "cpu").unwrap_or_default().into_iter().filter(is_sibling).collect()
}

/// A thread of a program that may run on these CPUs only. The kernel gives such a thread all CPUs
/// when its CPUs go offline (select_fallback_rq, kernel/sched/core.c, Linux 6.18), and the thread
/// keeps them.
fn thread_bound_to_siblings(host: &Host) -> Option<String> {
    let siblings = siblings(host);
    let pids = host.list_numbers("/proc", "").unwrap_or_default().into_iter();
    // Kernel threads have no command line; a kernel thread bound to one CPU returns with that CPU.
    let is_program =
        |pid: &u32| host.read(&format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
    pids.filter(is_program).find_map(|pid| {
        let threads = host.list_numbers(&format!("/proc/{pid}/task"), "").unwrap_or_default();
        let is_bound = |thread: &u32| {
            let allowed = read_allowed_cpus(host, &format!("/proc/{pid}/task/{thread}"));
            let allowed = allowed.into_value().unwrap_or_default();
            !allowed.is_empty() && allowed.iter().all(|cpu| siblings.contains(cpu))
        };
        let thread = threads.iter().find(|thread| is_bound(thread))?;
        let name = host.read(&format!("/proc/{pid}/comm")).unwrap_or_default();
        Some(format!("thread {thread} of {} ({pid})", name.trim()))
    })
}

#[cfg(test)]
mod tests {
    use crate::{Host, Setting, SettingValue};

    /// Two cores of two threads each, and a program that may run on these CPUs.
    fn host(control: &str, allowed: &str) -> Host {
        let topology = [("0", "0,2"), ("1", "1,3"), ("2", "0,2"), ("3", "1,3")];
        let files = topology.map(|(cpu, list)| {
            (format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"), format!("{list}\n"))
        });
        let status = format!("Name:\tnsd\nCpus_allowed_list:\t{allowed}\n");
        let more = [
            ("/sys/devices/system/cpu/smt/control".to_owned(), control.to_owned()),
            ("/proc/812/cmdline".to_owned(), "nsd\0-d\0".to_owned()),
            ("/proc/812/comm".to_owned(), "nsd\n".to_owned()),
            ("/proc/812/task/813/status".to_owned(), status),
            ("/proc/9/cmdline".to_owned(), String::new()),
            ("/proc/9/task/9/status".to_owned(), "Cpus_allowed_list:\t3\n".to_owned()),
        ];
        Host::scripted(files.into_iter().chain(more))
    }

    #[test]
    fn smt_is_switched_off_and_on() {
        let host = host("on\n", "0-3");
        for value in ["off", "on"] {
            Setting::SmtControl.write(&host, &SettingValue::new(value)).expect("written");
            assert_eq!(Setting::SmtControl.read(&host).expect("read").as_str(), value);
        }
        assert!(Setting::SmtControl.check(&SettingValue::new("forceoff")).is_err());
    }

    #[test]
    fn smt_off_is_refused_if_a_thread_may_run_only_on_siblings() {
        let host = host("on\n", "2-3");
        let error = Setting::SmtControl.write(&host, &SettingValue::new("off")).expect_err("refused");
        assert!(error.to_string().contains("thread 813 of nsd (812)"), "{error}");
    }
}
