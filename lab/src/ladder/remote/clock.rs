//! How far a far host's clock is ahead of ours, by question and answer.

use std::collections::VecDeque;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// So many readings are kept: clocks drift, and old ones no longer hold.
const KEPT: usize = 8;

/// What is known of a far clock.
#[derive(Debug, Default)]
pub(super) struct FarClock {
    asked: Option<(u64, Instant, u64)>,
    readings: VecDeque<ClockOffset>,
}

/// How far a clock is ahead of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset {
    /// Its `CLOCK_REALTIME` less ours, ns.
    pub ahead_ns: i64,
    /// By how much that may be wrong at most either way, ns: half the time from question to answer.
    pub uncertain_ns: u64,
}

impl FarClock {
    /// The question with this number is about to be sent.
    pub(super) fn asked(&mut self, number: u64) {
        self.asked = Some((number, Instant::now(), realtime_ns()));
    }

    /// Its answer came.
    pub(super) fn answered(&mut self, number: u64, far_realtime_ns: u64) {
        let Some((_, at, realtime_ns)) = self.asked.take_if(|(asked, ..)| *asked == number) else { return };
        let uncertain_ns = u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX) / 2;
        let middle_ns = realtime_ns.saturating_add(uncertain_ns);
        if self.readings.len() == KEPT {
            self.readings.pop_front();
        }
        self.readings.push_back(ClockOffset {
            ahead_ns: far_realtime_ns.wrapping_sub(middle_ns).cast_signed(),
            uncertain_ns,
        });
    }

    /// Readings so far, up to those kept.
    pub(super) fn readings(&self) -> usize {
        self.readings.len()
    }

    /// The best of the last readings; none before the first.
    pub(super) fn offset(&self) -> Option<ClockOffset> {
        self.readings.iter().min_by_key(|reading| reading.uncertain_ns).copied()
    }
}

impl ClockOffset {
    /// Our moment by the far clock.
    pub(super) fn far(&self, near_ns: u64) -> u64 {
        near_ns.saturating_add_signed(self.ahead_ns)
    }

    /// A moment of the far clock by ours.
    pub(super) fn near(&self, far_ns: u64) -> u64 {
        far_ns.saturating_add_signed(self.ahead_ns.saturating_neg())
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
    fn an_offset_is_known_within_half_of_question_and_answer() {
        let mut clock = FarClock::default();
        assert_eq!(clock.offset(), None);
        for number in 0..20 {
            clock.asked(number);
            clock.answered(number + 1, 0);
            clock.answered(number, realtime_ns() - 3_600_000_000_000);
        }
        assert_eq!(clock.readings(), KEPT);
        let offset = clock.offset().expect("a reading");
        let wrong_ns = offset.ahead_ns.abs_diff(-3_600_000_000_000);
        assert!(wrong_ns <= offset.uncertain_ns + 1_000, "{offset:?}");
        assert_eq!(offset.near(offset.far(5_000_000_000_000)), 5_000_000_000_000);
    }
}
