//! Setup of a child between fork and exec.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::MountPropagationFlags;
use rustix::process::{Pid, Signal};
use rustix::thread::{CpuSet, LinkNameSpaceType, UnshareFlags, sched_setaffinity};

use crate::sysfs::mount_private_sys;

/// Whether a child gets a `/sys` of its network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SysMount {
    /// The child gets a new `/sys`, or is not started.
    Required,
    /// The child gets a new `/sys` if it can be mounted, or keeps the inherited `/sys`.
    Preferred,
    /// The child keeps the inherited `/sys`, because no other can be mounted here.
    Inherited,
}

/// The steps in the child, in this order.
#[derive(Debug)]
pub(crate) struct ChildSetup {
    /// User namespace to join.
    pub user_namespace: Option<File>,
    /// Network namespace to join.
    pub net_namespace: Option<File>,
    /// The `/sys` it sees.
    pub sys: SysMount,
    /// The parent, which is this process. The child is killed when the thread that forks it dies.
    pub die_with: Option<Pid>,
    /// The CPUs it may use; `None`: those of the thread that forks it.
    pub cpus: Option<CpuSet>,
}

/// Arms `command` so that its child does what `setup` says before it becomes the program.
pub(crate) fn arm(command: &mut Command, setup: ChildSetup) {
    let hook = move || prepare(&setup);
    // SAFETY: between fork and exec only async-signal-safe code may run. `prepare` makes raw system
    // calls through rustix with constant C strings; it neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(hook);
    }
}

/// Whether a process like this one, with a single thread, could unshare `flags` and then change
/// mounts, tried in a child.
///
/// The mounts show whether the rights in a new user namespace are real: AppArmor on Ubuntu allows
/// to make a user namespace and then denies every capability in it.
pub(crate) fn try_unshare(flags: UnshareFlags) -> Result<(), Errno> {
    // The child reports the result as the error that prevents its exec.
    const ALLOWED: Errno = Errno::CANCELED;
    let mut command = Command::new("/proc/self/exe");
    let attempt = move || -> io::Result<()> {
        super::unshare(flags)?;
        rustix::mount::mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        Err(ALLOWED.into())
    };
    // SAFETY: as in `arm`: raw system calls, no allocation, no lock.
    unsafe {
        command.pre_exec(attempt);
    }
    match command.spawn() {
        Err(error) => match Errno::from_io_error(&error) {
            Some(ALLOWED) => Ok(()),
            Some(errno) => Err(errno),
            None => Err(Errno::IO),
        },
        Ok(mut child) => {
            // The child cannot have become a program.
            let _ = child.kill();
            let _ = child.wait();
            Err(Errno::IO)
        }
    }
}

fn prepare(setup: &ChildSetup) -> io::Result<()> {
    if let Some(parent) = setup.die_with {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the request above was in place. Then there is no process
        // left to report to.
        if rustix::process::getppid() != Some(parent) {
            // SAFETY: _exit is async-signal-safe and runs nothing of this program.
            unsafe { libc::_exit(1) }
        }
    }
    join(setup.user_namespace.as_ref(), LinkNameSpaceType::User)?;
    join(setup.net_namespace.as_ref(), LinkNameSpaceType::Network)?;
    match setup.sys {
        SysMount::Required => mount_private_sys()?,
        SysMount::Preferred => {
            let _ = mount_private_sys();
        }
        SysMount::Inherited => {}
    }
    if let Some(cpus) = &setup.cpus {
        sched_setaffinity(None, cpus)?;
    }
    Ok(())
}

fn join(namespace: Option<&File>, kind: LinkNameSpaceType) -> io::Result<()> {
    match namespace {
        Some(file) => Ok(rustix::thread::move_into_link_name_space(file.as_fd(), Some(kind))?),
        None => Ok(()),
    }
}
