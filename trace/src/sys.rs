//! Kernel calls that no crate wraps safely.

use std::io;

/// Sets or ends real-time priority of this thread (`SCHED_FIFO`).
pub(crate) fn set_real_time(is_real_time: bool) -> io::Result<()> {
    let (policy, priority) =
        if is_real_time { (libc::SCHED_FIFO, FIRST_PRIORITY) } else { (libc::SCHED_OTHER, 0) };
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the structure lives until the call returns, which only reads it.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// Above threads with the lowest real-time priority.
const FIRST_PRIORITY: i32 = 2;
