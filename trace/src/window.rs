//! Duration of observations.

use std::time::{Duration, Instant};

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
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
