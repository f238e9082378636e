//! Child processes that end with this one.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

// Lets the kernel kill the child when the thread that starts it ends.
//
// Otherwise a child could change a setting after `kill -9` of this process, when the next linerate
// process has already read it.
pub(crate) fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let in_child = move || {
        // SAFETY: prctl(2) with PR_SET_PDEATHSIG takes numbers only and is async-signal-safe.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: getppid(2) takes nothing, is async-signal-safe and cannot fail.
        let parent_now = unsafe { libc::getppid() };
        // The parent may have ended before the prctl call.
        if parent_now.cast_unsigned() == parent {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: the closure runs between fork and exec and makes async-signal-safe system calls only.
    unsafe { command.pre_exec(in_child) };
}
