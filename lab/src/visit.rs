//! Enters a network namespace completely: its sockets, and its devices in `/sys`.
//!
//! A sysfs shows the devices of the network namespace that mounted it. `nsenter --net` leaves the
//! host's sysfs on `/sys`, so `eth0` below `/sys/class/net` is not the same interface as `eth0` in
//! netlink.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::CWD;
use rustix::mount::{MountPropagationFlags, MoveMountFlags, OpenTreeFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::sysfs::mount_detached;
use crate::{LabError, Result, sys};

/// Enters the network namespace of `namespace`, or stays in the current namespace if it is `None`.
/// Mounts a `/sys` that shows the devices of the namespace in a mount namespace of this process,
/// with the mounts below `/sys`. Does nothing if `/sys` shows these devices already.
///
/// Call it before the process has a second thread, because namespaces belong to a thread.
///
/// # Errors
/// [`LabError::System`] if the namespace cannot be entered or the mount is refused;
/// [`LabError::OtherSysfs`] if `/sys` belongs to another namespace and no other sysfs may be
/// mounted.
pub fn enter(namespace: Option<&File>) -> Result<()> {
    if let Some(file) = namespace {
        rustix::thread::move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| LabError::system("enter the network namespace (setns)", errno))?;
    }
    let mount = match mount_detached() {
        Ok(mount) => mount,
        Err(errno) if shows_other_namespace() => {
            return Err(LabError::OtherSysfs { why: std::io::Error::from(errno).to_string() });
        }
        Err(_) => return Ok(()),
    };
    // The kernel has one sysfs per network namespace, whose mounts have one device number
    // (`kernfs_test_super` in fs/kernfs/mount.c, Linux 3.14 and later).
    let device = |stat: rustix::io::Result<rustix::fs::Stat>| stat.ok().map(|stat| stat.st_dev);
    if device(rustix::fs::fstat(&mount)) == device(rustix::fs::stat(c"/sys")) {
        return Ok(());
    }
    mount_over_sys(&mount)
        .map_err(|errno| LabError::system("mount the sysfs of the network namespace on /sys", errno))
}

fn mount_over_sys(mount: &OwnedFd) -> rustix::io::Result<()> {
    sys::unshare(UnshareFlags::NEWNS)?;
    rustix::mount::mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let submounts: Vec<(String, OwnedFd)> = mounts_below()
        .into_iter()
        .filter_map(|path| Some((path.clone(), rustix::mount::open_tree(CWD, path.as_str(), flags).ok()?)))
        .collect();
    let from_descriptor = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(mount, c"", CWD, c"/sys", from_descriptor)?;
    for (path, tree) in submounts {
        // A missing directory needs no mount.
        let _ = rustix::mount::move_mount(&tree, c"", CWD, path.as_str(), from_descriptor);
    }
    Ok(())
}

/// Mount points directly below `/sys`, such as `/sys/fs/cgroup`, which include the mounts below them.
fn mounts_below() -> Vec<String> {
    let Ok(table) = std::fs::read_to_string("/proc/self/mountinfo") else { return Vec::new() };
    let mut mount_points: Vec<String> = Vec::new();
    for path in table.lines().filter_map(|line| line.split(' ').nth(4)) {
        let is_inside = |outer: &String| path.starts_with(&format!("{outer}/")) || path == outer;
        if path.starts_with("/sys/") && !mount_points.iter().any(is_inside) {
            mount_points.push(path.to_owned());
        }
    }
    mount_points
}

/// Whether the index of an interface below `/sys/class/net` differs from its index in this
/// namespace.
pub fn shows_other_namespace() -> bool {
    let Ok(socket) = std::net::UdpSocket::bind("127.0.0.1:0") else { return false };
    let Ok(entries) = std::fs::read_dir("/sys/class/net") else { return false };
    entries.flatten().any(|entry| {
        let index = std::fs::read_to_string(entry.path().join("ifindex"));
        let Some(index) = index.ok().and_then(|text| text.trim().parse::<u32>().ok()) else { return false };
        let name = entry.file_name();
        rustix::net::netdevice::name_to_index(&socket, &name.to_string_lossy()).ok() != Some(index)
    })
}
