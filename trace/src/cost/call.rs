//! The call overhead of a program, outside the time that the kernel measures.
//!
//! The kernel measures between two clock reads: one clock read is included, the call from the
//! tracepoint and the return are not. Therefore an empty program is attached to a tracepoint that
//! this thread passes whenever it sets its own name: the additional time with the program is the
//! call, and the time that the kernel measures for it is the clock.

use std::time::{Duration, Instant};

use rustix::thread::{name, set_name};

use super::tracer::CostTracer;
use crate::TraceError;

/// Calls per batch: about 50 us.
const PASSES: u32 = 200;

/// The fastest batch counts, because others were interrupted.
const BATCHES: u32 = 10;

/// Repetitions with and without the program, because caches and clocks change.
const ROUNDS: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CallCost {
    /// Call and return, ns.
    pub(super) way_ns: f64,
}

impl CallCost {
    /// Requires that the kernel does not measure programs.
    pub(super) fn time(tracer: &mut CostTracer) -> Result<Self, TraceError> {
        let mut ways = Vec::new();
        for _ in 0..ROUNDS {
            let without = fastest();
            let with = tracer.with_nothing(fastest)?;
            ways.push((with - without).max(0.0));
        }
        ways.sort_by(f64::total_cmp);
        Ok(Self { way_ns: ways[ways.len() / 2] })
    }

    /// The clock's part of a run, ns, while the kernel measures programs; `None` if it does not
    /// report it.
    pub(super) fn clock_ns(tracer: &mut CostTracer) -> Result<Option<f64>, TraceError> {
        tracer.with_nothing(fastest)?;
        let ran = tracer.runs_of_nothing()?;
        Ok((ran.runs > 0).then(|| ran.time.as_nanos() as f64 / ran.runs as f64))
    }
}

/// The time this thread takes to set its name, ns.
fn fastest() -> f64 {
    let Ok(name) = name() else { return 0.0 };
    let mut fastest = Duration::MAX;
    for _ in 0..BATCHES {
        let begin = Instant::now();
        for _ in 0..PASSES {
            // It is the current name. If this is refused, both times are equally short.
            let _ = set_name(&name);
        }
        fastest = fastest.min(begin.elapsed());
    }
    fastest.as_nanos() as f64 / f64::from(PASSES)
}
