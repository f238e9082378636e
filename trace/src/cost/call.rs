//! What the call of a program takes, beside what the kernel times.
//!
//! The kernel times what runs between two readings of its clock: of the second reading half is in it, of the first the
//! other, and the way from the tracepoint to the program and back is not. So a program that does nothing is put at a
//! tracepoint that this thread passes whenever it gives itself its own name again: what that takes longer with the program than
//! without is the way, and what the kernel times of it is the clock.

use std::time::{Duration, Instant};

use rustix::thread::{name, set_name};

use super::tracer::CostTracer;
use crate::TraceError;

/// How often the name is given in a batch: some 50 us.
const PASSES: u32 = 200;

/// Batches, of which the fastest counts: others were interrupted.
const BATCHES: u32 = 10;

/// How often it is timed with and without. Caches and clocks change meanwhile.
const ROUNDS: u32 = 3;

/// What a call takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CallCost {
    /// The way to a program and back, ns.
    pub(super) way_ns: f64,
}

impl CallCost {
    /// Times it, while the kernel does not time programs.
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

    /// What the kernel's clock adds to the time of a run, ns, while the kernel times programs; none where it does not tell.
    pub(super) fn clock_ns(tracer: &mut CostTracer) -> Result<Option<f64>, TraceError> {
        tracer.with_nothing(fastest)?;
        let ran = tracer.runs_of_nothing()?;
        Ok((ran.runs > 0).then(|| ran.time.as_nanos() as f64 / ran.runs as f64))
    }
}

/// How long it takes this thread to give itself its name, ns.
fn fastest() -> f64 {
    let Ok(name) = name() else { return 0.0 };
    let mut fastest = Duration::MAX;
    for _ in 0..BATCHES {
        let begin = Instant::now();
        for _ in 0..PASSES {
            // It is the name that it has. Where this is refused, both times are as short.
            let _ = set_name(&name);
        }
        fastest = fastest.min(begin.elapsed());
    }
    fastest.as_nanos() as f64 / f64::from(PASSES)
}
