//! Open loop: a fixed schedule, kept whatever the answers do.

use std::time::Duration;

use super::worker::{SendResult, SendTiming, SocketPlan, SocketWorker};
use crate::generator::clock;

/// A tick at rates where one holds fewer than a burst of requests.
const TICK_NS: u64 = 100_000;

/// A tick at higher rates.
const SHORT_TICK_NS: u64 = 50_000;

/// The longest sleep, so that replies are read and a cancellation is seen.
const LONGEST_SLEEP_NS: u64 = 1_000_000;

/// Bursts sent in a row before replies are looked at.
const BURSTS_A_LOOK: u32 = 4;

/// How much faster than the schedule a thread that was held up catches up. At once, it would flood the service with
/// what no client sent late, and the loss would be its own doing.
const CATCH_UP: f64 = 2.0;

/// A hold-up of this length is still made good at once: sleeps overshoot that much on a busy machine.
const USUAL_HOLD_UP_NS: u64 = 500_000;

/// The least time given after the end for what is still due when a thread was held up at the end.
const LEAST_OVERTIME_NS: u64 = 10_000_000;

/// The tick for a thread that sends `per_second`, ns. Requests that fall within one leave together.
pub(super) fn tick_ns(per_second: f64) -> u64 {
    let in_a_tick = per_second * TICK_NS as f64 / 1e9;
    if in_a_tick < crate::generator::MAX_BURST as f64 / 2.0 { TICK_NS } else { SHORT_TICK_NS }
}

impl SocketWorker {
    /// Sends this thread's share of a schedule.
    pub(super) fn pace(&mut self, plan: &SocketPlan) {
        let SendTiming::Paced { interval_ns, first, stride, total, tick_ns } = plan.timing else { return };
        let share = total.saturating_sub(first).div_ceil(stride);
        let step_ns = interval_ns * stride as f64;
        let offset_ns = interval_ns * first as f64;
        let intended = |index: u64| plan.start_ns + (offset_ns + step_ns * index as f64) as u64;
        let due_at = |now_ns: u64| {
            let elapsed_ns = now_ns.saturating_sub(plan.start_ns) as f64 - offset_ns;
            // Before the first request this is negative, and the cast makes it none.
            ((elapsed_ns / step_ns + 1.0).floor() as u64).min(share)
        };
        let overtime_ns = LEAST_OVERTIME_NS.max(plan.duration_ns / 100);
        let limit_ns = plan.start_ns + plan.duration_ns + overtime_ns;

        let mut done = 0;
        let mut turn = 0;
        let mut bursts = 0;
        let mut last_tick_ns = plan.start_ns;
        loop {
            let tick_began_ns = clock::now_ns();
            let passed_ns = tick_began_ns.saturating_sub(last_tick_ns).clamp(tick_ns, USUAL_HOLD_UP_NS);
            last_tick_ns = tick_began_ns;
            let most = (CATCH_UP * passed_ns as f64 / step_ns).ceil() as u64;
            let due = due_at(tick_began_ns).min(done + most);
            let mut now_ns = tick_began_ns;
            while done < due {
                let burst = even_burst(due - done, self.burst as u64);
                let result = self.send(turn, burst, now_ns, |index| intended(done + index));
                turn = if turn + 1 < self.flows.len() { turn + 1 } else { 0 };
                match result {
                    SendResult::Sent(count) => done += count,
                    SendResult::GivenUp => done += 1,
                    SendResult::Full => break,
                }
                bursts += 1;
                if bursts % BURSTS_A_LOOK == 0 {
                    self.receive(Duration::ZERO);
                }
                now_ns = clock::now_ns();
                if now_ns > limit_ns {
                    break;
                }
            }
            self.receive(Duration::ZERO);
            let now_ns = clock::now_ns();
            if done >= share || now_ns > limit_ns || self.cancelled() {
                return;
            }
            let next_ns = intended(done).max(tick_began_ns + tick_ns).min(now_ns + LONGEST_SLEEP_NS);
            if next_ns > now_ns {
                clock::sleep_until(next_ns);
            }
        }
    }
}

/// How many of `due` requests the next flow gets, at most `most`: as many as those after it, so that no flow always
/// gets the rest.
fn even_burst(due: u64, most: u64) -> u64 {
    due.div_ceil(due.div_ceil(most).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_even() {
        assert_eq!(even_burst(70, 64), 35);
        assert_eq!(even_burst(64, 64), 64);
        assert_eq!(even_burst(129, 64), 43);
        assert_eq!(even_burst(1, 64), 1);
        assert_eq!(even_burst(5, 1), 1);
        assert_eq!(even_burst(0, 64), 0);
    }

    #[test]
    fn a_tick_never_holds_more_than_a_burst_before_it_is_shortened() {
        assert_eq!(tick_ns(10.0), TICK_NS);
        assert_eq!(tick_ns(300_000.0), TICK_NS);
        assert_eq!(tick_ns(1_000_000.0), SHORT_TICK_NS);
    }
}
