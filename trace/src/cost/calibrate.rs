//! What a thread loses to packets, measured from its own side and beside what tracing says.
//!
//! A thread of user-space work alone is pinned to a CPU and does rounds of arithmetic in slices of a few microseconds, timing
//! each. Slices that nothing came into all take the same time, whatever the load, and those that something came into take
//! each another: the time that comes most often is that of an undisturbed slice. What the thread did in all, against that,
//! is the time it really had. Nothing is traced for that, so it also sees what tracing cannot: the ways into interrupts
//! and out of them, and what a hypervisor takes. A sibling thread of the core that is busy only now and then, or a clock
//! that changes, is taken for loss as well.

pub(super) mod spin;

use std::time::Duration;

use linerate_host::{Host, Known};
use serde::{Deserialize, Serialize};

use super::{CostReport, CostSession, WHAT};
use crate::TraceError;
use spin::{SpinResult, SpinThread};

/// Both methods' answers of the same thread over the same time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostCalibration {
    /// The CPU it was pinned to.
    pub cpu: u32,
    pub tid: u32,
    pub elapsed_ns: u64,
    /// What its speed says it lost.
    pub lost_by_inference_ns: u64,
    /// What tracing says it lost: to packets, to other interrupts, and to other threads.
    pub lost_by_tracing_ns: u64,
    /// Of it, to packets.
    pub taken_ns: u64,
    /// Rounds a second undisturbed.
    pub rounds_per_second: f64,
    /// Interrupts that came to the CPU meanwhile.
    pub interrupts: u64,
    /// What the hypervisor took of that CPU meanwhile, which inference sees and tracing does not.
    pub steal_ns: Known<u64>,
}

impl CostCalibration {
    /// By how much inference finds more lost than tracing, as a share of the time that passed.
    #[must_use]
    pub fn difference(&self) -> f64 {
        let difference = self.lost_by_inference_ns as f64 - self.lost_by_tracing_ns as f64;
        if self.elapsed_ns == 0 { 0.0 } else { difference / self.elapsed_ns as f64 }
    }

    /// What an interrupt takes beyond what tracing sees, if all that inference finds more is for that: below a microsecond on a
    /// machine of its own, some where a hypervisor has to deliver each. None without interrupts.
    #[must_use]
    pub fn unseen_ns_an_interrupt(&self) -> Option<f64> {
        let unseen = self.difference() * self.elapsed_ns as f64;
        (self.interrupts > 0).then(|| unseen / self.interrupts as f64)
    }

    /// The same account of a thread by both methods. The thread began a little later and ended a little earlier than the look,
    /// and did the same in between: shares of one are set against shares of the other.
    fn of(cpu: u32, spun: &SpinResult, cost: &CostReport) -> Option<Self> {
        let of_cpu = cost.cpus.iter().find(|cost| cost.cpu == cpu)?;
        let thread = cost.victims.iter().find(|victim| victim.tid == spun.tid)?;
        let elapsed_ns = nanoseconds(spun.elapsed);
        let scale = spun.elapsed.as_secs_f64() * 1e9 / of_cpu.elapsed_ns.max(1) as f64;
        let scaled = |ns: u64| (ns as f64 * scale) as u64;
        Some(Self {
            cpu,
            tid: spun.tid,
            elapsed_ns,
            lost_by_inference_ns: elapsed_ns.saturating_sub(nanoseconds(spun.undisturbed)),
            lost_by_tracing_ns: elapsed_ns.saturating_sub(scaled(thread.had_ns())),
            taken_ns: scaled(thread.taken_ns),
            rounds_per_second: spun.rounds_per_second,
            interrupts: scaled(of_cpu.interrupts),
            steal_ns: of_cpu.steal_ns.clone(),
        })
    }
}

/// Runs a thread on each of these CPUs, and looks at all CPUs meanwhile.
///
/// # Errors
/// As [`CostReport::observe`]; and where a thread cannot be pinned to its CPU.
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
    // What is checked is tracing itself, and not how well a part of the time stands for all.
    let mut look = CostSession::start(host, None)?.exact();
    spins.iter().for_each(SpinThread::begin);
    look.wait(duration, stop)?;
    spins.iter().for_each(SpinThread::end);
    // Threads go on meanwhile, so that what the look sees last is not something else.
    let mut cost = look.finish(host)?;
    let spun: Vec<Option<SpinResult>> = spins.into_iter().map(SpinThread::join).collect();
    let mut calibrations = Vec::new();
    for (cpu, spun) in cpus.iter().zip(spun) {
        match spun.and_then(|spun| CostCalibration::of(*cpu, &spun, &cost)) {
            Some(calibration) => calibrations.push(calibration),
            None => cost.notes.push(format!("CPU {cpu} was not calibrated: the thread hardly ran there")),
        }
    }
    Ok((cost, calibrations))
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
