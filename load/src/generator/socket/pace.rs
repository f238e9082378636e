//! Open loop: a fixed schedule, kept regardless of the replies.

use std::time::Duration;

use super::worker::{SendResult, SocketWorker};
use crate::generator::clock;
use crate::generator::plan::SlotPlan;
use crate::generator::schedule::SendSchedule;

/// A tick at rates of fewer requests per tick than half a burst.
const TICK_NS: u64 = 100_000;

/// A tick at higher rates.
const SHORT_TICK_NS: u64 = 50_000;

// The longest sleep, so that replies are read and a cancellation is seen.
const LONGEST_SLEEP_NS: u64 = 1_000_000;

// Bursts sent in a row before replies are read.
const BURSTS_A_LOOK: u32 = 4;

// The tick for a thread that sends `per_second`, ns. Requests that fall within one tick leave
// together.
pub(super) fn tick_ns(per_second: f64) -> u64 {
    let requests_per_tick = per_second * TICK_NS as f64 / 1e9;
    if requests_per_tick < crate::generator::MAX_BURST as f64 / 2.0 { TICK_NS } else { SHORT_TICK_NS }
}

impl SocketWorker {
    pub(super) fn pace(&mut self, plan: &SlotPlan, schedule: &SendSchedule) {
        let limit_ns = schedule.limit_ns(plan.span.duration_ns);
        let mut sent_count = 0;
        let mut flow_index = 0;
        let mut bursts = 0;
        let mut last_tick_ns = plan.span.start_ns;
        loop {
            let tick_began_ns = clock::now_ns();
            let allowed_count = schedule.allowed(sent_count, tick_began_ns, last_tick_ns);
            last_tick_ns = tick_began_ns;
            let mut now_ns = tick_began_ns;
            while sent_count < allowed_count {
                let burst = even_burst(allowed_count - sent_count, self.burst as u64);
                let result =
                    self.send(flow_index, burst, now_ns, |index| schedule.intended(sent_count + index));
                flow_index = if flow_index + 1 < self.flows.len() { flow_index + 1 } else { 0 };
                match result {
                    SendResult::Sent(count) => sent_count += count,
                    SendResult::GivenUp => sent_count += 1,
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
            if sent_count >= schedule.share || now_ns > limit_ns || self.is_cancelled() {
                return;
            }
            let next_ns = schedule
                .intended(sent_count)
                .max(tick_began_ns + schedule.tick_ns)
                .min(now_ns + LONGEST_SLEEP_NS);
            if next_ns > now_ns {
                clock::sleep_until(next_ns);
            }
        }
    }
}

// Number of the `due_count` requests for the next flow, at most `max_count`: the same number as for
// the flows after it, so that no flow always gets the remainder.
fn even_burst(due_count: u64, max_count: u64) -> u64 {
    due_count.div_ceil(due_count.div_ceil(max_count).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_requests_split_into_equal_bursts() {
        assert_eq!(even_burst(70, 64), 35);
        assert_eq!(even_burst(64, 64), 64);
        assert_eq!(even_burst(129, 64), 43);
        assert_eq!(even_burst(1, 64), 1);
        assert_eq!(even_burst(5, 1), 1);
        assert_eq!(even_burst(0, 64), 0);
    }

    #[test]
    fn high_rates_shorten_the_tick() {
        assert_eq!(tick_ns(10.0), TICK_NS);
        assert_eq!(tick_ns(300_000.0), TICK_NS);
        assert_eq!(tick_ns(1_000_000.0), SHORT_TICK_NS);
    }
}
