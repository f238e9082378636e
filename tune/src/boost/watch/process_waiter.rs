//! A sleep that the end of a process interrupts.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

#[derive(Debug, Default)]
pub(super) struct ProcessWaiter {
    processes: BTreeMap<u32, OwnedFd>,
}

impl ProcessWaiter {
    /// Replaces the set of processes. The samples find the end of a process that cannot be opened.
    pub(super) fn watch_processes<'p>(&mut self, pids: impl Iterator<Item = &'p u32>) {
        let mut open_descriptors = std::mem::take(&mut self.processes);
        for pid in pids {
            let open_pidfd = || {
                let pid = Pid::from_raw(i32::try_from(*pid).ok()?)?;
                pidfd_open(pid, PidfdFlags::empty()).ok()
            };
            if let Some(descriptor) = open_descriptors.remove(pid).or_else(open_pidfd) {
                self.processes.insert(*pid, descriptor);
            }
        }
    }

    /// Sleeps until a process ends, at most for this time. An ended process leaves the set.
    pub(super) fn sleep(&mut self, at_most: Duration) {
        let tv_sec = at_most.as_secs().try_into().unwrap_or(i64::MAX);
        let timeout = Timespec { tv_sec, tv_nsec: at_most.subsec_nanos().into() };
        let mut poll_fds: Vec<PollFd<'_>> =
            self.processes.values().map(|descriptor| PollFd::new(descriptor, PollFlags::IN)).collect();
        // A signal may end the sleep early.
        let _ = poll(&mut poll_fds, Some(&timeout));
        let ended: Vec<bool> = poll_fds.iter().map(|poll_fd| !poll_fd.revents().is_empty()).collect();
        let mut ended = ended.into_iter();
        self.processes.retain(|_, _| !ended.next().unwrap_or(false));
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    #[test]
    fn process_exit_wakes_the_waiter_once() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("started");
        let mut waiter = ProcessWaiter::default();
        waiter.watch_processes([child.id()].iter());
        child.kill().expect("killed");
        let began = Instant::now();
        waiter.sleep(Duration::from_millis(999));
        assert!(waiter.processes.is_empty(), "not woken in {:?}", began.elapsed());
        child.wait().expect("reaped");
        waiter.watch_processes([child.id()].iter());
        assert!(waiter.processes.is_empty());
    }
}
