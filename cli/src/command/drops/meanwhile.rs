//! What goes on while packets are counted: a command, or time.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde::{Deserialize, Serialize};

use super::arguments::DropsTargetArgs;
use crate::interrupt::InterruptFlag;
use crate::render::format::command_line;

/// How long a command may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(5);

/// What is waited for.
pub(super) enum ConcurrentWorkload {
    /// This command, until it ends.
    Command(RefCell<RunningCommand>),
    /// This long; none for until a signal comes.
    Time { begun: Instant, time: Option<Duration> },
}

/// A command that runs.
pub(super) struct RunningCommand {
    argv: Vec<String>,
    child: Child,
}

/// A command that ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct EndedCommand {
    argv: Vec<String>,
    /// Null where a signal ended it.
    status: Option<i32>,
    /// Whether it was ended because counting was.
    interrupted: bool,
    #[serde(skip)]
    told: String,
}

impl ConcurrentWorkload {
    /// Starts the command, or the time.
    pub(super) fn begin(asked: &DropsTargetArgs) -> Result<Self> {
        let Some((program, arguments)) = asked.command.split_first() else {
            return Ok(Self::Time { begun: Instant::now(), time: asked.time() });
        };
        let mut command = Command::new(program);
        // Standard output is the result's.
        let output = rustix::io::dup(rustix::stdio::stderr()).map_err(io::Error::from);
        command.args(arguments).stdout(output.context("cannot copy standard error")?);
        let text = |argument: &OsString| argument.to_string_lossy().into_owned();
        let argv: Vec<String> = asked.command.iter().map(text).collect();
        let child = command.spawn().with_context(|| format!("cannot run {}", command_line(&argv)))?;
        Ok(Self::Command(RefCell::new(RunningCommand { argv, child })))
    }

    /// Waits for its end, a signal, or for `at_most`; what ended, or none where it goes on, or it was no command.
    pub(super) fn wait(
        &self,
        interrupt: &InterruptFlag,
        at_most: Option<Duration>,
    ) -> Result<Option<EndedCommand>> {
        match self {
            Self::Command(running) => running.borrow_mut().wait(interrupt, at_most),
            Self::Time { begun, time } => {
                let until = at_most.map(|at_most| Instant::now() + at_most);
                let end = time.and_then(|time| begun.checked_add(time));
                let until = [until, end].into_iter().flatten().min();
                while !interrupt.is_raised() {
                    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
                    if left.is_some_and(|left| left.is_zero()) {
                        break;
                    }
                    interrupt.wait(left)?;
                }
                Ok(None)
            }
        }
    }

    /// Whether the time is over; of a command, [`wait`](Self::wait) tells.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Command(_) => false,
            Self::Time { begun, time } => time.is_some_and(|time| begun.elapsed() >= time),
        }
    }
}

impl RunningCommand {
    fn wait(&mut self, interrupt: &InterruptFlag, at_most: Option<Duration>) -> Result<Option<EndedCommand>> {
        let pid = Pid::from_child(&self.child);
        let handle = pidfd_open(pid, PidfdFlags::empty()).context("cannot wait for the command")?;
        let until = at_most.map(|at_most| Instant::now() + at_most);
        while !interrupt.is_raised() {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if interrupt.wait_for(&handle, left)? {
                let status = self.child.wait().context("cannot wait for the command")?;
                return Ok(Some(self.ended(status, false)));
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
        }
        self.end().map(Some)
    }

    /// Ends it, since counting ends.
    fn end(&mut self) -> Result<EndedCommand> {
        // It may have ended by the same signal from the terminal.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + GRACE;
        loop {
            if let Some(status) = self.child.try_wait().context("cannot wait for the command")? {
                return Ok(self.ended(status, true));
            }
            if Instant::now() >= deadline {
                self.child.kill().context("cannot end the command")?;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn ended(&self, status: ExitStatus, interrupted: bool) -> EndedCommand {
        EndedCommand { argv: self.argv.clone(), status: status.code(), interrupted, told: status.to_string() }
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        // What was counted could not be told: then nobody waits for the command, either.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl EndedCommand {
    /// Sees that it ended well, or because it was asked to.
    pub(super) fn must_have_succeeded(&self) -> Result<()> {
        if self.interrupted || self.status == Some(0) {
            return Ok(());
        }
        bail!("the command {} failed: {}", command_line(&self.argv), self.told)
    }
}
