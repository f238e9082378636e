//! Duration of observations.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Interval at which `stop` is checked.
const PATIENCE: Duration = Duration::from_millis(50);

/// Waits until the time is over or `stop` returns true; returns the elapsed time.
pub fn wait(duration: Duration, stop: &dyn Fn() -> bool) -> Duration {
    let begin = Instant::now();
    while !stop() {
        let remaining = duration.saturating_sub(begin.elapsed());
        if remaining.is_zero() {
            break;
        }
        std::thread::sleep(remaining.min(PATIENCE));
    }
    begin.elapsed()
}

// CPU time of this thread, ns.
pub(crate) fn thread_ns() -> u64 {
    clock_ns(ClockId::ThreadCPUTime)
}

pub(crate) fn clock_ns(clock: ClockId) -> u64 {
    let time = Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
