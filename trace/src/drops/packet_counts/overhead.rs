//! CPU time of counting.
//!
//! The kernel can time programs (`BPF_ENABLE_STATS`, Linux 5.8), which makes each run slower, so
//! programs are timed only for short times. The time of the call from the tracepoint and back is
//! not included: it is measured at a tracepoint that this thread passes itself, with and without an
//! empty program.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_host::Known;
use linerate_host::stats::median;
use serde::{Deserialize, Serialize};

use super::program::{AttachedDrops, WHAT};
use crate::TraceError;
use crate::call::CallOverhead;
use crate::programs::{ProgramRuns, RunCounters, RunCounting};

const TIMED: Duration = Duration::from_millis(10);
const EVERY: Duration = Duration::from_millis(490);

// The first timing: after programs are attached, before the end of a short run.
const FIRST: Duration = Duration::from_millis(40);

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TraceOverhead {
    /// On all CPUs together, as a share of one CPU.
    pub cpu_share: f64,
    /// Time per run including the call, ns.
    pub run_ns: f64,
    pub timed_runs: u64,
    pub timed_seconds: f64,
}

/// Times programs at intervals until it is dropped.
#[derive(Debug)]
pub(super) struct ProgramTiming {
    way: CallOverhead,
    counters: Arc<RunCounters>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    timed: mpsc::Receiver<TimedRuns>,
    sum: TimedRuns,
    // Time per run at each call of [`ProgramTiming::time_now`], ns. If a program loses its CPU for
    // some milliseconds, they are part of its time.
    seen_run_ns: Vec<f64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct TimedRuns {
    runs: ProgramRuns,
    elapsed: Duration,
}

impl TimedRuns {
    // Times programs for 10 ms; `None` if the kernel cannot. Only runs in this time count, because
    // the kernel also times programs while another process wants that
    // (kernel.bpf_stats_enabled).
    fn measure(counters: &RunCounters) -> Option<Self> {
        let before = counters.read().ok()?;
        let begin = Instant::now();
        let counting = RunCounting::start(WHAT).ok()?;
        std::thread::sleep(TIMED);
        drop(counting);
        let elapsed = begin.elapsed();
        let after = counters.read().ok()?;
        let runs = after.runs.saturating_sub(before.runs);
        Some(Self { runs: ProgramRuns { runs, time: after.time.saturating_sub(before.time) }, elapsed })
    }

    fn add(&mut self, other: Self) {
        self.runs.runs += other.runs.runs;
        self.runs.time += other.runs.time;
        self.elapsed += other.elapsed;
    }
}

impl ProgramTiming {
    /// No other programs may be attached yet.
    pub(super) fn start(attached: &mut AttachedDrops) -> Result<Self, TraceError> {
        let call_overhead = attached.call_overhead()?;
        let counters = Arc::new(attached.run_counters()?);
        let (stop_sender, stop_receiver) = mpsc::channel();
        let (time_sender, time_receiver) = mpsc::channel();
        let thread_counters = Arc::clone(&counters);
        let thread = std::thread::spawn(move || {
            let mut wait = FIRST;
            while stop_receiver.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                let Some(timed) = TimedRuns::measure(&thread_counters) else { return };
                if time_sender.send(timed).is_err() {
                    return;
                }
                wait = EVERY;
            }
        });
        Ok(Self {
            way: call_overhead,
            counters,
            stop: Some(stop_sender),
            thread: Some(thread),
            timed: time_receiver,
            sum: TimedRuns::default(),
            seen_run_ns: Vec::new(),
        })
    }

    pub(super) fn overhead(&mut self) -> Known<TraceOverhead> {
        self.timed.try_iter().for_each(|timed| self.sum.add(timed));
        let TimedRuns { runs, elapsed } = self.sum;
        if elapsed.is_zero() {
            return Known::unknown("it was not timed for long enough");
        }
        let run_ns = median(&self.seen_run_ns).unwrap_or_else(|| self.way.run_ns(runs));
        let timed_seconds = elapsed.as_secs_f64();
        let cpu_share = runs.runs as f64 * run_ns / 1e9 / timed_seconds;
        Known::Value(TraceOverhead { cpu_share, run_ns, timed_runs: runs.runs, timed_seconds })
    }

    /// Times only when [`ProgramTiming::time_now`] is called.
    pub(super) fn end_thread(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    // Times programs for 10 ms, and returns their share of one CPU; `None` if the kernel cannot
    // time them.
    pub(super) fn time_now(&mut self) -> Option<f64> {
        let timed = TimedRuns::measure(&self.counters)?;
        self.sum.add(timed);
        if timed.runs.runs > 0 {
            self.seen_run_ns.push(self.way.run_ns(timed.runs));
        }
        let run_ns = median(&self.seen_run_ns).unwrap_or_default();
        Some(timed.runs.runs as f64 * run_ns / 1e9 / timed.elapsed.as_secs_f64())
    }
}

impl Drop for ProgramTiming {
    fn drop(&mut self) {
        self.end_thread();
    }
}
