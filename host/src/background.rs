//! Observes a busy server without delaying it.

use std::cell::Cell;
use std::fs;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::thread::{CapabilitySet, Pid, capabilities, gettid};
use rustix::time::{ClockId, clock_gettime};

use crate::sys::scheduler;

// CPU time without a pause, and the longest pause.
const BURST: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The pause of a background thread, as a multiple of its burst, if other threads run on the same
/// CPU.
const PAUSE_NEXT_TO_OTHERS: u32 = 9;

/// A background thread returns to its normal policy when it has waited this long for a CPU, and
/// this many times as long as it ran. Next to a server that uses 80 % of all CPUs it waits 4 times
/// as long.
const STARVED: Duration = Duration::from_millis(100);
const STARVED_RATIO: u32 = 10;

thread_local! {
    /// Until the last pause.
    static USED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Times of a thread since its start (/proc/PID/schedstat).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CpuTimes {
    used: Duration,
    /// Able to run, without a CPU.
    waiting: Duration,
}

/// While this exists, the calling thread and the threads it starts run under SCHED_IDLE: a server
/// thread that wakes up gets their CPU at once. Under the normal policy it waits for the end of
/// their time slice, up to some milliseconds. If all CPUs are busy all the time, the calling thread
/// returns to the normal policy after some tenths of a second. Nothing changes without
/// CAP_SYS_NICE, which the return requires (Linux 2.6.39), or if the thread already has a guard.
#[derive(Debug)]
pub struct BackgroundThread {
    /// Ends the thread that checks whether this one starves. `None` if nothing changed.
    watcher: Option<Sender<()>>,
}

impl BackgroundThread {
    #[must_use]
    pub fn enter() -> Self {
        let thread = gettid();
        let (watcher, end) = channel();
        // The watcher starts first, because later it would inherit the policy.
        let is_background = has_sys_nice()
            && scheduler::is_normal()
            && thread::Builder::new().spawn(move || return_if_starved(thread, &end)).is_ok()
            && scheduler::set_idle(thread, true).is_ok();
        Self { watcher: is_background.then_some(watcher) }
    }
}

impl Drop for BackgroundThread {
    fn drop(&mut self) {
        if self.watcher.take().is_some() {
            // It may fail only without CAP_SYS_NICE, which the thread had before.
            let _ = scheduler::set_idle(gettid(), false);
        }
    }
}

fn return_if_starved(thread: Pid, end: &Receiver<()>) {
    let before = CpuTimes::of(thread);
    let (mut last, mut was_runnable) = (before, false);
    while end.recv_timeout(STARVED) == Err(RecvTimeoutError::Timeout) {
        let (now, is_runnable) = (CpuTimes::of(thread), is_runnable(thread));
        // The kernel counts a wait only after it has ended.
        let still_waits = is_runnable && was_runnable && now == last;
        if still_waits || now.is_starved_since(&before) {
            let _ = scheduler::set_idle(thread, false);
            return;
        }
        (last, was_runnable) = (now, is_runnable);
    }
}

fn is_runnable(thread: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('R')))
}

// Returning to the normal policy requires CAP_SYS_NICE.
fn has_sys_nice() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE))
}

impl CpuTimes {
    fn of(thread: Pid) -> Self {
        let path = format!("/proc/self/task/{}/schedstat", thread.as_raw_nonzero());
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut times = text.split_whitespace().map(|ns| Duration::from_nanos(ns.parse().unwrap_or(0)));
        Self { used: times.next().unwrap_or_default(), waiting: times.next().unwrap_or_default() }
    }

    fn is_starved_since(&self, before: &Self) -> bool {
        let waiting = self.waiting.saturating_sub(before.waiting);
        waiting > STARVED.max(self.used.saturating_sub(before.used) * STARVED_RATIO)
    }
}

// Sleeps at least as long as the calling thread has used a CPU since the last pause. A burst of 100
// ms, for example to load BPF programs, can delay a server on that CPU until its buffers are full.
pub(crate) fn pause_after_burst() {
    let cpu_time = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let burst = cpu_time().saturating_sub(USED.get());
    if burst < BURST {
        return;
    }
    let mut pause = burst;
    if scheduler::is_idle() {
        let waiting = CpuTimes::of(gettid()).waiting;
        if waiting.saturating_sub(WAITED.replace(waiting)) > burst / 10 {
            pause *= PAUSE_NEXT_TO_OTHERS;
        }
    }
    thread::sleep(pause.min(LONGEST_PAUSE));
    USED.set(cpu_time());
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    fn pin_to_first_cpu() {
        let allowed = sched_getaffinity(None).expect("CPUs");
        let mut first = CpuSet::new();
        first.set((0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).expect("a CPU"));
        sched_setaffinity(None, &first).expect("pinned");
    }

    #[test]
    fn background_policy_ends_when_the_outer_guard_is_dropped() {
        let before = scheduler::is_normal();
        let guard = BackgroundThread::enter();
        drop(BackgroundThread::enter());
        assert_eq!(scheduler::is_normal(), before && !has_sys_nice());
        drop(guard);
        assert_eq!(scheduler::is_normal(), before);
    }

    #[test]
    fn starved_background_thread_returns_to_the_normal_policy() {
        let (started, is_over) = (Barrier::new(2), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                pin_to_first_cpu();
                started.wait();
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            pin_to_first_cpu();
            started.wait();
            let guard = BackgroundThread::enter();
            let deadline = Instant::now() + STARVED * 100;
            while !scheduler::is_normal() && Instant::now() < deadline {
                thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(scheduler::is_normal());
            drop(guard);
        });
    }

    #[test]
    fn a_thread_is_starved_only_if_waiting_far_exceeds_its_cpu_time() {
        let times = |used, waiting| CpuTimes {
            used: Duration::from_millis(used),
            waiting: Duration::from_millis(waiting),
        };
        let before = times(20, 500);
        assert!(!times(20, 590).is_starved_since(&before) && !times(150, 900).is_starved_since(&before));
        assert!(times(21, 840).is_starved_since(&before));
    }
}
