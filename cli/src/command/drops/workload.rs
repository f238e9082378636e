//! A command or a time during which packets are counted.

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use linerate_trace::drops::CountedCommand;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::session::DropsTargetArgs;
use crate::interrupt::InterruptFlag;
use crate::render::format::command_line;

// Longest wait for the command to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

pub(super) enum ConcurrentWorkload {
    Command(RunningCommand),
    /// Until a signal if `time` is `None`.
    Time {
        begun: Instant,
        time: Option<Duration>,
    },
}

pub(super) struct RunningCommand {
    argv: Vec<String>,
    child: Child,
}

#[derive(Debug)]
pub(super) struct EndedCommand {
    pub(super) command: CountedCommand,
    /// The status in words.
    ending: String,
}

impl ConcurrentWorkload {
    pub(super) fn begin(args: &DropsTargetArgs) -> Result<Self> {
        let Some((program, arguments)) = args.command.split_first() else {
            return Ok(Self::Time { begun: Instant::now(), time: args.time() });
        };
        let mut command = Command::new(program);
        // Standard output is for the result.
        let output = rustix::io::dup(rustix::stdio::stderr()).map_err(io::Error::from);
        command.args(arguments).stdout(output.context("cannot copy standard error")?);
        let to_text = |argument: &OsString| argument.to_string_lossy().into_owned();
        let argv: Vec<String> = args.command.iter().map(to_text).collect();
        let child = command.spawn().with_context(|| format!("cannot run {}", command_line(&argv)))?;
        Ok(Self::Command(RunningCommand { argv, child }))
    }

    /// Waits for the end of the workload, a signal, or at most for `limit`. Returns the command if it ended.
    pub(super) fn wait(
        &mut self,
        interrupt: &InterruptFlag,
        limit: Duration,
    ) -> Result<Option<EndedCommand>> {
        match self {
            Self::Command(command) => command.wait(interrupt, limit),
            Self::Time { begun, time } => {
                let remaining = time.map_or(limit, |time| limit.min(time.saturating_sub(begun.elapsed())));
                interrupt.wait(Some(remaining))?;
                Ok(None)
            }
        }
    }

    /// Whether the time is over; `false` for a command.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Command(_) => false,
            Self::Time { begun, time } => time.is_some_and(|time| begun.elapsed() >= time),
        }
    }
}

impl RunningCommand {
    fn wait(&mut self, interrupt: &InterruptFlag, limit: Duration) -> Result<Option<EndedCommand>> {
        let pid = Pid::from_child(&self.child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("cannot wait for the command")?;
        if interrupt.wait_for(&pidfd, Some(limit))? {
            let status = self.child.wait().context("cannot wait for the command")?;
            return Ok(Some(self.ended_command(status, false)));
        }
        interrupt.is_raised().then(|| self.end()).transpose()
    }

    // Ends the command because the counting ends.
    fn end(&mut self) -> Result<EndedCommand> {
        // The command may have ended by the same signal from the terminal.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + GRACE;
        loop {
            if let Some(status) = self.child.try_wait().context("cannot wait for the command")? {
                return Ok(self.ended_command(status, true));
            }
            if Instant::now() >= deadline {
                self.child.kill().context("cannot end the command")?;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn ended_command(&self, status: ExitStatus, interrupted: bool) -> EndedCommand {
        let command = CountedCommand { argv: self.argv.clone(), status: status.code(), interrupted };
        EndedCommand { command, ending: status.to_string() }
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        // Counting failed, so the command has no purpose.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl EndedCommand {
    /// An error if the command failed by itself.
    pub(super) fn check_success(&self) -> Result<()> {
        if self.command.interrupted || self.command.status == Some(0) {
            return Ok(());
        }
        bail!("the command {} failed: {}", command_line(&self.command.argv), self.ending)
    }
}
