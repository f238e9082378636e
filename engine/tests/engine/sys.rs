//! Network namespaces.

use std::io;

/// Moves the calling thread, and threads that it starts later, to a new network namespace.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: the call has no pointer arguments and affects only later system calls of this thread.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
