//! Observing a busy server without delaying it.

use std::cell::Cell;
use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::sys::scheduler;

// CPU time used without a pause, and the longest pause.
const BURST: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// A background thread that waits longer than this for a CPU returns to its normal policy.
const STARVED: Duration = Duration::from_millis(100);

/// CAP_SYS_NICE in include/uapi/linux/capability.h. Returning to the normal policy requires it.
const SYS_NICE: u32 = 23;

thread_local! {
    /// CPU time up to the last pause.
    static USED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    /// Waiting time for CPUs when the thread went to the background; `None` in the foreground.
    static WAITED: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// While this exists, the calling thread and the threads it starts run under SCHED_IDLE: a thread of
/// a server that wakes up gets their CPU at once. Under the normal policy it waits for the end of
/// their time slice, up to some milliseconds. Where no CPU is idle, the calling thread returns to
/// the normal policy after about 0.1 s of waiting.
#[derive(Debug)]
pub struct BackgroundThread(());

impl BackgroundThread {
    #[must_use]
    pub fn enter() -> Self {
        let may_return = fs::read_to_string("/proc/thread-self/status").is_ok_and(|status| may_raise(&status));
        if may_return && scheduler::is_normal() && scheduler::set_idle(true).is_ok() {
            WAITED.set(Some(waiting_time()));
        }
        Self(())
    }
}

impl Drop for BackgroundThread {
    fn drop(&mut self) {
        to_foreground();
    }
}

fn to_foreground() {
    if WAITED.take().is_some() {
        // It may fail only without CAP_SYS_NICE, which the thread had before.
        let _ = scheduler::set_idle(false);
    }
}

fn may_raise(status: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).is_some_and(|set| set >> SYS_NICE & 1 == 1)
}

/// Time this thread could run and waited for a CPU (/proc/PID/schedstat, second number).
fn waiting_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split_whitespace().nth(1).and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

// Sleeps for as long as the calling thread has used a CPU since the last pause. A burst of 100 ms,
// for example to load BPF programs, can delay a server on that CPU until its buffers are full.
pub(crate) fn pause_after_burst() {
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let burst = used().saturating_sub(USED.get());
    if burst >= BURST {
        if WAITED.get().is_some_and(|before| waiting_time().saturating_sub(before) > STARVED) {
            to_foreground();
        }
        std::thread::sleep(burst.min(LONGEST_PAUSE));
        USED.set(used());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_background_ends_with_its_guard() {
        let before = scheduler::is_normal();
        let guard = BackgroundThread::enter();
        let status = fs::read_to_string("/proc/thread-self/status").expect("status");
        assert_eq!(scheduler::is_normal(), before && !may_raise(&status));
        drop(guard);
        assert_eq!(scheduler::is_normal(), before);
    }

    #[test]
    fn a_thread_that_could_not_return_stays() {
        assert!(may_raise("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        // Docker's default set.
        assert!(!may_raise("CapEff:\t00000000a80425fb\n"));
        assert!(!may_raise("Name:\tx\n"));
    }
}
