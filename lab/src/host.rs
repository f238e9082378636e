//! One host of a lab.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::Command;

use crate::child::LabChild;
use crate::error::{LabError, Result};
use crate::namespace::{NamespaceId, NetworkNamespace};
use crate::resident::ResidentThread;
use crate::sys::{ChildSetup, SysMount, arm};

/// A host: a network namespace with a thread that lives in it.
///
/// Only descriptors and a thread of this process hold it, so it ends with the process in any case.
#[derive(Debug)]
pub struct LabHost {
    name: String,
    resident: ResidentThread,
    namespace: NetworkNamespace,
}

impl LabHost {
    pub(crate) fn start(name: &str) -> Result<Self> {
        let (resident, namespace) = ResidentThread::start(name, NetworkNamespace::enter_new)?;
        Ok(Self { name: name.to_owned(), resident, namespace })
    }

    /// The name: `receiver`, `sender0`, `sender1`, ...
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work` on the host's own thread, inside its network namespace, and waits for it.
    ///
    /// Sockets opened and threads spawned by `work` stay in the host's network namespace, wherever
    /// they are used afterwards. In `work`, `/proc/sys/net` and `/proc/thread-self/net` are the
    /// host's (`/proc/net` is not: it follows the first thread of the process). A host runs one
    /// `work` at a time. If `work` calls `run` of the same host, the inner work runs at once, but
    /// `work` must not wait for another thread that calls `run`.
    ///
    /// # Errors
    /// [`LabError::Panicked`] if `work` panics. The host remains usable.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.resident.run(work)
    }

    /// A sysfs that shows this host's interfaces (`class/net`), for any thread of this process.
    ///
    /// # Errors
    /// [`LabError::NoSysfs`] if `fsopen` cannot make a sysfs.
    pub fn sys_path(&self) -> Result<&Path> {
        match &self.namespace.sysfs {
            Ok((_, path)) => Ok(path),
            Err(why) => Err(LabError::NoSysfs { host: self.name.clone(), why: why.clone() }),
        }
    }

    /// Starts a program in the host. Its `/sys` shows the host, with nothing mounted below (no
    /// control groups, no BPF file system).
    ///
    /// The program and the processes that it starts are killed when the lab is dropped or its
    /// process dies for any reason. If the lab was killed,
    /// [`Registry::clean`](crate::LabRegistry::clean) kills the processes that the program started.
    pub fn spawn(&self, mut command: Command) -> Result<LabChild> {
        let operation = format!("start {:?} in lab host {}", command.get_program(), self.name);
        arm(
            &mut command,
            ChildSetup {
                user_namespace: None,
                net_namespace: None,
                sys: if self.namespace.sysfs.is_ok() { SysMount::Required } else { SysMount::Inherited },
                die_with: Some(rustix::process::getpid()),
            },
        );
        // Forked by the resident thread: the child inherits its namespace, and the kernel counts
        // that thread as the parent whose death ends the child (PR_SET_PDEATHSIG).
        let child = self.run(move || command.spawn())?.map_err(|e| LabError::system(operation.clone(), e))?;
        LabChild::new(child).map_err(|e| LabError::system(operation, e))
    }

    /// The network namespace, for `setns` or `IFLA_NET_NS_FD`.
    pub fn namespace(&self) -> BorrowedFd<'_> {
        self.namespace.file.as_fd()
    }

    pub fn namespace_id(&self) -> NamespaceId {
        self.namespace.id
    }

    /// Thread ID of the host's thread: `/proc/PID/task/THREAD/ns/net` is its namespace.
    pub fn thread_id(&self) -> i32 {
        self.resident.thread_id()
    }
}
