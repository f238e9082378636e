//! No schedule: as fast as possible, independent of the replies.

use std::time::Duration;

use super::worker::{SendResult, SocketWorker};
use crate::generator::clock;
use crate::generator::plan::SlotPlan;

// Bursts sent in a row before replies are read.
const BURSTS_A_LOOK: u32 = 4;

// Wait when no socket has room. A wait of epoll is rounded up to a millisecond.
const PAUSE_NS: u64 = 50_000;

impl SocketWorker {
    /// Sends a burst of each flow in turn until the slot ends. The intended time of a request is
    /// its send time.
    pub(super) fn flood(&mut self, plan: &SlotPlan) {
        let end_ns = plan.span.end_ns();
        let mut flow_index = 0;
        let mut bursts = 0u32;
        let mut full_flows = 0;
        loop {
            let now_ns = clock::now_ns();
            if now_ns >= end_ns || self.is_cancelled() {
                return;
            }
            match self.send(flow_index, self.burst as u64, now_ns, |_| now_ns) {
                SendResult::Sent(_) => full_flows = 0,
                SendResult::Full | SendResult::GivenUp => full_flows += 1,
            }
            flow_index = if flow_index + 1 < self.flows.len() { flow_index + 1 } else { 0 };
            bursts = bursts.wrapping_add(1);
            if full_flows >= self.flows.len() {
                full_flows = 0;
                clock::sleep_until(now_ns + PAUSE_NS);
                self.receive(Duration::ZERO);
            } else if bursts.is_multiple_of(BURSTS_A_LOOK) {
                self.receive(Duration::ZERO);
            }
        }
    }
}
