//! A thread's share of a schedule.

/// Requests that fall within a tick leave together. A call costs some 13 us besides what its frames do, measured, so
/// that a tenth of a CPU goes into calls.
const TICK_NS: u64 = 100_000;

/// Request `i` of `share` is meant to leave at `first_ns + i * step_ns`, ns of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SendSchedule {
    /// The slot's start, so that no precision goes into the time since the machine's.
    start_ns: u64,
    offset_ns: f64,
    thread: u32,
    pub(super) step_ns: f64,
    pub(super) share: u64,
    pub(super) tick_ns: u64,
}

impl SendSchedule {
    /// For thread `thread` of `threads`, which together send `total` requests, one each `interval_ns`.
    pub(super) fn new(start_ns: u64, interval_ns: f64, total: u64, thread: u64, threads: u64) -> Self {
        SendSchedule {
            start_ns,
            offset_ns: interval_ns * thread as f64,
            thread: thread as u32,
            step_ns: interval_ns * threads as f64,
            share: total.saturating_sub(thread).div_ceil(threads),
            tick_ns: TICK_NS,
        }
    }

    /// Whose share it is.
    pub(super) fn thread(&self) -> u32 {
        self.thread
    }

    /// When a request is meant to leave.
    pub(super) fn intended(&self, index: u64) -> u64 {
        self.start_ns + (self.offset_ns + self.step_ns * index as f64) as u64
    }

    /// How many are due.
    pub(super) fn due(&self, now_ns: u64) -> u64 {
        let elapsed_ns = now_ns.saturating_sub(self.start_ns) as f64 - self.offset_ns;
        // Before the first request this is negative, and the cast makes it none.
        ((elapsed_ns / self.step_ns + 1.0).floor() as u64).min(self.share)
    }

    /// How many are meant to leave before then.
    pub(super) fn before(&self, at_ns: u64) -> u64 {
        if at_ns <= self.start_ns { 0 } else { self.due(at_ns - 1) }
    }

    /// The step in whole ns and 2^-32 of one, as the program adds it up.
    pub(super) fn step(&self) -> (u64, u64) {
        split(self.step_ns)
    }

    /// When the first request is meant to leave, likewise.
    pub(super) fn first(&self) -> (u64, u64) {
        let (whole, fraction) = split(self.offset_ns);
        (self.start_ns + whole, fraction)
    }

    /// How far a request may leave behind its intended time by design, ns: none where a tick holds less than one.
    pub(super) fn delay_ns(&self) -> u64 {
        if self.step_ns >= self.tick_ns as f64 { 0 } else { self.tick_ns }
    }
}

fn split(ns: f64) -> (u64, u64) {
    let whole = ns.floor();
    (whole as u64, ((ns - whole) * 4_294_967_296.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_is_due_before_its_time(rate in 1e-3..1e7f64, index in 0..1_000_000u64, threads in 1..9u64) {
            let schedule = SendSchedule::new(1 << 50, 1e9 / rate, u64::MAX / 2, threads - 1, threads);
            let at = schedule.intended(index);
            prop_assert!(schedule.due(at + 2) > index);
            prop_assert!(schedule.due(at.saturating_sub(schedule.step_ns as u64 + 2)) <= index + 1);
        }

        #[test]
        fn shares_make_up_the_whole(total in 0..100_000u64, threads in 1..17u64) {
            let share = |thread| SendSchedule::new(0, 1.0, total, thread, threads).share;
            prop_assert_eq!((0..threads).map(share).sum::<u64>(), total);
        }

        #[test]
        fn added_up_steps_do_not_drift(rate in 1e3..1e7f64) {
            let schedule = SendSchedule::new(0, 1e9 / rate, u64::MAX / 2, 0, 1);
            let (whole, fraction) = schedule.step();
            // Ten minutes.
            let count = (rate * 600.0) as u64;
            let added = whole * count + ((u128::from(fraction) * u128::from(count)) >> 32) as u64;
            prop_assert!(added.abs_diff(schedule.intended(count)) < 10, "{} {}", added, schedule.intended(count));
        }
    }
}
