//! When a server is looked at as a whole.

use std::time::{Duration, Instant};

/// After a change: at once, and again while what is new settles down and begins to read.
const AFTER_A_CHANGE: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(300), Duration::from_millis(1200), Duration::from_secs(4)];

/// Without any change, for what does not show in what is asked often.
const NOW_AND_THEN: Duration = Duration::from_secs(30);

/// The looks that are to come.
#[derive(Debug, Default)]
pub(super) struct LookSchedule {
    /// When the last change was seen; none before the first look.
    change: Option<Instant>,
    /// The looks after it that were taken.
    taken: usize,
    last: Option<Instant>,
}

impl LookSchedule {
    pub(super) fn begin(&mut self, now: Instant) {
        // What goes on all the time must not have it looked at all the time, and neither put it off for ever.
        if self.change.is_some() && self.taken == 1 {
            return;
        }
        let since = self.last.map_or(Duration::MAX, |last| now.saturating_duration_since(last));
        self.change = Some(now);
        self.taken = usize::from(since < AFTER_A_CHANGE[1]);
    }

    /// Whether a look is due now, which is taken then.
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

    /// Whether the look that was just taken is the first after a change.
    pub(super) fn is_first(&self) -> bool {
        self.taken == 1
    }

    /// Whether no other is to come soon.
    pub(super) fn is_last(&self) -> bool {
        self.taken >= AFTER_A_CHANGE.len() || self.change.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_looked_at_until_it_has_settled() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut agenda = LookSchedule::default();
        assert!(agenda.take(start) && !agenda.take(at(200)) && !agenda.take(at(29_000)));
        assert!(agenda.take(at(30_000)));
        agenda.begin(at(40_000));
        let looks: Vec<u64> = (0..400).map(|n| 40_000 + n * 100).filter(|n| agenda.take(at(*n))).collect();
        assert_eq!(looks, [40_000, 40_300, 41_200, 44_000, 74_000]);
    }

    #[test]
    fn what_changes_all_the_time_is_not_looked_at_all_the_time() {
        let start = Instant::now();
        let mut agenda = LookSchedule::default();
        let looks = (0..100).filter(|n| {
            let now = start + Duration::from_millis(n * 50);
            agenda.begin(now);
            agenda.take(now)
        });
        assert!((10..=18).contains(&looks.count()));
    }
}
