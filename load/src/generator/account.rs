//! The outcome of a slot from the counters of a backend, and whether the generator was the limit.

use std::time::Duration;

use super::plan::SlotFacts;
use super::schedule::SendSchedule;
use super::{PacingMode, clock};
use crate::latency::Latency;
use crate::outcome::{BoundReason, QueueMedians, SelfWatch, SlotOutcome, mean_in_flight};

/// How a thread kept up with its plan.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SendReport {
    pub(super) late_sends: u64,
    pub(super) worst_lag_ns: u64,
    pub(super) timed_out: u64,
    pub(super) cpu_ratio: f64,
    /// When the last request left; 0 if none did.
    pub(super) last_sent_ns: u64,
    /// When the cancellation was seen, or the end of the slot if all requests had left before.
    pub(super) ended_ns: u64,
}

/// Adds to the counts of a backend what follows from them, from the slot, and from the reports of its threads. The latencies
/// are those of the first half and of the last quarter.
pub(super) fn complete(
    counted: SlotOutcome,
    answered_in_time: u64,
    [first_half, last_quarter]: [&Latency; 2],
    facts: &SlotFacts<'_>,
    sends: &[SendReport],
) -> SlotOutcome {
    let SlotFacts { slot, span, cancelled, .. } = *facts;
    // Times are in ns of the monotonic clock.
    let since_start = |time: fn(&SendReport) -> u64| {
        let at_ns = sends.iter().map(time).max().unwrap_or(0);
        Duration::from_nanos(at_ns.saturating_sub(span.start_ns))
    };
    // A cancelled slot ends when the cancellation was seen, even if the last request left long before.
    let duration =
        if cancelled { since_start(|report| report.ended_ns).min(slot.duration) } else { slot.duration };
    let sending = since_start(|report| report.last_sent_ns).max(duration);
    let per_second = |count: u64, duration: Duration| count as f64 / duration.as_secs_f64().max(1e-9);
    let mut outcome = SlotOutcome {
        started_realtime_ns: span.start_realtime_ns,
        lost: counted.sent - counted.answered,
        duration,
        requested_per_second: match slot.mode {
            PacingMode::Rate { per_second } => Some(per_second),
            PacingMode::Window { .. } | PacingMode::Flood => None,
        },
        offered_per_second: per_second(counted.sent, sending),
        answered_per_second: per_second(answered_in_time, duration),
        queue: QueueMedians { first_half_ns: first_half.median(), last_quarter_ns: last_quarter.median() },
        mean_in_flight: mean_in_flight(counted.answered, duration, first_half),
        self_watch: SelfWatch {
            late_sends: sends.iter().map(|report| report.late_sends).sum(),
            worst_lag_ns: sends.iter().map(|report| report.worst_lag_ns).max().unwrap_or(0),
            tick_ns: facts.tick_ns(),
            thread_cpu_ratio: sends.iter().map(|report| report.cpu_ratio).collect(),
            timed_out: sends.iter().map(|report| report.timed_out).sum(),
            ..counted.self_watch
        },
        ..counted
    };
    outcome.self_watch.bound_because = bound_because(&outcome, facts);
    outcome.generator_bound = !outcome.self_watch.bound_because.is_empty();
    outcome
}

/// Why the generator was the limit; empty if it was not.
fn bound_because(outcome: &SlotOutcome, facts: &SlotFacts<'_>) -> Vec<BoundReason> {
    let (sent, watch) = (outcome.sent, &outcome.self_watch);
    let mut reasons = Vec::new();
    let share = |count: u64| count as f64 / sent.max(1) as f64;
    match outcome.requested_per_second {
        Some(requested_rate) => {
            // Requests that the kernel refused do not show a lack of speed. ECONNREFUSED is about an earlier request.
            let unsent_count = outcome.send_errors.unsent();
            let slot = facts.slot.duration;
            let planned_count = SendSchedule::total(requested_rate, clock::whole_ns(slot));
            let planned_rate = planned_count as f64 / slot.as_secs_f64();
            let ratio =
                outcome.offered_per_second / planned_rate * (sent + unsent_count) as f64 / sent.max(1) as f64;
            if ratio < 0.99 && !facts.cancelled {
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
    // before. Without verification, a reply to a used-up tag answers a later request, whose own reply
    // is then a duplicate, and its own request is lost. A network that only duplicates loses nothing.
    let used_up_ratio = share(outcome.late + outcome.duplicate.min(outcome.lost));
    if facts.tags.is_some_and(|tags| sent > tags) && used_up_ratio > 0.001 {
        reasons.push(BoundReason::TagsUsedUp { ratio: used_up_ratio });
    }
    reasons
}
