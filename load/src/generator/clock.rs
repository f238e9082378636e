//! The clocks a generator reads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::error::GeneratorError;

// A longer reading was interrupted, and is repeated.
const CALM_NS: u64 = 2_000;

// The last reading of the clock before a requested start: enough time to wake up on a busy host.
const LAST_READING_NS: u64 = 1_000_000_000;

const CANCEL_POLL_NS: u64 = 20_000_000;

// CLOCK_MONOTONIC, ns.
#[inline]
pub(super) fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic)).cast_unsigned()
}

// CPU time of the calling thread, ns.
pub(super) fn thread_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime)).cast_unsigned()
}

// CLOCK_REALTIME minus CLOCK_MONOTONIC, ns. Receive stamps use the former, schedules the latter.
pub(super) fn realtime_offset_ns() -> i64 {
    let mut tries = 0;
    loop {
        let start_ns = now_ns();
        let realtime_ns = nanoseconds(clock_gettime(ClockId::Realtime));
        let elapsed_ns = now_ns().saturating_sub(start_ns);
        tries += 1;
        if elapsed_ns < CALM_NS || tries == 4 {
            return realtime_ns - (start_ns + elapsed_ns / 2).cast_signed();
        }
    }
}

// Sleeps until CLOCK_MONOTONIC reads `at_ns`; a signal may end the sleep early.
pub(super) fn sleep_until(at_ns: u64) {
    let second_ns = 1_000_000_000;
    let wake_time = Timespec { tv_sec: (at_ns / second_ns) as _, tv_nsec: (at_ns % second_ns) as _ };
    // The only error an absolute sleep on this clock can meet is a signal: callers loop on the clock.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &wake_time);
}

// Start of a slot, ns of CLOCK_MONOTONIC and of CLOCK_REALTIME: the requested time, or as soon as
// `lead_ns` allows. Waits until a requested time is near, because the clock may be set before.
pub(super) fn slot_start(
    at_realtime_ns: Option<u64>,
    lead_ns: u64,
    cancel: &AtomicBool,
) -> Result<(u64, u64), GeneratorError> {
    loop {
        let offset_ns = realtime_offset_ns();
        let earliest_ns = now_ns() + lead_ns;
        let Some(at_realtime_ns) = at_realtime_ns else {
            return Ok((earliest_ns, earliest_ns.saturating_add_signed(offset_ns)));
        };
        let at_ns = at_realtime_ns.saturating_add_signed(offset_ns.saturating_neg());
        if at_ns < earliest_ns {
            let ago_ns = (earliest_ns - lead_ns).saturating_sub(at_ns);
            return Err(GeneratorError::StartIsOver {
                lead: Duration::from_nanos(lead_ns),
                ago: Duration::from_nanos(ago_ns),
            });
        }
        if at_ns - earliest_ns <= LAST_READING_NS || cancel.load(Ordering::Relaxed) {
            return Ok((at_ns, at_realtime_ns));
        }
        sleep_until(now_ns() + CANCEL_POLL_NS);
    }
}

// A duration in whole nanoseconds.
pub(super) fn whole_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}

#[inline]
fn nanoseconds(time: Timespec) -> i64 {
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_computed_when_it_is_near() {
        let at_ns = (now_ns() + LAST_READING_NS + 100_000_000).saturating_add_signed(realtime_offset_ns());
        let start = |cancelled| slot_start(Some(at_ns), 0, &AtomicBool::new(cancelled)).unwrap();
        assert!(start(true).0 > now_ns() + LAST_READING_NS, "a cancelled slot does not wait");
        assert!(start(false).0 <= now_ns() + LAST_READING_NS);
    }
}
