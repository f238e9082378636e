//! The CPUs that a thread may run on (`sched_setaffinity`), as a list: `0,4-5`.
//!
//! The affinity ends with the thread, so the setting belongs to one thread, identified by its ids
//! and start time. The value is the allowed list of `/proc`, offline CPUs included, so that it can
//! be restored. The kernel also remembers an explicit request (`user_cpus_ptr`, Linux 6.2), and
//! uses it when a cpuset grows or a CPU comes online; therefore a list of all online CPUs is
//! requested as all possible CPUs.

use rustix::io::Errno;
use rustix::process::Pid;

use super::knob::{Knob, WriteRefusal};
use super::value::SettingValue;
use crate::process::task::parse_allowed_cpus;
use crate::root::ExplainedErrno;
use crate::{CpuSet, Host, HostError, Setting, process};

const EXPECTED: &str = "a list of CPUs such as 0,4-5";

pub(super) struct ThreadKnob {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) started: u64,
}

impl Setting {
    /// The affinity of the running thread with these ids.
    ///
    /// # Errors
    /// [`HostError`] without such a thread, or if its start time is unknown.
    pub fn thread_cpus(host: &Host, pid: u32, tid: u32) -> Result<Self, HostError> {
        let started = process::start_time(host, &format!("/proc/{pid}/task/{tid}"))?;
        Ok(Setting::ThreadCpus { pid, tid, started })
    }
}

impl ThreadKnob {
    fn status_path(&self) -> String {
        format!("/proc/{}/task/{}/status", self.pid, self.tid)
    }

    fn check_running(&self, host: &Host) -> Result<(), HostError> {
        match process::start_time(host, &format!("/proc/{}/task/{}", self.pid, self.tid)) {
            Ok(started) if started == self.started => Ok(()),
            Err(error) if !error.is_ended() => Err(error),
            _ => Err(ended_error(self.tid)),
        }
    }
}

impl Knob for ThreadKnob {
    fn name(&self) -> String {
        if self.pid == self.tid {
            return format!("CPUs of the main thread of process {}", self.pid);
        }
        format!("CPUs of thread {} of process {}", self.tid, self.pid)
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        let cpus = host
            .read_parsed(&self.status_path(), parse_allowed_cpus)
            .map_err(|error| if error.is_ended() { ended_error(self.tid) } else { error })?;
        // Afterwards, because another thread may get the id between the two reads.
        self.check_running(host)?;
        Ok(SettingValue::new(cpus))
    }

    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str> {
        parse(value).map(|cpus| cpus.to_string())
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let cpus = parse(value)?;
        self.check_running(host)?;
        let requested_cpus = widen(host, &cpus);
        let change = || self.set(&requested_cpus).map_err(|error| explain_error(&error.into(), &cpus));
        let key = format!("thread/{}/{}/cpus", self.pid, self.tid);
        host.apply_change_to(&key, "setting them", change, &cpus.to_string())?;
        if let Some(new_status) = host.read(&self.status_path()).ok().and_then(|text| with_list(&text, &cpus))
        {
            host.rehearse(&self.status_path(), &new_status);
        }
        Ok(())
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        Some(format!("taskset -pc {value} {}", self.tid))
    }
}

impl ThreadKnob {
    /// The kernel ignores CPUs that do not exist, and CPUs outside the thread's cpuset
    /// (`__sched_setaffinity` of kernel/sched/syscalls.c, Linux 6.18).
    fn set(&self, cpus: &CpuSet) -> Result<(), Errno> {
        let tid = i32::try_from(self.tid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        let mut mask = rustix::thread::CpuSet::new();
        let numbers = cpus.iter().map(|cpu| cpu as usize);
        numbers.filter(|cpu| *cpu < rustix::thread::CpuSet::MAX_CPU).for_each(|cpu| mask.set(cpu));
        rustix::thread::sched_setaffinity(Some(tid), &mask)
    }
}

fn parse(value: &SettingValue) -> Result<CpuSet, &'static str> {
    CpuSet::from_list(value.as_str()).ok().filter(|cpus| !cpus.is_empty()).ok_or(EXPECTED)
}

/// All possible CPUs if the list has all online CPUs: a thread without affinity stays without one.
fn widen(host: &Host, cpus: &CpuSet) -> CpuSet {
    let list = |name: &str| host.read_parsed(&format!("/sys/devices/system/cpu/{name}"), CpuSet::from_list);
    match (list("online"), list("possible")) {
        (Ok(online), Ok(possible)) if online.iter().all(|cpu| cpus.contains(cpu)) => {
            cpus.iter().chain(possible.iter()).collect()
        }
        _ => cpus.clone(),
    }
}

fn ended_error(tid: u32) -> HostError {
    let source = ExplainedErrno::error(libc::ENOENT, "it has ended");
    HostError::Call { what: format!("thread {tid}"), source }
}

fn explain_error(error: &std::io::Error, cpus: &CpuSet) -> std::io::Error {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    let words = match errno {
        libc::ESRCH => return ExplainedErrno::error(libc::ENOENT, "it has ended"),
        libc::EPERM => "it is another user's thread, which requires CAP_SYS_NICE: run it as root".to_owned(),
        libc::EINVAL => format!(
            "its control group (cpuset) lets it have none of the CPUs {cpus}, they are not online, or it is bound by the kernel"
        ),
        _ => return std::io::Error::from_raw_os_error(errno),
    };
    ExplainedErrno::error(errno, words)
}

/// A `status` file with another list.
fn with_list(text: &str, cpus: &CpuSet) -> Option<String> {
    const KEY: &str = "Cpus_allowed_list:";
    let (before, rest) = text.split_once(KEY)?;
    let (_, after) = rest.split_once('\n')?;
    Some(format!("{before}{KEY}\t{cpus}\n{after}"))
}

#[cfg(test)]
mod tests;
