//! Gaps in a thread's time, seen by the thread itself: a clock that it reads continuously jumps.

use std::time::{Duration, Instant};

/// Shorter than any interrupt, longer than a clock read.
const SHORTEST: Duration = Duration::from_nanos(400);
/// Longer gaps are another thread or the hypervisor.
const LONGEST: Duration = Duration::from_micros(500);

/// Gaps between clock reads with the length of an interrupt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClockGaps {
    pub(crate) count: u64,
    pub(crate) ns: u64,
}

impl ClockGaps {
    /// Reads the clock while `should_continue` returns true for the elapsed time.
    pub(crate) fn watch(&mut self, should_continue: impl Fn(Duration) -> bool) {
        let begin = Instant::now();
        let mut last = begin;
        while should_continue(last - begin) {
            let now = Instant::now();
            self.add(now - last);
            last = now;
        }
    }

    pub(crate) fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.ns as f64 / self.count as f64)
    }

    fn add(&mut self, gap: Duration) {
        if (SHORTEST..LONGEST).contains(&gap) {
            self.count += 1;
            self.ns += u64::try_from(gap.as_nanos()).unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_gaps_of_interrupt_length_are_counted() {
        let mut gaps = ClockGaps::default();
        assert_eq!(gaps.mean_ns(), None);
        for ns in [40, 399, 400, 12_000, 499_999, 500_000, 9_000_000] {
            gaps.add(Duration::from_nanos(ns));
        }
        assert_eq!(gaps, ClockGaps { count: 3, ns: 400 + 12_000 + 499_999 });
    }
}
