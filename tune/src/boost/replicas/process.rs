//! The process of one copy.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::cgroup::ReplicaCgroup;
use super::{PLACEHOLDER, ReplicaConfig, ReplicaError};
use crate::sys;

/// Outlives this process: neither the copy nor the printer of its lines ends with the supervisor.
pub(super) struct CopyProcess {
    child: Child,
    /// Readable when the process has ended.
    descriptor: OwnedFd,
    /// Prints the lines of the copy. A process of its own, so that a copy that writes does not get
    /// SIGPIPE when the supervisor is killed. It ignores signals that end a whole control group.
    printer: Child,
}

impl CopyProcess {
    pub(super) fn start(
        config: &ReplicaConfig,
        group: &ReplicaCgroup,
        copy: u32,
        cpu: u32,
    ) -> Result<Self, ReplicaError> {
        let mut words = config.command.iter().map(|word| with_number(word, copy));
        let program = words.next().unwrap_or_default();
        let start_error = |error: io::Error| {
            ReplicaError::Refused(format!("cannot start {}: {error}", program.to_string_lossy()))
        };
        let (lines, output) = io::pipe().map_err(start_error)?;
        let mut command = Command::new(&program);
        command.args(words).stdin(Stdio::null());
        command.envs(config.environment.iter().map(|(name, value)| (name, with_number(value, copy))));
        command.stdout(output.try_clone().map_err(start_error)?).stderr(output);
        // Ctrl-C at a terminal is for the supervisor, which passes it on.
        command.process_group(0);
        sys::copy::place(&mut command, group.procs_of_copy(copy).map_err(start_error)?, cpu);
        let mut printer = Command::new("/proc/self/exe");
        printer.args(&config.prefix_lines).arg(format!("{copy}| ")).stdin(lines).process_group(0);
        let mut printer = printer.spawn().map_err(start_error)?;
        let child = command.spawn().and_then(|mut child| {
            // The PID cannot belong to another process, because the child is not waited for yet.
            let pid = Pid::from_raw(child.id().cast_signed()).ok_or(Errno::SRCH);
            match pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty())) {
                Ok(descriptor) => Ok((child, descriptor)),
                Err(errno) => {
                    let _ = child.kill().and_then(|()| child.wait());
                    Err(errno.into())
                }
            }
        });
        // `command` has the write end of the pipe. The printer waits until all write ends are
        // closed.
        drop(command);
        match child {
            Ok((child, descriptor)) => Ok(Self { child, descriptor, printer }),
            Err(error) => {
                let _ = printer.wait();
                Err(start_error(error))
            }
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        // It may have ended meanwhile.
        let _ = pidfd_send_signal(&self.descriptor, signal);
    }

    /// The status, once it has ended.
    pub(super) fn reap(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Whether its last lines are printed. The copy must have been reaped.
    pub(super) fn has_printed(&mut self) -> bool {
        self.printer.try_wait().is_ok_and(|ended| ended.is_some())
    }

    /// Waits for the last lines. The copy and all processes that write for it must have ended.
    pub(super) fn finish(mut self) {
        let _ = self.child.wait();
        let _ = self.printer.wait();
    }
}

impl AsFd for CopyProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn with_number(word: &OsStr, copy: u32) -> OsString {
    let (number, placeholder) = (copy.to_string(), PLACEHOLDER.as_bytes());
    let mut bytes = Vec::new();
    let mut remaining = word.as_bytes();
    while let Some(index) = remaining.windows(placeholder.len()).position(|window| window == placeholder) {
        bytes.extend_from_slice(&remaining[..index]);
        bytes.extend_from_slice(number.as_bytes());
        remaining = &remaining[index + placeholder.len()..];
    }
    bytes.extend_from_slice(remaining);
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_number_replaces_every_replica_placeholder() {
        for (word, expected) in
            [("-p=/run/{replica}/{replica}.pid", "-p=/run/12/12.pid"), ("{replic", "{replic"), ("", "")]
        {
            assert_eq!(with_number(OsStr::new(word), 12), expected);
        }
    }
}
