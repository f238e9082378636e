//! Starting a process that does not end with the one that starts it.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

// The first descriptor after the standard descriptors.
const FIRST: libc::c_uint = 3;

// Gives the process a session of its own, so that the end of a terminal does not end it, and only
// the standard descriptors: readers of other descriptors that wait for their end do not have to
// wait for this process.
pub(crate) fn detach(command: &mut Command) {
    let in_child = || {
        rustix::process::setsid()?;
        close_at_exec();
        Ok(())
    };
    // SAFETY: the closure runs between fork and exec and makes async-signal-safe system calls only.
    unsafe { command.pre_exec(in_child) };
}

/// Closes at exec, not now: the standard library has a descriptor open through which it detects a
/// failed exec.
fn close_at_exec() {
    // close_range(2) with CLOSE_RANGE_CLOEXEC is of Linux 5.11.
    const CLOEXEC: libc::c_uint = 1 << 2;
    // SAFETY: the call takes three numbers and touches no memory of the process.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, CLOEXEC) };
    if closed == 0 {
        return;
    }
    for descriptor in FIRST.cast_signed()..1024 {
        // SAFETY: fcntl(2) with F_SETFD takes two numbers; for a closed descriptor it returns
        // EBADF.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}
