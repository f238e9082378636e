//! Closed loop: each flow keeps a number of requests outstanding.

use std::time::Duration;

use super::worker::{SendResult, SocketWorker};
use crate::generator::clock;
use crate::generator::plan::{SlotPlan, TIMEOUT_PARTS};

// Interval at which all flows are topped up, even those without replies.
const SWEEP_NS: u64 = 1_000_000;

impl SocketWorker {
    /// Keeps `outstanding` requests per flow under way until the slot ends.
    pub(super) fn keep_windows_full(&mut self, plan: &SlotPlan, outstanding: u64, part_ns: u64) {
        let end_ns = plan.span.end_ns();
        // The next sequence of each flow at one time. Earlier requests that are still unanswered one
        // timeout later release their places.
        let mut marks: [Vec<u64>; TIMEOUT_PARTS as usize] =
            std::array::from_fn(|_| vec![0; self.flows.len()]);
        let mut mark_index = 0;
        let mut next_mark_ns = plan.span.start_ns + part_ns;
        let mut next_sweep_ns = plan.span.start_ns;
        loop {
            let now_ns = clock::now_ns();
            if now_ns >= end_ns || self.is_cancelled() {
                return;
            }
            if now_ns >= next_mark_ns {
                next_mark_ns = now_ns + part_ns;
                mark_index = (mark_index + 1) % marks.len();
                // The marks are at least a part apart, so that the oldest mark is a whole timeout
                // old.
                for (sequence, flow) in marks[mark_index].iter_mut().zip(&mut self.flows) {
                    self.sends.timed_out += flow.track.window.release(*sequence);
                    *sequence = flow.track.window.next();
                }
                next_sweep_ns = now_ns;
            }
            if now_ns >= next_sweep_ns {
                next_sweep_ns = now_ns + SWEEP_NS;
                for flow in 0..self.flows.len() {
                    self.top_up(flow, outstanding, end_ns);
                }
            }
            let wake_ns = next_sweep_ns.min(end_ns);
            self.receive(Duration::from_nanos(wake_ns.saturating_sub(clock::now_ns())));
            for touched_index in 0..self.touched.len() {
                self.top_up(self.touched[touched_index], outstanding, end_ns);
            }
        }
    }

    fn top_up(&mut self, index: usize, outstanding: u64, end_ns: u64) {
        loop {
            let Some(flow) = self.flows.get(index) else { return };
            let window = &flow.track.window;
            // No more requests can be outstanding than tags distinguish.
            let free_places = outstanding.min(window.in_view()).saturating_sub(window.outstanding());
            if free_places == 0 {
                return;
            }
            let now_ns = clock::now_ns();
            if now_ns >= end_ns || self.is_cancelled() {
                return;
            }
            match self.send(index, free_places, now_ns, |_| now_ns) {
                SendResult::Sent(count) if count > 0 => {}
                // The sweep tries again.
                _ => return,
            }
        }
    }
}
