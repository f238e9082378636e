//! A sleep that the end of a process interrupts.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Sleeps until one of these processes ends, at most for this time. The samples find the end of a
/// process that cannot be opened.
pub(super) fn sleep<'p>(pids: impl Iterator<Item = &'p u32>, at_most: Duration) {
    let open_pidfd = |pid: &u32| {
        let pid = Pid::from_raw(i32::try_from(*pid).ok()?)?;
        pidfd_open(pid, PidfdFlags::empty()).ok()
    };
    let processes: Vec<OwnedFd> = pids.filter_map(open_pidfd).collect();
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
        let limit = Duration::from_secs(600);
        let mut child = Command::new("sleep").arg("60").spawn().expect("started");
        child.kill().expect("killed");
        let began = Instant::now();
        sleep([child.id()].iter(), limit);
        assert!(began.elapsed() < limit);
        child.wait().expect("reaped");
        // Its process id is that of no process now.
        sleep([child.id()].iter(), Duration::from_millis(1));
    }
}
