//! The scheduling policy of a thread.

use std::io;

use rustix::thread::Pid;

/// Of the calling thread.
pub(crate) fn is_normal() -> bool {
    policy() == libc::SCHED_OTHER
}

/// Of the calling thread.
pub(crate) fn is_idle() -> bool {
    policy() == libc::SCHED_IDLE
}

fn policy() -> libc::c_int {
    // SAFETY: the call has no pointers; zero is the calling thread.
    unsafe { libc::sched_getscheduler(0) }
}

/// # Errors
/// `EPERM` for the way back without CAP_SYS_NICE and RLIMIT_NICE (Linux 2.6.39).
pub(crate) fn set_idle(thread: Pid, idle: bool) -> io::Result<()> {
    let policy = if idle { libc::SCHED_IDLE } else { libc::SCHED_OTHER };
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call only reads `parameters`.
    let done =
        unsafe { libc::sched_setscheduler(thread.as_raw_nonzero().get(), policy, &raw const parameters) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
