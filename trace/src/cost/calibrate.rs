//! The loss of a thread to packets, measured from its own side, for comparison with tracing.
//!
//! A thread that only uses user space is pinned to a CPU and computes in slices of a few
//! microseconds, each timed. Undisturbed slices take the same time under any load, disturbed ones
//! vary: the most frequent of the short durations is that of an undisturbed slice. The total work
//! multiplied by that gives the CPU time that the thread really had. The loss includes time that
//! tracing cannot see: entry and exit of interrupts, and hypervisor time. Variations of a sibling
//! thread or of the clock also count as loss.

pub(super) mod spin;

use std::time::Duration;

use linerate_host::{Host, Known};
use serde::{Deserialize, Serialize};

use super::windows::nanoseconds;
use super::{CostReport, CostSession, WHAT};
use crate::TraceError;
use spin::{SpinResult, SpinThread};

/// Both methods' results for the same thread over the same time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostCalibration {
    pub cpu: u32,
    pub tid: u32,
    pub elapsed_ns: u64,
    pub lost_by_inference_ns: u64,
    /// To packets, other interrupts, and other threads.
    pub lost_by_tracing_ns: u64,
    /// The part lost to packets.
    pub taken_ns: u64,
    /// Undisturbed.
    pub rounds_per_second: f64,
    /// On the CPU during the measurement.
    pub interrupts: u64,
    /// Hypervisor time, which inference includes and tracing does not.
    pub steal_ns: Known<u64>,
}

impl CostCalibration {
    /// Additional loss found by inference, as a share of the elapsed time.
    pub fn difference(&self) -> f64 {
        let difference = self.lost_by_inference_ns as f64 - self.lost_by_tracing_ns as f64;
        if self.elapsed_ns == 0 { 0.0 } else { difference / self.elapsed_ns as f64 }
    }

    /// The thread started a little later and ended a little earlier than the trace, and did the
    /// same work in between. Therefore shares of time are compared, not times.
    fn from_spin(cpu: u32, spin: &SpinResult, cost: &CostReport) -> Option<Self> {
        let cpu_cost = cost.cpus.iter().find(|cost| cost.cpu == cpu)?;
        let thread = cost.victims.iter().find(|victim| victim.tid == spin.tid)?;
        let elapsed_ns = nanoseconds(spin.elapsed);
        let scale = spin.elapsed.as_secs_f64() * 1e9 / cpu_cost.elapsed_ns.max(1) as f64;
        let scaled = |ns: u64| (ns as f64 * scale) as u64;
        Some(Self {
            cpu,
            tid: spin.tid,
            elapsed_ns,
            lost_by_inference_ns: elapsed_ns.saturating_sub(nanoseconds(spin.undisturbed)),
            lost_by_tracing_ns: elapsed_ns.saturating_sub(scaled(thread.had_ns())),
            taken_ns: scaled(thread.taken_ns),
            rounds_per_second: spin.rounds_per_second,
            interrupts: scaled(cpu_cost.interrupts),
            steal_ns: cpu_cost.steal_ns.clone(),
        })
    }
}

/// Runs a thread on each of these CPUs while all CPUs are traced.
///
/// # Errors
/// As [`CostSession::start`]; and if a thread cannot be pinned to its CPU.
pub fn calibrate(
    host: &Host,
    cpus: &[u32],
    duration: Duration,
    stop: &dyn Fn() -> bool,
) -> Result<(CostReport, Vec<CostCalibration>), TraceError> {
    let spins = cpus
        .iter()
        .map(|cpu| SpinThread::start(*cpu).map_err(|source| TraceError::Kernel { what: WHAT, source }))
        .collect::<Result<Vec<_>, _>>()?;
    // The comparison is about tracing itself, not about extrapolation.
    let mut session = CostSession::start(host, None, false)?.exact();
    spins.iter().for_each(SpinThread::begin);
    session.wait(duration, stop)?;
    spins.iter().for_each(SpinThread::end);
    // Threads go on meanwhile, so that the trace ends with the same activity.
    let mut cost = session.finish(host)?;
    let spin_results: Vec<Option<SpinResult>> = spins.into_iter().map(SpinThread::join).collect();
    let mut calibrations = Vec::new();
    for (cpu, spin_result) in cpus.iter().zip(spin_results) {
        match spin_result.and_then(|spin_result| CostCalibration::from_spin(*cpu, &spin_result, &cost)) {
            Some(calibration) => calibrations.push(calibration),
            None => cost.notes.push(format!("CPU {cpu} was not calibrated: the thread hardly ran there")),
        }
    }
    Ok((cost, calibrations))
}
