//! Settings of running processes and threads.

use super::{Setting, irqbalance_bans, thread_cpus};
use crate::{Host, HostError};

impl Setting {
    /// The bans of the running irqbalance with this process id.
    ///
    /// # Errors
    /// [`HostError`] without such a process, or if its start time is unknown.
    pub fn irqbalance_bans(host: &Host, pid: u32) -> Result<Self, HostError> {
        Ok(Setting::IrqbalanceBans { pid, started: irqbalance_bans::start_time(host, pid)? })
    }

    /// The affinity of the running thread with these ids.
    ///
    /// # Errors
    /// [`HostError`] without such a thread, or if its start time is unknown.
    pub fn thread_cpus(host: &Host, pid: u32, tid: u32) -> Result<Self, HostError> {
        Ok(Setting::ThreadCpus { pid, tid, started: thread_cpus::start_time(host, pid, tid)? })
    }
}
