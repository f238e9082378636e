//! Programs that end with this one.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Has the kernel kill the program that is to be started when the thread that starts it is gone.
///
/// Else it might change a setting after whoever comes next has read it: `kill -9` ends this process and not that one.
pub(crate) fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let in_child = move || {
        // SAFETY: prctl(2) with PR_SET_PDEATHSIG takes numbers only and is async-signal-safe.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: getppid(2) takes nothing, is async-signal-safe and cannot fail.
        let parent_now = unsafe { libc::getppid() };
        // It may have gone before it was asked to be told of.
        if parent_now.cast_unsigned() == parent {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: the closure runs between fork and exec and makes async-signal-safe system calls only.
    unsafe { command.pre_exec(in_child) };
}
