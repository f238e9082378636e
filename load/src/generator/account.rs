//! Rates of a slot, and whether the generator was the limit.

use std::time::Duration;

use super::PacingMode;
use super::plan::SlotFacts;
use crate::outcome::{BoundReason, SelfWatch, SendErrors};

/// The length of a slot, and the rates in requests per second.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotRates {
    pub(super) duration: Duration,
    pub(super) requested_per_second: Option<f64>,
    pub(super) offered_per_second: f64,
    sent: u64,
    cancelled: bool,
}

impl SlotRates {
    // Times are in ns of the monotonic clock. A cancelled slot ends at `ended_ns`, even if the last
    // request left long before.
    pub(super) fn new(slot_facts: &SlotFacts<'_>, last_sent_ns: u64, ended_ns: u64, sent: u64) -> Self {
        let SlotFacts { slot, span, cancelled, .. } = *slot_facts;
        let since_start = |at_ns: u64| Duration::from_nanos(at_ns.saturating_sub(span.start_ns));
        let elapsed = since_start(last_sent_ns);
        let duration = if cancelled { since_start(ended_ns).min(slot.duration) } else { slot.duration };
        let requested_per_second = match slot.mode {
            PacingMode::Rate { per_second } => Some(per_second),
            PacingMode::Window { .. } | PacingMode::Flood => None,
        };
        let offered_per_second = sent as f64 / elapsed.max(duration).as_secs_f64().max(1e-9);
        SlotRates { duration, requested_per_second, offered_per_second, sent, cancelled }
    }

    /// A count as a rate over the slot.
    pub(super) fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.duration.as_secs_f64().max(1e-9)
    }

    // Why the generator was the limit; empty if it was not.
    // `tags`: the requests that the tags of all flows distinguish, if they are few.
    pub(super) fn bound_because(
        &self,
        errors: &SendErrors,
        watch: &SelfWatch,
        late: u64,
        tags: Option<u64>,
    ) -> Vec<BoundReason> {
        let sent = self.sent;
        let mut reasons = Vec::new();
        let share = |count: u64| count as f64 / sent.max(1) as f64;
        match self.requested_per_second {
            Some(requested_rate) => {
                // Requests that the kernel refused do not show a lack of speed. ECONNREFUSED is about an earlier request.
                let unsent_count = errors.unsent();
                let ratio = self.offered_per_second / requested_rate * (sent + unsent_count) as f64
                    / sent.max(1) as f64;
                if ratio < 0.99 && !self.cancelled {
                    reasons.push(BoundReason::OfferedTooLittle { ratio });
                }
                if share(watch.late_sends) > 0.01 {
                    reasons.push(BoundReason::SentLate { ratio: share(watch.late_sends) });
                }
            }
            None => {
                let busiest = watch.thread_cpu_ratio.iter().copied().fold(0.0, f64::max);
                if busiest >= 0.95 {
                    reasons.push(BoundReason::ThreadBusy { cpu_ratio: busiest });
                }
            }
        }
        if share(watch.receive_drops) > 0.001 {
            reasons.push(BoundReason::RepliesDropped { ratio: share(watch.receive_drops) });
        }
        if share(watch.send_drops) > 0.001 {
            reasons.push(BoundReason::RequestsDropped { ratio: share(watch.send_drops) });
        }
        // In later requests, tags are used again. Otherwise late replies are those of the slot
        // before.
        if tags.is_some_and(|tags| sent > tags) && share(late) > 0.001 {
            reasons.push(BoundReason::TagsUsedUp { ratio: share(late) });
        }
        reasons
    }
}
