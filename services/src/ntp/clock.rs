//! The clock that is served, and whether it may be trusted.

use std::time::{Duration, Instant, SystemTime};

use super::packet::LeapIndicator;
use super::timestamp::NtpTimestamp;
use crate::sys::adjtimex;

/// How long what the kernel said of its clock is taken for true.
const FRESH: Duration = Duration::from_secs(1);

/// A clock to serve.
pub trait ServedClock: Send {
    fn now(&mut self) -> NtpTimestamp;
    /// What it was at when the system's real-time clock was at `system`. Default: not known.
    fn at(&mut self, system: SystemTime) -> Option<NtpTimestamp> {
        let _ = system;
        None
    }
    /// Whether it is right, and how far off it may be.
    fn status(&mut self) -> ClockStatus;
}

/// What is known of a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockStatus {
    /// [`LeapIndicator::Unsynchronised`] where nobody sets the clock right.
    pub leap: LeapIndicator,
    /// How far off it may be.
    pub max_error: Duration,
    /// When this was found.
    pub at: NtpTimestamp,
}

/// The system's real-time clock. Whether it is synchronised is what the kernel was told by who disciplines it (`adjtimex`,
/// `STA_UNSYNC`; kernel/time/ntp.c), read again after a second.
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
            Some((at, status)) if now.duration_since(at) < FRESH => status,
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
        // Refused in some sandboxes. A clock of which nothing is known is not passed off as right.
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

/// Log2 of the clock's precision in seconds, measured as RFC 5905, section 7.3 has it: the time that reading it takes, the
/// shortest of a hundred, since the others were interrupted.
#[must_use]
pub fn measure_precision(clock: &mut impl ServedClock) -> i8 {
    let shortest = (0..100)
        .filter_map(|_| {
            let earlier = clock.now();
            // A clock that ticks slower than it is read shows its tick.
            (0..100_000).map(|_| clock.now().seconds_since(earlier)).find(|seconds| *seconds > 0.0)
        })
        .fold(1.0, f64::min);
    shortest.log2().ceil().clamp(-32.0, 0.0) as i8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_word_is_taken() {
        assert_eq!(leap(libc::TIME_OK, 0), LeapIndicator::None);
        assert_eq!(leap(libc::TIME_INS, libc::STA_INS), LeapIndicator::Insert);
        assert_eq!(leap(libc::TIME_DEL, libc::STA_DEL), LeapIndicator::Delete);
        assert_eq!(leap(libc::TIME_ERROR, 0), LeapIndicator::Unsynchronised);
        assert_eq!(leap(libc::TIME_OK, libc::STA_UNSYNC), LeapIndicator::Unsynchronised);
    }

    /// A clock that goes on by so many units (2^-32 s) each time it is read.
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
    fn precision_is_what_reading_takes() {
        assert_eq!(measure_precision(&mut TickingClock(1 << 60, 1 << 12)), -20);
        assert_eq!(measure_precision(&mut TickingClock(1 << 60, (1 << 12) - 1)), -20);
        assert_eq!(measure_precision(&mut TickingClock(1 << 60, (1 << 12) + 1)), -19);
        assert_eq!(measure_precision(&mut TickingClock(1 << 60, 0)), 0, "a clock that stands still");
        let precision = measure_precision(&mut SystemClock::default());
        assert!((-32..=-5).contains(&precision), "{precision}");
    }
}
