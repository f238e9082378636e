//! The times at which a server is observed as a whole.

use std::time::{Duration, Instant};

/// Delays after a change: at once, and again until new threads read.
const AFTER_A_CHANGE: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(300), Duration::from_millis(1200), Duration::from_secs(4)];

/// Interval without a change, for changes that the samples do not show.
const NOW_AND_THEN: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct LookSchedule {
    /// The time of the last change.
    change: Option<Instant>,
    /// Number of looks since then.
    taken: usize,
    last: Option<Instant>,
}

impl LookSchedule {
    pub(super) fn begin(&mut self, now: Instant) {
        // Constant changes must neither cause constant looks nor defer them for ever.
        if self.change.is_some() && self.taken == 1 {
            return;
        }
        let since_last = self.last.map_or(Duration::MAX, |last| now.saturating_duration_since(last));
        self.change = Some(now);
        self.taken = usize::from(since_last < AFTER_A_CHANGE[1]);
    }

    pub(super) fn take(&mut self, now: Instant) -> bool {
        let since = |at: Instant| now.saturating_duration_since(at);
        let due = match (self.change, AFTER_A_CHANGE.get(self.taken), self.last) {
            (Some(change), Some(after), _) => since(change) >= *after,
            (_, _, Some(last)) => since(last) >= NOW_AND_THEN,
            (_, _, None) => true,
        };
        if due {
            if self.change.is_some() {
                self.taken += 1;
            }
            self.last = Some(now);
        }
        due
    }

    /// Whether the look just taken is the first after a change.
    pub(super) fn is_first(&self) -> bool {
        self.taken == 1
    }

    /// Whether no other look follows soon.
    pub(super) fn is_last(&self) -> bool {
        self.taken >= AFTER_A_CHANGE.len() || self.change.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_schedule_intervals_grow_after_a_change() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut schedule = LookSchedule::default();
        assert!(schedule.take(start) && !schedule.take(at(200)) && !schedule.take(at(29_000)));
        assert!(schedule.take(at(30_000)));
        schedule.begin(at(40_000));
        let look_times: Vec<u64> =
            (0..400).map(|n| 40_000 + n * 100).filter(|n| schedule.take(at(*n))).collect();
        assert_eq!(look_times, [40_000, 40_300, 41_200, 44_000, 74_000]);
    }

    #[test]
    fn look_schedule_limits_looks_during_constant_changes() {
        let start = Instant::now();
        let mut schedule = LookSchedule::default();
        let looks = (0..100).filter(|n| {
            let now = start + Duration::from_millis(n * 50);
            schedule.begin(now);
            schedule.take(now)
        });
        assert!((10..=18).contains(&looks.count()));
    }
}
