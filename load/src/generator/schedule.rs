//! A thread's share of a schedule, and how fast a delayed thread catches up.

use super::plan::SlotSpan;

// How much faster than the schedule a delayed thread sends. All due requests at once would flood the service in a way that
// no client does, and the generator would cause the loss.
const CATCH_UP: f64 = 2.0;

// A delay of this length is caught up at once: sleeps overshoot that much on a busy machine.
const USUAL_DELAY_NS: u64 = 500_000;

// The shortest time after the end in which a delayed thread may send requests that are still due.
const LEAST_OVERTIME_NS: u64 = 10_000_000;

// Request `i` of `share` is meant to leave at `first_ns + i * step_ns`, ns of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SendSchedule {
    // The slot's start, so that no precision goes into the time since the machine's.
    start_ns: u64,
    offset_ns: f64,
    pub(super) step_ns: f64,
    pub(super) share: u64,
    pub(super) tick_ns: u64,
}

impl SendSchedule {
    /// The share of thread `thread` of `threads` in a slot at `per_second` in total. Requests that fall within a tick
    /// leave together.
    pub(super) fn from_rate(
        span: &SlotSpan,
        per_second: f64,
        (thread, threads): (u64, u64),
        tick_ns: u64,
    ) -> Self {
        let total = Self::total(per_second, span.duration_ns);
        SendSchedule { tick_ns, ..SendSchedule::new(span.start_ns, 1e9 / per_second, total, thread, threads) }
    }

    /// The number of requests of all threads: whole ones, at least one.
    pub(super) fn total(per_second: f64, duration_ns: u64) -> u64 {
        (per_second * (duration_ns as f64 / 1e9)).round().max(1.0) as u64
    }

    /// One request of all threads per `interval_ns`.
    fn new(start_ns: u64, interval_ns: f64, total: u64, thread: u64, threads: u64) -> Self {
        SendSchedule {
            start_ns,
            offset_ns: interval_ns * thread as f64,
            step_ns: interval_ns * threads as f64,
            share: total.saturating_sub(thread).div_ceil(threads),
            tick_ns: 0,
        }
    }

    /// The time at which a request should leave.
    pub(super) fn intended(&self, index: u64) -> u64 {
        self.start_ns + (self.offset_ns + self.step_ns * index as f64) as u64
    }

    pub(super) fn due(&self, now_ns: u64) -> u64 {
        let elapsed_ns = now_ns.saturating_sub(self.start_ns) as f64 - self.offset_ns;
        // Before the first request this is negative, and the cast makes it 0.
        ((elapsed_ns / self.step_ns + 1.0).floor() as u64).min(self.share)
    }

    // The step in whole ns and units of 2^-32 ns, as the program adds it up.
    pub(super) fn step(&self) -> (u64, u64) {
        split(self.step_ns)
    }

    /// The time of the first request, in the same form.
    pub(super) fn first_send(&self) -> (u64, u64) {
        let (whole, fraction) = split(self.offset_ns);
        (self.start_ns + whole, fraction)
    }

    // The number of requests that may have left by now: the requests that are due, but fewer after
    // a delay. `sent_count` have left, and the previous tick began at `last_tick_ns`.
    pub(super) fn allowed(&self, sent_count: u64, now_ns: u64, last_tick_ns: u64) -> u64 {
        let elapsed_ns = now_ns.saturating_sub(last_tick_ns).clamp(self.tick_ns, USUAL_DELAY_NS);
        let catch_up_count = (CATCH_UP * elapsed_ns as f64 / self.step_ns).ceil() as u64;
        self.due(now_ns).min(sent_count + catch_up_count)
    }

    /// The latest time at which requests of a slot of this duration are sent.
    pub(super) fn limit_ns(&self, duration_ns: u64) -> u64 {
        self.start_ns + duration_ns + LEAST_OVERTIME_NS.max(duration_ns / 100)
    }

    // The longest delay of a request by design, ns: 0 if a tick holds less than one request.
    pub(super) fn max_delay_ns(&self) -> u64 {
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
        fn requests_are_due_at_their_intended_time(
            rate in 1e-3..1e7f64, index in 0..1_000_000u64, threads in 1..9u64,
        ) {
            let schedule = SendSchedule::new(1 << 50, 1e9 / rate, u64::MAX / 2, threads - 1, threads);
            let at = schedule.intended(index);
            // Times are rounded to ns, and to the precision of f64.
            let rounding = 2 + ((at - (1 << 50)) >> 50);
            prop_assert!(schedule.due(at + rounding) > index);
            prop_assert!(schedule.due(at - rounding) <= index);
        }

        #[test]
        fn thread_shares_add_up_to_all_requests(total in 0..100_000u64, threads in 1..17u64) {
            let share = |thread| SendSchedule::new(0, 1.0, total, thread, threads).share;
            prop_assert_eq!((0..threads).map(share).sum::<u64>(), total);
        }

        #[test]
        fn steps_added_for_ten_minutes_drift_by_less_than_10_ns(rate in 1e3..1e7f64) {
            let schedule = SendSchedule::new(0, 1e9 / rate, u64::MAX / 2, 0, 1);
            let (whole, fraction) = schedule.step();
            // Ten minutes.
            let count = (rate * 600.0) as u64;
            let added = whole * count + ((u128::from(fraction) * u128::from(count)) >> 32) as u64;
            prop_assert!(added.abs_diff(schedule.intended(count)) < 10, "{} {}", added, schedule.intended(count));
        }
    }
}
