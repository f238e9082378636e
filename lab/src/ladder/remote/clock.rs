//! The offset of a remote host's clock, measured by question and answer.

use std::collections::VecDeque;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// Readings that are kept. Clocks drift, so old readings become wrong.
const KEPT: usize = 8;

#[derive(Debug, Default)]
pub(super) struct RemoteClock {
    asked: Option<(u64, Instant, u64)>,
    readings: VecDeque<ClockOffset>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset {
    /// Remote `CLOCK_REALTIME` minus the local one, ns.
    pub ahead_ns: i64,
    /// Largest error in either direction, ns: half the time from question to answer.
    pub uncertain_ns: u64,
}

impl RemoteClock {
    /// Call before the question with this number is sent.
    pub(super) fn record_ping(&mut self, number: u64) {
        self.asked = Some((number, Instant::now(), realtime_ns()));
    }

    pub(super) fn record_pong(&mut self, number: u64, remote_realtime_ns: u64) {
        let Some((_, sent_at, realtime_ns)) =
            self.asked.take_if(|(pending_number, ..)| *pending_number == number)
        else {
            return;
        };
        let uncertain_ns = u64::try_from(sent_at.elapsed().as_nanos()).unwrap_or(u64::MAX) / 2;
        let middle_ns = realtime_ns.saturating_add(uncertain_ns);
        if self.readings.len() == KEPT {
            self.readings.pop_front();
        }
        self.readings.push_back(ClockOffset {
            ahead_ns: remote_realtime_ns.wrapping_sub(middle_ns).cast_signed(),
            uncertain_ns,
        });
    }

    pub(super) fn readings(&self) -> usize {
        self.readings.len()
    }

    /// The best of the last readings.
    pub(super) fn offset(&self) -> Option<ClockOffset> {
        self.readings.iter().min_by_key(|reading| reading.uncertain_ns).copied()
    }
}

impl ClockOffset {
    pub(super) fn to_remote(self, local_ns: u64) -> u64 {
        local_ns.saturating_add_signed(self.ahead_ns)
    }

    pub(super) fn to_local(self, remote_ns: u64) -> u64 {
        remote_ns.saturating_add_signed(self.ahead_ns.saturating_neg())
    }
}

/// `CLOCK_REALTIME`, ns.
pub(super) fn realtime_ns() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_offset_error_is_within_the_reported_uncertainty() {
        let mut clock = RemoteClock::default();
        assert_eq!(clock.offset(), None);
        for number in 0..20 {
            clock.record_ping(number);
            clock.record_pong(number + 1, 0);
            clock.record_pong(number, realtime_ns() - 3_600_000_000_000);
        }
        assert_eq!(clock.readings(), KEPT);
        let offset = clock.offset().expect("a reading");
        let error_ns = offset.ahead_ns.abs_diff(-3_600_000_000_000);
        assert!(error_ns <= offset.uncertain_ns + 1_000, "{offset:?}");
        assert_eq!(offset.to_local(offset.to_remote(5_000_000_000_000)), 5_000_000_000_000);
    }
}
