//! Worker processes: fork(2).

use std::io;

use rustix::process::Pid;

/// Forks this process. Returns the child's id in the parent, `None` in the child.
///
/// # Errors
///
/// The kernel's error, or an error if the process has more than one thread.
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("a process of several threads is not forked"));
    }
    // SAFETY: the process has only this thread, so no other thread holds a lock or changes memory
    // when the child begins.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        child => Ok(Pid::from_raw(child)),
    }
}
