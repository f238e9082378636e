//! A child process whose end can be awaited for a limited time.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::process::wait_readable;

/// A running program, most often in a host. Dropping it ends the program.
#[derive(Debug)]
pub struct LabChild {
    child: Child,
    /// Readable when the process has ended.
    descriptor: OwnedFd,
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<ChildStdout>,
    pub stderr: Option<ChildStderr>,
}

impl LabChild {
    pub(crate) fn new(mut child: Child) -> io::Result<Self> {
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(descriptor) => {
                let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
                Ok(Self { child, descriptor, stdin, stdout, stderr })
            }
            Err(errno) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(errno.into())
            }
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the program to end. If the lab ends first, the program is killed and this returns.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        self.child.wait()
    }

    /// Waits at most `max_wait` for the program to end. Returns `None` if it is still running then.
    pub fn wait_at_most(&mut self, max_wait: Duration) -> io::Result<Option<ExitStatus>> {
        if wait_readable(self.descriptor.as_fd(), max_wait)? { self.child.wait().map(Some) } else { Ok(None) }
    }

    /// Sends a signal to the program. Has no effect if the program has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.descriptor, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Kills the program and returns its exit status.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL)?;
        self.child.wait()
    }
}

impl Drop for LabChild {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
