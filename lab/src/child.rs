//! A program running in a host.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::process::wait_readable;

/// A program running in a host. Dropping it ends the program.
#[derive(Debug)]
pub struct LabChild {
    process: Arc<ChildProcess>,
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<ChildStdout>,
    pub stderr: Option<ChildStderr>,
}

impl LabChild {
    pub(crate) fn new(mut child: Child) -> io::Result<Self> {
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        Ok(Self { process: Arc::new(ChildProcess::new(child)?), stdin, stdout, stderr })
    }

    pub fn id(&self) -> u32 {
        self.process.id
    }

    /// Waits for the program to end. If the lab ends first, the program is killed and this returns.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        loop {
            if let Some(status) = self.wait_at_most(Duration::from_secs(3600))? {
                return Ok(status);
            }
        }
    }

    /// Waits at most `max_wait` for the program to end. Returns `None` if it is still running then.
    pub fn wait_at_most(&mut self, max_wait: Duration) -> io::Result<Option<ExitStatus>> {
        if wait_readable(self.process.descriptor.as_fd(), max_wait)? {
            return self.process.reap().map(Some);
        }
        Ok(None)
    }

    /// Sends a signal to the program. Has no effect if the program has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        self.process.signal(signal)
    }

    /// Kills the program and returns its exit status.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.process.signal(Signal::KILL)?;
        self.process.reap()
    }

    pub(crate) fn process(&self) -> Arc<ChildProcess> {
        Arc::clone(&self.process)
    }
}

impl Drop for LabChild {
    fn drop(&mut self) {
        self.process.end();
    }
}

/// Shared by a [`LabChild`] and its host, so that either can end the process.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    id: u32,
    /// Readable when the process has ended.
    descriptor: OwnedFd,
    child: Mutex<Child>,
}

impl ChildProcess {
    fn new(mut child: Child) -> io::Result<Self> {
        let id = child.id();
        let pidfd = i32::try_from(id)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(rustix::io::Errno::SRCH)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        match pidfd {
            Ok(descriptor) => Ok(Self { id, descriptor, child: Mutex::new(child) }),
            Err(errno) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(errno.into())
            }
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        wait_readable(self.descriptor.as_fd(), Duration::ZERO).unwrap_or(false)
    }

    pub(crate) fn end(&self) {
        if self.signal(Signal::KILL).is_ok() {
            let _ = self.reap();
        }
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.descriptor, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits for the status. A second call returns the same status.
    fn reap(&self) -> io::Result<ExitStatus> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner).wait()
    }
}
