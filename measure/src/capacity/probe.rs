//! One rate, offered once, and whether it held.

use serde::Serialize;

use super::SearchOptions;
use crate::latency::{Latency, quantiles_only};
use crate::outcome::{BoundReason, SlotOutcome};

/// The account of one slot of a search.
#[derive(Debug, Clone, Serialize)]
pub struct Probe {
    /// The rate asked for.
    pub asked_per_second: f64,
    /// The rate really offered.
    pub offered_per_second: f64,
    /// Goodput.
    pub answered_per_second: f64,
    /// Requests sent.
    pub sent: u64,
    /// Requests answered.
    pub answered: u64,
    /// Share of requests lost.
    pub loss_ratio: f64,
    /// Share of requests that left more than 1 ms late.
    pub late_ratio: f64,
    /// Latency; serialized as its quantiles.
    #[serde(serialize_with = "quantiles_only")]
    pub latency_ns: Latency,
    /// Whether the rate held, or why not.
    pub verdict: Verdict,
    /// Why the generator was the limit, if it was.
    pub bound_because: Vec<BoundReason>,
}

/// Whether a rate held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It did.
    Holds,
    /// Nothing was answered.
    NothingAnswered,
    /// Too many requests were lost.
    Loss,
    /// A queue grew: more of the same would have ended in loss.
    QueueGrows,
    /// The generator could not offer it, or could not take the replies.
    GeneratorBound,
}

impl Probe {
    pub(super) fn new(asked_per_second: f64, outcome: SlotOutcome, options: &SearchOptions<'_>) -> Self {
        Probe {
            asked_per_second,
            offered_per_second: outcome.offered_per_second,
            answered_per_second: outcome.answered_per_second,
            sent: outcome.sent,
            answered: outcome.answered,
            loss_ratio: outcome.loss_ratio(),
            late_ratio: outcome.self_watch.late_sends as f64 / outcome.sent.max(1) as f64,
            verdict: judge(&outcome, options.max_loss),
            latency_ns: outcome.latency_ns,
            bound_because: outcome.self_watch.bound_because,
        }
    }

    /// Whether the generator sent nearly everything in time.
    pub(super) fn punctual(&self) -> bool {
        !is_late(&self.bound_because)
    }
}

/// Late requests up to this share cannot make the medians of latency grow.
const LATE_MATTERS: f64 = 0.1;

fn is_late(reasons: &[BoundReason]) -> bool {
    reasons.iter().any(|reason| matches!(reason, BoundReason::SentLate { ratio } if *ratio > LATE_MATTERS))
}

fn judge(outcome: &SlotOutcome, max_loss: f64) -> Verdict {
    // What the generator's own sockets dropped was answered.
    let drops = outcome.self_watch.receive_drops;
    let lost_by_service = outcome.lost.saturating_sub(drops) as f64 / outcome.sent.max(1) as f64;
    if outcome.sent > 0 && lost_by_service > max_loss {
        // Too much even for what was really offered, so whether that was all of it does not matter.
        return if outcome.answered == 0 { Verdict::NothingAnswered } else { Verdict::Loss };
    }
    // Requests that leave late but all in all at the rate asked for are a harder load, not a lighter one: a service
    // that answers them holds. On a busy machine they come at any rate.
    let short =
        outcome.self_watch.bound_because.iter().any(|reason| !matches!(reason, BoundReason::SentLate { .. }));
    if short || outcome.sent == 0 || outcome.loss_ratio() > max_loss {
        Verdict::GeneratorBound
    } else if !outcome.queue_is_growing() {
        Verdict::Holds
    } else if is_late(&outcome.self_watch.bound_because) {
        // Latency runs from the intended time, so a generator that lags more and more makes it grow by itself.
        Verdict::GeneratorBound
    } else {
        Verdict::QueueGrows
    }
}
