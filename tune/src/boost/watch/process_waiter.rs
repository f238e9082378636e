//! A sleep that the end of a process interrupts.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Sleeps until one of these processes ends or has ended, at most for this time. The samples find the
/// end of a process that cannot be opened.
pub(super) fn sleep<'p>(pids: impl Iterator<Item = &'p u32>, at_most: Duration) {
    let mut processes: Vec<OwnedFd> = Vec::new();
    for pid in pids.filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)) {
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => processes.push(process),
            Err(Errno::SRCH) => return,
            Err(_) => {}
        }
    }
    let mut poll_fds: Vec<PollFd<'_>> =
        processes.iter().map(|process| PollFd::new(process, PollFlags::IN)).collect();
    // A signal may end the sleep early.
    let _ = poll(&mut poll_fds, Timespec::try_from(at_most).ok().as_ref());
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_end_of_a_process_ends_the_sleep() {
        let limit = Duration::from_secs(30);
        let mut child = Command::new("sleep").arg("60").spawn().expect("started");
        child.kill().expect("killed");
        let began = Instant::now();
        sleep([child.id()].iter(), limit);
        assert!(began.elapsed() < limit);
        child.wait().expect("reaped");
        sleep([child.id()].iter(), limit);
        assert!(began.elapsed() < limit, "it had ended before the sleep");
    }
}
