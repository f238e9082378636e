//! The unsafe code of this crate.

mod child;
pub(crate) mod tap;

pub(crate) use child::{ChildSetup, SysMount, arm, try_unshare};

use rustix::thread::UnshareFlags;

/// Gives the calling thread namespaces of its own.
///
/// `FILES` is refused, because with a file descriptor table of its own the thread would break the
/// assumptions of other threads and of this crate about descriptors.
pub(crate) fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    if flags.contains(UnshareFlags::FILES) {
        return Err(rustix::io::Errno::INVAL);
    }
    // SAFETY: the one hazard of unshare is a private descriptor table (FILES), refused above.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}
