//! The clock that is served, and its state.

use std::time::{Duration, Instant, SystemTime};

use super::packet::{LeapIndicator, NtpTimestamp};
use crate::sys::adjtimex;

// How long the state of the kernel's clock is cached.
const FRESH: Duration = Duration::from_secs(1);

pub trait ServedClock: Send {
    fn now(&mut self) -> NtpTimestamp;
    /// This clock's time when the system's real-time clock was at `system`. Default: unknown.
    fn at(&mut self, system: SystemTime) -> Option<NtpTimestamp> {
        let _ = system;
        None
    }
    fn status(&mut self) -> ClockStatus;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockStatus {
    /// [`LeapIndicator::Unsynchronised`] if nothing disciplines the clock.
    pub leap: LeapIndicator,
    pub max_error: Duration,
    /// When this state was read.
    pub at: NtpTimestamp,
}

/// The system's real-time clock. The program that disciplines it reports to the kernel whether it is synchronized
/// (`adjtimex`, `STA_UNSYNC`; kernel/time/ntp.c). The state is read once per second.
#[derive(Debug, Clone, Default)]
pub struct SystemClock {
    read: Option<(Instant, ClockStatus)>,
}

impl ServedClock for SystemClock {
    #[inline]
    fn now(&mut self) -> NtpTimestamp {
        NtpTimestamp::now()
    }

    #[inline]
    fn at(&mut self, system: SystemTime) -> Option<NtpTimestamp> {
        Some(system.into())
    }

    fn status(&mut self) -> ClockStatus {
        let now = Instant::now();
        match self.read {
            Some((read_at, status)) if now.duration_since(read_at) < FRESH => status,
            _ => {
                let status = kernel_status();
                self.read = Some((now, status));
                status
            }
        }
    }
}

fn kernel_status() -> ClockStatus {
    let at = NtpTimestamp::now();
    match adjtimex::read() {
        Ok(clock) => ClockStatus {
            leap: leap(clock.state, clock.status),
            max_error: Duration::from_micros(clock.max_error_us.max(0).cast_unsigned()),
            at,
        },
        // Refused in some sandboxes.
        Err(_) => ClockStatus { leap: LeapIndicator::Unsynchronised, max_error: Duration::ZERO, at },
    }
}

fn leap(state: i32, status: i32) -> LeapIndicator {
    match state {
        _ if status & libc::STA_UNSYNC != 0 => LeapIndicator::Unsynchronised,
        libc::TIME_ERROR => LeapIndicator::Unsynchronised,
        libc::TIME_INS => LeapIndicator::Insert,
        libc::TIME_DEL => LeapIndicator::Delete,
        _ => LeapIndicator::None,
    }
}

/// Log2 of the clock's precision in seconds (RFC 5905, section 7.3): the time of a reading, the shortest of a hundred.
#[must_use]
pub fn measure_precision(clock: &mut impl ServedClock) -> i8 {
    let shortest = (0..100)
        .filter_map(|_| {
            let earlier = clock.now();
            // A clock that ticks more slowly returns the same time several times.
            (0..100_000).map(|_| clock.now().seconds_since(earlier)).find(|seconds| *seconds > 0.0)
        })
        .fold(1.0, f64::min);
    shortest.log2().ceil().clamp(-32.0, 0.0) as i8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leap_indicator_follows_the_kernel_clock_state() {
        assert_eq!(leap(libc::TIME_OK, 0), LeapIndicator::None);
        assert_eq!(leap(libc::TIME_INS, libc::STA_INS), LeapIndicator::Insert);
        assert_eq!(leap(libc::TIME_DEL, libc::STA_DEL), LeapIndicator::Delete);
        assert_eq!(leap(libc::TIME_ERROR, 0), LeapIndicator::Unsynchronised);
        assert_eq!(leap(libc::TIME_OK, libc::STA_UNSYNC), LeapIndicator::Unsynchronised);
    }

    /// The current time, and the units of 2^-32 s by which each reading advances the time.
    struct TickingClock(u64, u64);

    impl ServedClock for TickingClock {
        fn now(&mut self) -> NtpTimestamp {
            self.0 += self.1;
            NtpTimestamp::from_bytes(self.0.to_be_bytes())
        }

        fn status(&mut self) -> ClockStatus {
            ClockStatus { leap: LeapIndicator::None, max_error: Duration::ZERO, at: NtpTimestamp::UNKNOWN }
        }
    }

    #[test]
    fn precision_is_the_duration_of_a_clock_reading() {
        assert_eq!(measure_precision(&mut TickingClock(1 << 60, 1 << 12)), -20);
        assert_eq!(measure_precision(&mut TickingClock(1 << 60, (1 << 12) - 1)), -20);
        assert_eq!(measure_precision(&mut TickingClock(1 << 60, (1 << 12) + 1)), -19);
        assert_eq!(measure_precision(&mut TickingClock(1 << 60, 0)), 0, "a clock that stands still");
        let precision = measure_precision(&mut SystemClock::default());
        assert!((-32..=-5).contains(&precision), "{precision}");
    }
}
