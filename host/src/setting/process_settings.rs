//! Settings of running processes and threads.

use super::Setting;
use crate::process::start_time;
use crate::{Host, HostError};

impl Setting {
    /// The bans of the running irqbalance with this process id.
    ///
    /// # Errors
    /// [`HostError`] without such a process, or if its start time is unknown.
    pub fn irqbalance_bans(host: &Host, pid: u32) -> Result<Self, HostError> {
        Ok(Setting::IrqbalanceBans { pid, started: start_time(host, &format!("/proc/{pid}"))? })
    }

    /// The affinity of the running thread with these ids.
    ///
    /// # Errors
    /// [`HostError`] without such a thread, or if its start time is unknown.
    pub fn thread_cpus(host: &Host, pid: u32, tid: u32) -> Result<Self, HostError> {
        let started = start_time(host, &format!("/proc/{pid}/task/{tid}"))?;
        Ok(Setting::ThreadCpus { pid, tid, started })
    }
}
