//! The scheduling policy of a thread.

use std::io;

use rustix::thread::Pid;

/// Whether the calling thread has the normal policy.
pub(crate) fn is_normal() -> bool {
    policy() == libc::SCHED_OTHER
}

/// Whether the calling thread has SCHED_IDLE.
pub(crate) fn is_idle() -> bool {
    policy() == libc::SCHED_IDLE
}

fn policy() -> libc::c_int {
    // SAFETY: the call has no pointers; zero is the calling thread.
    unsafe { libc::sched_getscheduler(0) }
}

/// # Errors
/// `EPERM` for the return to the normal policy without CAP_SYS_NICE and RLIMIT_NICE (Linux 2.6.39).
pub(crate) fn set_idle(thread: Pid, idle: bool) -> io::Result<()> {
    let policy = if idle { libc::SCHED_IDLE } else { libc::SCHED_OTHER };
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call only reads `parameters`.
    let result =
        unsafe { libc::sched_setscheduler(thread.as_raw_nonzero().get(), policy, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
