//! The clock of arrival timestamps.

use rustix::time::{ClockId, clock_gettime};

// CLOCK_REALTIME, ns: the clock of SO_TIMESTAMPNS.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    // A clock before 1970 is not useful for measurements.
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap_or(0)
}
