//! One host of a lab.

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::Command;
use std::thread::Builder;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space, sched_getaffinity};

use crate::child::LabChild;
use crate::error::{LabError, Result};
use crate::namespace::{NamespaceId, NetworkNamespace};
use crate::resident::ResidentThread;
use crate::sys::{ChildSetup, SysMount, arm};

/// A host: a network namespace with a thread that lives in it and starts its programs.
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
        let (resident, namespace) = ResidentThread::start(&thread_name(name))?;
        Ok(Self { name: name.to_owned(), resident, namespace })
    }

    /// The name: `receiver`, `sender0`, `sender1`, ...
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work` on a new thread in the host's network namespace, and waits for it.
    ///
    /// Sockets opened and threads spawned by `work` stay in the host's network namespace, wherever
    /// they are used afterwards. In `work`, `/proc/sys/net` and `/proc/thread-self/net` are the
    /// host's (`/proc/net` is not: it follows the first thread of the process).
    ///
    /// # Errors
    /// [`LabError::Panicked`] if `work` panics.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let failed = |error| LabError::system(format!("run code in lab host {}", self.name), error);
        let enter_and_work = || -> io::Result<T> {
            move_into_link_name_space(self.namespace(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        };
        std::thread::scope(|scope| {
            let builder = Builder::new().name(thread_name(&self.name));
            match builder.spawn_scoped(scope, enter_and_work).map_err(failed)?.join() {
                Ok(outcome) => outcome.map_err(failed),
                Err(panic) => {
                    Err(LabError::Panicked { host: self.name.clone(), message: panic_message(&*panic) })
                }
            }
        })
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
    /// control groups, no BPF file system). It may use the CPUs of the calling thread.
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
                cpus: sched_getaffinity(None).ok(),
            },
        );
        let child = self.resident.spawn(command).map_err(|e| LabError::system(operation.clone(), e))?;
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

/// The kernel shows 15 bytes of a thread's name.
fn thread_name(host: &str) -> String {
    format!("lab-{host}")
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a value that is not text".to_owned())
}
