//! The call overhead of a program, outside the time that the kernel measures.
//!
//! The kernel measures between two clock reads: one clock read is included, the call from the
//! tracepoint and the return are not. Therefore an empty program is attached to a tracepoint that
//! this thread passes whenever it sets its own name: the additional time with the program is the
//! call, and the time that the kernel measures for it is the clock.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use aya::sys::{Stats, enable_stats};
use linerate_host::bpf::{BpfError, BpfPrograms, ProgramAttachment, ProgramRuns, RunCounters};
use rustix::thread::{name, set_name};

use crate::TraceError;

/// A run of this program costs the call only.
pub(crate) const EMPTY_PROGRAM: [ProgramAttachment; 1] =
    [ProgramAttachment::new("nothing", "task_rename").since("came with Linux 3.4").optional()];

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
    way_ns: f64,
    // Time of the clock read within a measured run, ns; `None` if the kernel counted no run.
    pub(crate) clock_ns: Option<f64>,
}

impl CallOverhead {
    // The overhead of the empty program. Requires that the kernel does not measure programs yet.
    pub(crate) fn measure(programs: &mut BpfPrograms) -> Result<Self, TraceError> {
        let way_ns = way_ns(programs)?;
        let clock_ns = match RunCounting::start(programs.operation) {
            Ok(_counting) => clock_ns(programs)?,
            Err(_) => None,
        };
        Ok(Self { way_ns, clock_ns })
    }

    // Time per run including the call, ns.
    pub(crate) fn run_ns(&self, program_runs: ProgramRuns) -> f64 {
        match program_runs.runs {
            0 => self.way_ns,
            runs => {
                self.way_ns
                    + (program_runs.time.as_nanos() as f64 / runs as f64 - self.clock_ns.unwrap_or(0.0))
                        .max(0.0)
            }
        }
    }
}

// Call and return of the empty program, ns. Requires that the kernel does not measure programs.
fn way_ns(programs: &mut BpfPrograms) -> Result<f64, BpfError> {
    let mut durations = Vec::new();
    for _ in 0..ROUNDS {
        let baseline_ns = set_name_ns();
        durations.push((set_name_ns_attached(programs)? - baseline_ns).max(0.0));
    }
    durations.sort_by(f64::total_cmp);
    Ok(durations[durations.len() / 2])
}

// Time of the clock read within a run, ns, while the kernel measures programs; `None` if it counted no run.
fn clock_ns(programs: &mut BpfPrograms) -> Result<Option<f64>, BpfError> {
    set_name_ns_attached(programs)?;
    let ProgramRuns { runs, time } = programs.runs(&EMPTY_PROGRAM)?;
    Ok((runs > 0).then(|| time.as_nanos() as f64 / runs as f64))
}

fn set_name_ns_attached(programs: &mut BpfPrograms) -> Result<f64, BpfError> {
    programs.attach(&EMPTY_PROGRAM)?;
    let ns = set_name_ns();
    programs.detach(&EMPTY_PROGRAM)?;
    Ok(ns)
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

// Lets the kernel time all BPF programs until this is dropped.
#[derive(Debug)]
pub(crate) struct RunCounting {
    _descriptor: OwnedFd,
}

impl RunCounting {
    /// Each run then takes two clock reads longer.
    pub(crate) fn start(operation: &'static str) -> Result<Self, TraceError> {
        let timing = "timing BPF programs (BPF_ENABLE_STATS)";
        let descriptor =
            enable_stats(Stats::RunTime).map_err(|error| match BpfError::new(operation, error).into() {
                TraceError::NotPermitted { .. } => {
                    TraceError::NotPermitted { what: timing, capabilities: "CAP_SYS_ADMIN" }
                }
                other => other,
            })?;
        Ok(Self { _descriptor: descriptor })
    }
}

/// Runs and time of programs while `wait` runs, and its duration. Only runs in this time count,
/// because the kernel also times programs while another process wants that
/// (kernel.bpf_stats_enabled).
pub(crate) fn time_runs(
    counters: &RunCounters,
    operation: &'static str,
    wait: impl FnOnce(),
) -> Result<(ProgramRuns, Duration), TraceError> {
    let read = || counters.read().map_err(|source| TraceError::Kernel { what: operation, source });
    let before = read()?;
    let begin = Instant::now();
    let counting = RunCounting::start(operation)?;
    wait();
    drop(counting);
    let elapsed = begin.elapsed();
    let after = read()?;
    let runs = after.runs.saturating_sub(before.runs);
    Ok((ProgramRuns { runs, time: after.time.saturating_sub(before.time) }, elapsed))
}
