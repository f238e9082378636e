//! The call overhead of a program, outside the time that the kernel measures.
//!
//! The kernel measures between two clock reads: one clock read is included, the call from the
//! tracepoint and the return are not. Therefore an empty program is attached to a tracepoint that
//! this thread passes whenever it sets its own name: the additional time with the program is the
//! call, and the time that the kernel measures for it is the clock.

use std::time::{Duration, Instant};

use rustix::thread::{name, set_name};

use crate::TraceError;
use crate::programs::{EMPTY_PROGRAM, ProgramRuns, RunCounting, TracePrograms};

// Calls per batch: about 50 us.
const PASSES: u32 = 200;

// The fastest batch counts, because slower batches were interrupted.
const BATCHES: u32 = 10;

// Repetitions with and without the program, because caches and clocks change.
const ROUNDS: u32 = 3;

// Time per run if the kernel does not report it, ns: about the value of machines that report it.
pub(crate) const USUAL_RUN_NS: f64 = 150.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CallOverhead {
    // Call and return, ns.
    pub(crate) way_ns: f64,
    // Time of the clock read within a measured run, ns.
    pub(crate) clock_ns: f64,
}

impl CallOverhead {
    // Time per run including the call, ns.
    pub(crate) fn run_ns(&self, program_runs: ProgramRuns) -> f64 {
        match program_runs.runs {
            0 => self.way_ns,
            runs => {
                self.way_ns + (program_runs.time.as_nanos() as f64 / runs as f64 - self.clock_ns).max(0.0)
            }
        }
    }
}

impl TracePrograms {
    // The overhead of the empty program. Requires that the kernel does not measure programs yet.
    pub(crate) fn call_overhead(&mut self) -> Result<CallOverhead, TraceError> {
        let way_ns = self.way_ns()?;
        let clock_ns = match RunCounting::start(self.operation) {
            Ok(_counting) => self.clock_ns()?.unwrap_or(0.0),
            Err(_) => 0.0,
        };
        Ok(CallOverhead { way_ns, clock_ns })
    }

    // Call and return of the empty program, ns. Requires that the kernel does not measure programs.
    pub(crate) fn way_ns(&mut self) -> Result<f64, TraceError> {
        let mut durations = Vec::new();
        for _ in 0..ROUNDS {
            let baseline_ns = set_name_ns();
            durations.push((self.set_name_ns_attached()? - baseline_ns).max(0.0));
        }
        durations.sort_by(f64::total_cmp);
        Ok(durations[durations.len() / 2])
    }

    // Time of the clock read within a run, ns, while the kernel measures programs; `None` if it
    // counted no run.
    pub(crate) fn clock_ns(&mut self) -> Result<Option<f64>, TraceError> {
        self.set_name_ns_attached()?;
        let program_runs = self.runs(&EMPTY_PROGRAM)?;
        Ok((program_runs.runs > 0).then(|| program_runs.time.as_nanos() as f64 / program_runs.runs as f64))
    }

    fn set_name_ns_attached(&mut self) -> Result<f64, TraceError> {
        self.attach(&EMPTY_PROGRAM)?;
        let ns = set_name_ns();
        self.detach(&EMPTY_PROGRAM)?;
        Ok(ns)
    }
}

// The time that this thread needs to set its name, ns.
fn set_name_ns() -> f64 {
    let Ok(name) = name() else { return 0.0 };
    let mut fastest = Duration::MAX;
    for _ in 0..BATCHES {
        let begin = Instant::now();
        for _ in 0..PASSES {
            // Sets the current name again. If the kernel refuses, both times are equally short.
            let _ = set_name(&name);
        }
        fastest = fastest.min(begin.elapsed());
    }
    fastest.as_nanos() as f64 / f64::from(PASSES)
}
