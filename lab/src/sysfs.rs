//! A `/sys` of a network namespace.

use std::os::fd::OwnedFd;

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags};
use rustix::thread::UnshareFlags;

use crate::sys;

/// In a user namespace a new sysfs must be at least as strict as the mounted one in read-only and access times
/// (`mnt_already_visible` in fs/namespace.c, since Linux 4.8).
const ATTEMPTS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

/// A detached mount of sysfs (fsopen, fsmount: since Linux 5.2).
pub(crate) fn mount_detached() -> Result<OwnedFd, Errno> {
    let mut last_error = Errno::NOSYS;
    for (read_only, no_atime) in ATTEMPTS {
        let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        attributes.set(MountAttrFlags::MOUNT_ATTR_RDONLY, read_only);
        attributes.set(MountAttrFlags::MOUNT_ATTR_NOATIME, no_atime);
        let context = rustix::mount::fsopen(c"sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_create(&context)?;
        match rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes) {
            Ok(mount) => return Ok(mount),
            Err(errno) => last_error = errno,
        }
    }
    Err(last_error)
}

/// Moves the calling thread into a new mount namespace with a new sysfs on `/sys`. It makes raw system calls only, because
/// it also runs between fork and exec.
pub(crate) fn mount_private_sys() -> Result<(), Errno> {
    sys::unshare(UnshareFlags::NEWNS)?;
    // Mounts made here must not appear outside; mounts made outside may appear here.
    rustix::mount::mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let mount = mount_detached()?;
    rustix::mount::move_mount(&mount, c"", CWD, c"/sys", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}
