//! CPU time of counting.
//!
//! The kernel can time programs (`BPF_ENABLE_STATS`, Linux 5.8), which makes each run slower, so
//! programs are timed only for short times. The time of the call from the tracepoint and back is
//! not included: it is measured at a tracepoint that this thread passes itself, with and without an
//! empty program.

use std::time::{Duration, Instant};

use linerate_host::Known;
use linerate_host::bpf::{ProgramRuns, RunCounters};
use linerate_host::stats::median;
use serde::{Deserialize, Serialize};

use super::CountedEvent;
use super::program::{AttachedDrops, WHAT};
use crate::TraceError;
use crate::call::{CallOverhead, USUAL_RUN_NS, time_runs};

const TIMED: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TraceOverhead {
    /// On all CPUs together, as a share of one CPU.
    pub cpu_share: f64,
    /// Time per run including the call, ns.
    pub run_ns: f64,
    pub timed_runs: u64,
    pub timed_seconds: f64,
}

#[derive(Debug)]
pub(super) struct ProgramTiming {
    way: CallOverhead,
    counters: RunCounters,
    timed_runs: u64,
    timed: Duration,
    // Time per run at each call of [`ProgramTiming::time_now`], ns. If a program loses its CPU for
    // some milliseconds, they are part of its time.
    seen_run_ns: Vec<f64>,
    // The reason why the kernel did not time programs.
    failure: Option<String>,
}

impl ProgramTiming {
    /// No other programs may be attached yet.
    pub(super) fn start(attached: &mut AttachedDrops) -> Result<Self, TraceError> {
        Ok(Self {
            way: CallOverhead::measure(&mut attached.programs)?,
            counters: attached.programs.run_counters(&attached.at)?,
            timed_runs: 0,
            timed: Duration::ZERO,
            seen_run_ns: Vec::new(),
            failure: None,
        })
    }

    pub(super) fn overhead(&self) -> Known<TraceOverhead> {
        if self.timed.is_zero() {
            let why = self.failure.as_deref().unwrap_or("it was not timed for long enough");
            return Known::unknown(why);
        }
        let run_ns = median(&self.seen_run_ns).unwrap_or_else(|| self.way.run_ns(ProgramRuns::default()));
        let (timed_runs, timed_seconds) = (self.timed_runs, self.timed.as_secs_f64());
        let cpu_share = timed_runs as f64 * run_ns / 1e9 / timed_seconds;
        Known::Value(TraceOverhead { cpu_share, run_ns, timed_runs, timed_seconds })
    }

    // Times programs for 10 ms, and returns their share of one CPU: an estimate if the kernel
    // cannot time them.
    pub(super) fn time_now(&mut self, attached: &AttachedDrops) -> Result<f64, TraceError> {
        let (timed, elapsed) = match time_runs(&self.counters, WHAT, || std::thread::sleep(TIMED)) {
            Ok(timed) => timed,
            Err(error) => {
                self.failure = Some(error.to_string());
                return estimated_share(attached);
            }
        };
        self.timed_runs += timed.runs;
        self.timed += elapsed;
        if timed.runs > 0 {
            self.seen_run_ns.push(self.way.run_ns(timed));
        }
        let run_ns = median(&self.seen_run_ns).unwrap_or_default();
        Ok(timed.runs as f64 * run_ns / 1e9 / elapsed.as_secs_f64())
    }
}

// From the programs' own count of their runs in 10 ms.
fn estimated_share(attached: &AttachedDrops) -> Result<f64, TraceError> {
    let (before, begin) = (attached.counters()?.events()[&CountedEvent::Run], Instant::now());
    std::thread::sleep(TIMED);
    let (after, elapsed) = (attached.counters()?.events()[&CountedEvent::Run], begin.elapsed());
    Ok(after.saturating_sub(before) as f64 * USUAL_RUN_NS / 1e9 / elapsed.as_secs_f64())
}
