//! For how long something is looked at.

use std::time::{Duration, Instant};

/// How often `stop` is asked.
const PATIENCE: Duration = Duration::from_millis(50);

/// Waits for this long, or until `stop` says so; for how long it was.
pub fn wait(duration: Duration, stop: &dyn Fn() -> bool) -> Duration {
    let begin = Instant::now();
    while !stop() {
        let left = duration.saturating_sub(begin.elapsed());
        if left.is_zero() {
            break;
        }
        std::thread::sleep(left.min(PATIENCE));
    }
    begin.elapsed()
}

/// CPU time of this thread until now, ns.
pub(crate) fn thread_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
