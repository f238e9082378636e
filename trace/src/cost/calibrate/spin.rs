//! A thread with a known speed.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, gettid, sched_setaffinity};

// Minimum duration of a slice: far longer than a clock read, shorter than the time between
// interrupts.
const SLICE: Duration = Duration::from_micros(2);

/// Slices by duration, in steps of this size; longer slices are certainly disturbed.
const STEP_NS: usize = 16;
const STEPS: usize = 4096;

/// Steps that count as one duration.
const WINDOW: usize = 3;

// Nearly as frequent: at least one in this many of the slices of the most frequent duration.
const NEARLY: u64 = 3;

// An interrupt lengthens a slice by at least this factor: 0.6 us.
const INTERRUPTED: f64 = 1.3;

// A core's clock and its sibling lengthen a slice by less than this factor; interrupts can by more.
const SLOWEST: usize = 2;

// At least one slice in this many is undisturbed, even if interrupts take most of the CPU.
const RAREST: u64 = 1000;

/// Slices judged together: at least 8 ms, in which the clock of a core, its sibling and
/// other guests of a hypervisor seldom change.
const TOGETHER: u64 = 4096;

// States of the thread: wait, count, spin until it is joined, end.
const WAIT: u8 = 0;
const COUNT: u8 = 1;
const LINGER: u8 = 2;
const END: u8 = 3;

/// A thread that spins on a CPU. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct SpinThread {
    wanted: Arc<AtomicU8>,
    thread: Option<JoinHandle<Option<SpinResult>>>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct SpinResult {
    pub(super) tid: u32,
    pub(super) elapsed: Duration,
    pub(super) undisturbed: Duration,
    pub(super) rounds_per_second: f64,
}

impl SpinThread {
    pub(super) fn start(cpu: u32) -> io::Result<Self> {
        let stage = Arc::new(AtomicU8::new(WAIT));
        let (pin_sender, pin_receiver) = mpsc::channel();
        let thread_stage = Arc::clone(&stage);
        let thread = thread::Builder::new().name(format!("calibrate/{cpu}")).spawn(move || {
            let pin_result = pin(cpu);
            let is_pinned = pin_result.is_ok();
            // The receiver is gone only after a panic.
            let _ = pin_sender.send(pin_result);
            if is_pinned { spin(&thread_stage) } else { None }
        })?;
        pin_receiver.recv().map_err(io::Error::other)??;
        Ok(Self { wanted: stage, thread: Some(thread) })
    }

    pub(super) fn begin(&self) {
        self.wanted.store(COUNT, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.wanted.store(LINGER, Ordering::Relaxed);
    }

    // `None` if it never started to count.
    pub(super) fn join(mut self) -> Option<SpinResult> {
        self.wanted.store(END, Ordering::Relaxed);
        self.thread.take()?.join().ok().flatten()
    }
}

impl Drop for SpinThread {
    fn drop(&mut self) {
        self.wanted.store(END, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(in crate::cost) fn pin(cpu: u32) -> io::Result<()> {
    if cpu as usize >= CpuSet::MAX_CPU {
        return Err(io::Error::other(format!("a thread cannot be pinned to CPU {cpu}")));
    }
    let mut mask = CpuSet::new();
    mask.set(cpu as usize);
    sched_setaffinity(None, &mask).map_err(|error| {
        io::Error::new(
            io::Error::from(error).kind(),
            format!("a thread cannot be pinned to CPU {cpu}: {error}"),
        )
    })
}

fn spin(target_stage: &AtomicU8) -> Option<SpinResult> {
    let rounds = rounds_a_slice();
    let stage = || target_stage.load(Ordering::Relaxed);
    while stage() == WAIT {
        slice(rounds);
    }
    let mut slices = SliceDurations::new();
    let begin = Instant::now();
    let mut last = begin;
    while stage() == COUNT {
        slice(rounds);
        let now = Instant::now();
        slices.add(now - last);
        last = now;
    }
    let elapsed = last - begin;
    while stage() != END {
        slice(rounds);
    }
    let (undisturbed, count) = slices.finish()?;
    Some(SpinResult {
        tid: gettid().as_raw_nonzero().get().unsigned_abs(),
        elapsed,
        undisturbed,
        rounds_per_second: (rounds * count) as f64 / undisturbed.as_secs_f64(),
    })
}

/// Rounds in registers only, each of which depends on the previous one.
fn slice(rounds: u64) {
    let mut number = black_box(1_u64);
    for _ in 0..rounds {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    black_box(number);
}

// Number of rounds for which the fastest of some slices takes [`SLICE`].
fn rounds_a_slice() -> u64 {
    let mut rounds = 64;
    loop {
        let fastest = (0..50)
            .map(|_| {
                let begin = Instant::now();
                slice(rounds);
                begin.elapsed()
            })
            .min();
        if fastest >= Some(SLICE) || rounds > 1 << 24 {
            return rounds;
        }
        rounds += rounds / 4;
    }
}

struct SliceDurations {
    /// Number of slices to judge next.
    count: u64,
    /// Count and sum by duration.
    durations: Vec<(u64, u64)>,
    /// Undisturbed duration of the judged slices, and their number.
    undisturbed: Duration,
    judged: u64,
}

impl SliceDurations {
    fn new() -> Self {
        Self { count: 0, durations: vec![(0, 0); STEPS], undisturbed: Duration::ZERO, judged: 0 }
    }

    fn add(&mut self, duration: Duration) {
        self.count += 1;
        let ns = duration.as_nanos() as usize;
        if let Some((count, sum)) = self.durations.get_mut(ns / STEP_NS) {
            *count += 1;
            *sum += ns as u64;
        }
        if self.count == TOGETHER {
            self.judge();
        }
    }

    // Undisturbed duration of all slices, and their number; `None` without any.
    fn finish(mut self) -> Option<(Duration, u64)> {
        // If the last slices are too few, the result of the slices before applies to them.
        if self.judged == 0 || self.count > TOGETHER / 4 {
            self.judge();
        }
        let judged_count = Some(self.judged).filter(|judged_count| *judged_count > 0)?;
        let total_count = judged_count + self.count;
        Some((self.undisturbed.mul_f64(total_count as f64 / judged_count as f64), total_count))
    }

    fn judge(&mut self) {
        if let Some(duration) = most_frequent(&self.durations) {
            self.undisturbed += duration.mul_f64(self.count as f64);
            self.judged += self.count;
            self.count = 0;
        }
        self.durations.fill((0, 0));
    }
}

// The mean around the most frequent duration. If interrupts leave room for only a slice or two,
// equally lengthened slices may be as frequent; then the shortest nearly as frequent duration
// counts. They may also be far more frequent, if nearly every slice is interrupted; so only
// durations near the shortest are considered.
fn most_frequent(durations: &[(u64, u64)]) -> Option<Duration> {
    let totals = |window: &[(u64, u64)]| {
        window.iter().fold((0, 0), |(counts, sums), (count, sum)| (counts + count, sums + sum))
    };
    let mean = |(count, sum): (u64, u64)| Duration::from_secs_f64(sum as f64 / count as f64 / 1e9);
    let threshold = durations.iter().map(|(count, _)| count).sum::<u64>().div_ceil(RAREST);
    let fastest = durations.windows(WINDOW).position(|window| totals(window).0 >= threshold)?;
    let longest = durations.len().min((fastest + WINDOW) * SLOWEST);
    let windows = || durations[..longest].windows(WINDOW).map(totals);
    let peak = windows().max_by_key(|(count, _)| *count).filter(|(count, _)| *count > 0)?;
    let first_frequent = windows().position(|(count, _)| count * NEARLY >= peak.0)?;
    let shortest = windows().skip(first_frequent).take(WINDOW).max_by_key(|(count, _)| *count)?;
    // A smaller difference is the clock of the core.
    Some(if mean(shortest).mul_f64(INTERRUPTED) < mean(peak) { mean(shortest) } else { mean(peak) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undisturbed_slice_is_the_most_frequent_duration() {
        assert_eq!(SliceDurations::new().finish(), None);
        let mut slices = SliceDurations::new();
        // Four of five are disturbed, each differently, and some run at a faster clock.
        for number in 0..9999_u64 {
            let ns = match number % 5 {
                0 => 3000 + number % 3,
                1 => 2900 - number % 200,
                _ => 3100 + number * 37 % 80_000,
            };
            slices.add(Duration::from_nanos(ns));
        }
        slices.add(Duration::from_secs(3));
        let (undisturbed, count) = slices.finish().expect("slices");
        assert_eq!(count, 10_000);
        let slice_ns = undisturbed.as_nanos() / 10_000;
        assert!((2995..3010).contains(&slice_ns), "{slice_ns}");
    }

    #[test]
    fn undisturbed_slice_is_found_if_most_slices_are_interrupted() {
        // 60 % and 92 % are interrupted.
        for (of, undisturbed, interrupted_ns) in [(5, 2, 14_000), (12, 1, 13_600)] {
            let mut slices = SliceDurations::new();
            for number in 0..8192_u64 {
                let is_undisturbed = number % of < undisturbed;
                let ns = if is_undisturbed { 3000 + number % 3 } else { interrupted_ns + number % 16 };
                slices.add(Duration::from_nanos(ns));
            }
            let (undisturbed, count) = slices.finish().expect("slices");
            let slice_ns = undisturbed.as_nanos() / u128::from(count);
            assert!((2995..3010).contains(&slice_ns), "{slice_ns}");
        }
    }

    #[test]
    fn spin_before_begin_returns_none_and_a_missing_cpu_is_refused() {
        let mask = rustix::thread::sched_getaffinity(None).expect("CPUs");
        let cpu = (0..CpuSet::MAX_CPU).find(|cpu| mask.is_set(*cpu)).expect("a CPU");
        let spin = SpinThread::start(cpu as u32).expect("pinned");
        assert_eq!(spin.join(), None);
        let error = SpinThread::start(CpuSet::MAX_CPU as u32).expect_err("no such CPU");
        assert!(error.to_string().contains("cannot be pinned to CPU"), "{error}");
    }
}
