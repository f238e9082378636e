//! Interrupt time outside the tracepoints: entry and exit, which in a virtual machine are mostly
//! the hypervisor's.
//!
//! Measured on this host: for some bursts of two milliseconds a real-time thread reads the clock
//! continuously on a CPU, while interrupts of one kind are generated. The gap between two reads
//! minus the traced time is the time that no tracepoint sees.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use linerate_host::Known;
use rustix::thread::gettid;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use serde::{Deserialize, Serialize};

use super::calibrate::spin::pin;
use super::cost_tables::{CpuTotals, InterruptCounts, ThreadOn};
use super::tracer::CostTracer;
use super::windows::mean_and_doubt;
use crate::gaps::ClockGaps;
use crate::{TraceError, sys};

const BURSTS: usize = 10;
// Fewer bursts are too uncertain.
const FEWEST_BURSTS: usize = 4;
/// Uncertainty, as a share, above which the hypervisor must have lent the CPU to other guests.
const MOST_DOUBT: f64 = 0.3;
/// Uncertainty that is accepted in any case.
const LITTLE_DOUBT_NS: f64 = 2_000.0;
const BURST: Duration = Duration::from_millis(2);
// The time between bursts, because during a burst other threads do not run on the CPU.
const PAUSE: Duration = Duration::from_millis(6);
/// The time between interrupts: longer than an interrupt takes.
const SPACING: Duration = Duration::from_micros(80);
/// Wait for the other thread.
const PATIENCE: Duration = Duration::from_millis(20);
/// Time per interrupt outside its tracepoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UntracedEstimate {
    pub ns: f64,
    /// The 95 % interval, from the differences between bursts.
    pub low_ns: f64,
    pub high_ns: f64,
    /// Number of interrupts measured.
    pub interrupts: u64,
}

/// Interrupt time outside the tracepoints, by source.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UntracedIrq {
    /// The CPU of the measurement.
    pub cpu: u32,
    /// The CPU's own timer.
    pub by_timer: Known<UntracedEstimate>,
    /// Another CPU, as with RPS. Device interrupts cannot be generated here, and count like these:
    /// both come from outside of the CPU.
    pub by_cpu: Known<UntracedEstimate>,
}

// Nanoseconds and their uncertainty.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct UntracedTime {
    pub(super) ns: f64,
    pub(super) doubt_ns: f64,
}

impl UntracedIrq {
    /// Untraced time of these interrupts. Kinds with unknown time are left out.
    pub(super) fn time_of(&self, interrupts: &InterruptCounts) -> UntracedTime {
        let mut sum = UntracedTime::default();
        let external_count = interrupts.by_cpu + interrupts.by_device;
        for (count, estimate) in [(interrupts.by_timer, &self.by_timer), (external_count, &self.by_cpu)] {
            let Some(estimate) = estimate.value() else { continue };
            let count = count.max(0) as f64;
            sum.ns += count * estimate.ns;
            sum.doubt_ns += count * (estimate.high_ns - estimate.low_ns) / 2.0;
        }
        sum
    }

    pub(super) fn measure(tracer: &CostTracer, cpu: u32) -> Result<Self, TraceError> {
        let by_timer = timer_bursts(cpu);
        let by_cpu = interrupt_bursts(tracer, cpu)?;
        tracer.read_point()?;
        let threads = tracer.tables()?.threads;
        let traced_totals = |tid: u32| threads.get(&ThreadOn { tid, cpu }).map(|turns| turns.taken);
        let estimate = |bursts: io::Result<(u32, Vec<ClockGaps>)>| match bursts {
            Ok((tid, bursts)) => UntracedEstimate::from_bursts(&bursts, traced_totals(tid)),
            Err(error) => Known::unknown(error.to_string()),
        };
        Ok(Self { cpu, by_timer: estimate(by_timer), by_cpu: estimate(by_cpu) })
    }
}

impl UntracedEstimate {
    fn from_bursts(bursts: &[ClockGaps], traced: Option<CpuTotals>) -> Known<Self> {
        let Some(traced) = traced else { return Known::unknown("no interrupt was traced meanwhile") };
        let count = traced.packet_irqs.sum() + traced.other_irqs.sum();
        let means: Vec<f64> = bursts.iter().filter_map(ClockGaps::mean_ns).collect();
        if means.len() < FEWEST_BURSTS || count == 0 {
            return Known::unknown(format!(
                "interrupts were seen in {} of {BURSTS} bursts only: others had the CPU",
                means.len()
            ));
        }
        let traced_ns = (traced.packets() + traced.others()).max(0) as f64 / count as f64;
        let (mean, doubt) = mean_and_doubt(&means);
        let ns = (mean - traced_ns).max(0.0);
        if doubt > LITTLE_DOUBT_NS.max(ns * MOST_DOUBT) {
            return Known::unknown(format!(
                "it varied too much ({:.1} ± {:.1} us), as on a CPU that a hypervisor lends to others",
                ns / 1e3,
                doubt / 1e3
            ));
        }
        Known::Value(Self {
            ns,
            low_ns: (ns - doubt).max(0.0),
            high_ns: ns + doubt,
            interrupts: bursts.iter().map(|burst| burst.count).sum(),
        })
    }
}

/// States of the thread.
const WAIT: u8 = 0;
const SPIN: u8 = 1;
const SPINS: u8 = 2;
const END: u8 = 3;

fn timer_bursts(cpu: u32) -> io::Result<(u32, Vec<ClockGaps>)> {
    spawn_on_cpu(cpu, move || {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let delay = Timespec { tv_sec: 0, tv_nsec: SPACING.as_nanos() as i64 / 2 };
        let timer_spec = Itimerspec { it_interval: zero, it_value: delay };
        let mut bursts = Vec::new();
        for _ in 0..BURSTS {
            let mut burst = ClockGaps::default();
            let begin = Instant::now();
            while begin.elapsed() < BURST {
                timerfd_settime(&timer, TimerfdTimerFlags::empty(), &timer_spec)?;
                burst.watch(|elapsed| elapsed < SPACING);
            }
            bursts.push(burst);
            thread::sleep(PAUSE);
        }
        Ok(bursts)
    })
    .join()
    .unwrap_or_else(|_| Err(io::Error::other("the thread that looks at the clock ended")))
}

fn interrupt_bursts(tracer: &CostTracer, cpu: u32) -> Result<io::Result<(u32, Vec<ClockGaps>)>, TraceError> {
    let stage = Arc::new(AtomicU8::new(WAIT));
    let thread_stage = Arc::clone(&stage);
    let thread = spawn_on_cpu(cpu, move || {
        let mut bursts = Vec::new();
        loop {
            match thread_stage.load(Ordering::Relaxed) {
                END => return Ok(bursts),
                SPIN => {
                    let mut burst = ClockGaps::default();
                    thread_stage.store(SPINS, Ordering::Relaxed);
                    burst
                        .watch(|elapsed| elapsed < PATIENCE && thread_stage.load(Ordering::Relaxed) == SPINS);
                    bursts.push(burst);
                }
                _ => thread::sleep(PAUSE / 10),
            }
        }
    });
    // Without real-time priority the measurement is less reliable.
    let is_real_time = sys::set_real_time(true).is_ok();
    let send_result = send(tracer, cpu, &stage);
    stage.store(END, Ordering::Relaxed);
    if is_real_time {
        // The kernel allowed the change of priority just before.
        let _ = sys::set_real_time(false);
    }
    let join_result = thread.join();
    send_result?;
    Ok(join_result.unwrap_or_else(|_| Err(io::Error::other("the thread that looks at the clock ended"))))
}

fn send(tracer: &CostTracer, cpu: u32, stage: &AtomicU8) -> Result<(), TraceError> {
    for _ in 0..BURSTS {
        stage.store(SPIN, Ordering::Relaxed);
        let wait_begin = Instant::now();
        while stage.load(Ordering::Relaxed) != SPINS {
            if wait_begin.elapsed() > PATIENCE {
                return Ok(());
            }
            thread::yield_now();
        }
        let begin = Instant::now();
        while begin.elapsed() < BURST {
            let send_time = Instant::now();
            tracer.interrupt(cpu)?;
            while send_time.elapsed() < SPACING {
                std::hint::spin_loop();
            }
        }
        stage.store(WAIT, Ordering::Relaxed);
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Runs a closure in a thread on a CPU, with real-time priority if allowed; also returns the
/// thread's id.
fn spawn_on_cpu<T: Send + 'static>(
    cpu: u32,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> thread::JoinHandle<io::Result<(u32, T)>> {
    thread::spawn(move || {
        pin(cpu)?;
        // Without real-time priority, other threads may interrupt, which is visible.
        let _ = sys::set_real_time(true);
        Ok((gettid().as_raw_nonzero().get().unsigned_abs(), work()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_is_unknown_if_bursts_vary_too_much() {
        let traced = |count| CpuTotals {
            other_irq: count * 1_000,
            other_irqs: InterruptCounts { by_timer: count, ..Default::default() },
            ..Default::default()
        };
        let bursts = |means: [u64; 4]| means.map(|mean| ClockGaps { count: 20, ns: 20 * mean });
        let of = |means| UntracedEstimate::from_bursts(&bursts(means), Some(traced(80)));
        let Known::Value(steady) = of([7_000, 7_400, 7_200, 6_800]) else { panic!("no estimate") };
        assert!((steady.ns - 6_100.0).abs() < 1.0 && steady.low_ns > 5_000.0, "{steady:?}");
        let Known::Unknown { why } = of([7_000, 60_000, 7_200, 30_000]) else {
            panic!("an estimate of varying bursts")
        };
        assert!(why.contains("varied too much"), "{why}");
        // Without a hypervisor the untraced time is a fraction of a microsecond.
        assert!(of([1_050, 1_900, 1_100, 1_200]).value().is_some());
    }
}
