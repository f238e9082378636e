//! A network of one's own.

use std::io;

/// Gives the calling thread, and those it starts, an empty network namespace.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: takes no pointers, and affects what the calling thread opens from now on only.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
