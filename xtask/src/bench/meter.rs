//! Counting the user-space instructions of a subject's server thread, from birth to end, by single
//! steps through ptrace(2): slow, exact, and without a counter of the CPU.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};

use super::subject::BenchSubject;
use crate::sys::trace::{self, TraceEvent};

/// Runs the subject and counts.
pub(super) fn count(subject: &BenchSubject) -> anyhow::Result<u64> {
    let child = Command::new(std::env::current_exe()?)
        .args(subject.arguments())
        .stdin(Stdio::null())
        .spawn()
        .context("starting the subject")?;
    let main = i32::try_from(child.id()).context("a process id out of range")?;
    MeteredRun { main, child, worker: None }.count()
}

/// A running subject. Killed when this is dropped, unless it has ended.
struct MeteredRun {
    main: i32,
    child: Child,
    worker: Option<MeteredWorker>,
}

struct MeteredWorker {
    thread: i32,
    steps: u64,
    has_ended: bool,
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
                TraceEvent::Exited(_) | TraceEvent::Killed(_) => {
                    let ended_worker = self.worker.as_mut().filter(|worker| worker.thread == thread);
                    ended_worker.into_iter().for_each(|worker| worker.has_ended = true);
                }
                TraceEvent::Stopped(signal) => self.handle_stop(thread, signal)?,
            }
        }
        let worker = self.worker.as_ref().context("the subject started no thread")?;
        if worker.has_ended { Ok(worker.steps) } else { bail!("the subject ended before its thread") }
    }

    fn handle_stop(&mut self, thread: i32, signal: i32) -> anyhow::Result<()> {
        if thread == self.main {
            let signal_to_pass = if signal == libc::SIGTRAP { 0 } else { signal };
            return Ok(trace::continue_thread(thread, signal_to_pass)?);
        }
        let worker = self.worker.get_or_insert(MeteredWorker { thread, steps: 0, has_ended: false });
        if worker.thread != thread {
            bail!("the subject started a second thread");
        }
        worker.steps += u64::from(signal == libc::SIGTRAP);
        // The stop at birth, and every stop that is a step, must not be passed on to the thread as
        // signals.
        let signal_to_pass = if matches!(signal, libc::SIGTRAP | libc::SIGSTOP) { 0 } else { signal };
        Ok(trace::step(thread, signal_to_pass)?)
    }
}

impl Drop for MeteredRun {
    fn drop(&mut self) {
        // Both calls fail if the child has ended and been waited for, which is the normal case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
