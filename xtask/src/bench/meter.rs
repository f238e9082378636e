//! Counting the user-space instructions of a subject's server thread.

use std::io;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use clap::ValueEnum;
use perf_event::events::Hardware;
use perf_event::{Builder, Counter};

use super::subject::BenchSubject;
use crate::sys::trace::{self, TraceEvent};

/// The method of counting instructions. Both methods see only the server's thread, from birth to
/// end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum InstructionMeter {
    /// The CPU's counter, through perf_event_open(2).
    Perf,
    /// Single steps through ptrace(2): slow, exact, and without a counter.
    Step,
}

impl InstructionMeter {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Perf => "perf counter",
            Self::Step => "single steps",
        }
    }

    // The reason why this meter cannot be used here; `None` if it can.
    pub(crate) fn probe(self) -> Option<String> {
        match self {
            Self::Perf => counter(0).err().map(|error| {
                format!("no instruction counter ({error}): a virtual machine without a PMU, or perf_event_paranoid")
            }),
            Self::Step => {
                let test_subject = BenchSubject {
                    side: super::subject::SubjectSide::C,
                    requests: 1,
                    batch: 1,
                    payload: 1,
                    wildcard: false,
                };
                self.count(&test_subject).err().map(|error| format!("ptrace does not work here: {error:#}"))
            }
        }
    }

    /// Runs the subject and counts.
    pub(crate) fn count(self, subject: &BenchSubject) -> anyhow::Result<u64> {
        let child = Command::new(std::env::current_exe()?)
            .args(subject.arguments())
            .stdin(Stdio::null())
            .spawn()
            .context("starting the subject")?;
        let mut run = MeteredRun { meter: self, main: process_id(&child)?, child, worker: None };
        run.count()
    }
}

fn process_id(child: &Child) -> anyhow::Result<i32> {
    i32::try_from(child.id()).context("a process id out of range")
}

fn counter(thread: i32) -> io::Result<Counter> {
    Builder::new(Hardware::INSTRUCTIONS).observe_pid(thread).exclude_kernel(true).exclude_hv(true).build()
}

/// A running subject. Killed when this is dropped, unless it has ended.
struct MeteredRun {
    meter: InstructionMeter,
    main: i32,
    child: Child,
    worker: Option<MeteredWorker>,
}

struct MeteredWorker {
    thread: i32,
    steps: u64,
    counter: Option<Counter>,
    result: Option<u64>,
}

impl MeteredRun {
    fn count(&mut self) -> anyhow::Result<u64> {
        match trace::wait()? {
            (thread, TraceEvent::Stopped(libc::SIGSTOP)) if thread == self.main => {}
            (_, event) => bail!("the subject did not start: {event:?}"),
        }
        trace::follow_threads(self.main)?;
        trace::continue_thread(self.main, 0)?;
        loop {
            let (thread, event) = trace::wait()?;
            match event {
                TraceEvent::Exited(0) if thread == self.main => break,
                TraceEvent::Exited(_) | TraceEvent::Killed(_) if thread == self.main => {
                    bail!("the subject failed: {event:?}")
                }
                TraceEvent::Exited(_) | TraceEvent::Killed(_) => self.handle_end(thread)?,
                TraceEvent::Stopped(signal) => self.handle_stop(thread, signal)?,
            }
        }
        let worker = self.worker.as_ref().context("the subject started no thread")?;
        worker.result.context("the subject ended before its thread")
    }

    fn handle_stop(&mut self, thread: i32, signal: i32) -> anyhow::Result<()> {
        if thread == self.main {
            let signal_to_pass = if signal == libc::SIGTRAP { 0 } else { signal };
            return Ok(trace::continue_thread(thread, signal_to_pass)?);
        }
        let meter = self.meter;
        let worker = match &mut self.worker {
            None => self.worker.insert(MeteredWorker::from_thread(thread, meter)?),
            Some(worker) if worker.thread == thread => worker,
            Some(_) => bail!("the subject started a second thread"),
        };
        // The stop at birth, and every stop that is a step, must not be passed on to the thread as
        // signals.
        let signal_to_pass = match signal {
            libc::SIGTRAP | libc::SIGSTOP => 0,
            other_signal => other_signal,
        };
        match meter {
            InstructionMeter::Perf => trace::continue_thread(thread, signal_to_pass)?,
            InstructionMeter::Step => {
                worker.steps += u64::from(signal == libc::SIGTRAP);
                trace::step(thread, signal_to_pass)?;
            }
        }
        Ok(())
    }

    fn handle_end(&mut self, thread: i32) -> anyhow::Result<()> {
        if let Some(worker) = self.worker.as_mut().filter(|worker| worker.thread == thread) {
            worker.result = Some(match &mut worker.counter {
                Some(counter) => counter.read().context("reading the counter")?,
                None => worker.steps,
            });
        }
        Ok(())
    }
}

impl MeteredWorker {
    fn from_thread(thread: i32, meter: InstructionMeter) -> anyhow::Result<Self> {
        let counter = match meter {
            InstructionMeter::Perf => {
                let mut counter = counter(thread).context("opening the counter")?;
                counter.enable()?;
                Some(counter)
            }
            InstructionMeter::Step => None,
        };
        Ok(Self { thread, steps: 0, counter, result: None })
    }
}

impl Drop for MeteredRun {
    fn drop(&mut self) {
        // Both calls fail if the child has ended and been waited for, which is the normal case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
