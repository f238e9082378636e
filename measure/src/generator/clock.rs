//! The clocks a generator reads.

use std::time::Duration;

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// A reading that took longer than this was interrupted and is repeated.
const CALM_NS: u64 = 2_000;

/// CLOCK_MONOTONIC, ns.
#[inline]
pub(super) fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic)).cast_unsigned()
}

/// CPU time of the calling thread, ns.
pub(super) fn thread_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime)).cast_unsigned()
}

/// CLOCK_REALTIME less CLOCK_MONOTONIC, ns. Receive stamps are in the one, schedules in the other.
pub(super) fn realtime_offset_ns() -> i64 {
    let mut tries = 0;
    loop {
        let before = now_ns();
        let real = nanoseconds(clock_gettime(ClockId::Realtime));
        let spent = now_ns().saturating_sub(before);
        tries += 1;
        if spent < CALM_NS || tries == 4 {
            return real - (before + spent / 2).cast_signed();
        }
    }
}

/// Sleeps until CLOCK_MONOTONIC reads `at_ns`; a signal may end it early.
pub(super) fn sleep_until(at_ns: u64) {
    let second = 1_000_000_000;
    let at = Timespec { tv_sec: (at_ns / second) as _, tv_nsec: (at_ns % second) as _ };
    // The only error an absolute sleep on this clock can meet is a signal: callers loop on the clock.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &at);
}

/// A duration in whole nanoseconds.
pub(super) fn whole_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}

#[inline]
fn nanoseconds(time: Timespec) -> i64 {
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
