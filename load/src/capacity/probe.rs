//! One rate, offered once, and its verdict.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::SearchOptions;
use crate::latency::Latency;
use crate::outcome::{BoundReason, CodeCount, SendErrors, SendMethod, SlotInterval, SlotOutcome};
use crate::stats;

/// The result of one slot of a search.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProbeResult {
    /// The requested rate.
    pub requested_per_second: f64,
    /// The rate that was in fact offered.
    pub offered_per_second: f64,
    /// Goodput, after the lead-in.
    pub answered_per_second: f64,
    /// Requests sent, after the lead-in.
    pub sent: u64,
    /// The answered ones of these requests.
    pub answered: u64,
    /// The lost share of these requests.
    pub loss_ratio: f64,
    /// Median loss ratio of the slot's intervals without the lead-in. `None` if the generator
    /// reports no intervals.
    pub steady_loss_ratio: Option<f64>,
    /// First replies by their code, of lead-in and slot.
    #[serde(default)]
    pub codes: Vec<CodeCount>,
    /// Datagrams that were no intact replies, of lead-in and slot.
    #[serde(default)]
    pub corrupt: u64,
    /// Replies in fragments, which the XDP backend does not count, of lead-in and slot.
    #[serde(default)]
    pub fragmented: u64,
    /// Requests that could not be sent, of lead-in and slot.
    #[serde(default)]
    pub send_errors: SendErrors,
    /// Share of requests that left more than 1 ms late.
    pub late_ratio: f64,
    /// Nanoseconds. With a lead-in, of the requests in the second half of lead-in and slot. Quantiles
    /// are null without samples.
    pub latency_ns: Latency,
    /// Whether the rate held, or why not.
    pub verdict: ProbeVerdict,
    pub send_method: SendMethod,
    /// Why the generator was the limit, if it was.
    pub bound_because: Vec<BoundReason>,
}

/// Whether a rate held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeVerdict {
    Holds,
    /// Nothing was answered.
    NothingAnswered,
    /// Too many requests were lost.
    Loss,
    /// The 99th percentile of latency was too high.
    TooSlow,
    /// A queue grew: a longer slot would have had losses.
    QueueGrows,
    /// The generator could not offer the rate, or could not receive the replies.
    GeneratorBound,
}

impl ProbeResult {
    pub(super) fn new(
        requested_per_second: f64,
        outcome: &SlotOutcome,
        lead_in: Duration,
        options: &SearchOptions<'_>,
    ) -> Self {
        let mut probe = ProbeResult {
            requested_per_second,
            offered_per_second: outcome.offered_per_second,
            answered_per_second: outcome.answered_per_second,
            sent: outcome.sent,
            answered: outcome.answered,
            loss_ratio: 1.0,
            steady_loss_ratio: None,
            codes: outcome.codes.clone(),
            corrupt: outcome.corrupt,
            fragmented: outcome.fragmented,
            send_errors: outcome.send_errors,
            late_ratio: outcome.self_watch.late_sends as f64 / outcome.sent.max(1) as f64,
            latency_ns: outcome.latency_ns.clone(),
            verdict: ProbeVerdict::Holds,
            send_method: outcome.self_watch.send_method,
            bound_because: outcome.self_watch.bound_because.clone(),
        };
        if !lead_in.is_zero() {
            probe.leave_out(lead_in, outcome);
        }
        if probe.sent > 0 {
            probe.loss_ratio = (probe.sent - probe.answered) as f64 / probe.sent as f64;
        }
        probe.verdict = probe.judge(outcome, options);
        probe
    }

    // Limits the figures to the part after the lead-in, unless the generator reports no intervals.
    // Latency is not counted by interval, so it is that of the second half, which does not contain
    // a lead-in of up to the length of the slot after it.
    fn leave_out(&mut self, lead_in: Duration, outcome: &SlotOutcome) {
        // 0.5 % of tolerance for the arithmetic of seconds.
        let lead_in_seconds = lead_in.as_secs_f64() * 0.995;
        let intervals =
            || outcome.intervals.iter().filter(|interval| interval.begins_seconds >= lead_in_seconds);
        let sent: u64 = intervals().map(|interval| interval.sent).sum();
        let answered = intervals().map(|interval| interval.answered).sum::<Option<u64>>();
        let Some(answered) = answered.filter(|_| sent > 0) else { return };
        let seconds: f64 = intervals().map(|interval| interval.seconds).sum();
        let received: u64 = intervals().map(|interval| interval.received).sum();
        (self.sent, self.answered) = (sent, answered.min(sent));
        self.answered_per_second = received as f64 / seconds;
        self.steady_loss_ratio = stats::median(&intervals().filter_map(interval_loss).collect::<Vec<_>>());
        self.latency_ns = outcome.second_half_ns.clone();
    }

    fn judge(&self, outcome: &SlotOutcome, options: &SearchOptions<'_>) -> ProbeVerdict {
        // The service answered the requests whose replies the generator's own sockets dropped, and did
        // not get those that this host's interface dropped.
        let drops = outcome.self_watch.receive_drops + outcome.self_watch.send_drops;
        let lost = self.sent - self.answered;
        let lost_by_service = lost.saturating_sub(drops) as f64 / self.sent.max(1) as f64;
        if self.sent > 0 && lost_by_service > options.max_loss {
            // Too much even for the offered rate, so it does not matter whether all of the rate was
            // offered.
            return if outcome.answered == 0 { ProbeVerdict::NothingAnswered } else { ProbeVerdict::Loss };
        }
        // Late requests at the requested average rate are a harder load, not a lighter one: a service
        // that answers them holds. On a busy machine they occur at any rate.
        let reasons = &self.bound_because;
        let is_short = falls_short(reasons) || outcome.unsent_ratio() > MOST_UNSENT;
        let is_slow = options.max_p99.is_some_and(|limit| {
            self.latency_ns.quantile(0.99).is_some_and(|p99| u128::from(p99) > limit.as_nanos())
        });
        let queue_grows = outcome.queue_grows_by(options.growth);
        match () {
            () if is_short || self.sent == 0 || self.loss_ratio > options.max_loss => {
                ProbeVerdict::GeneratorBound
            }
            // Latency runs from the intended time, so a generator that lags more and more makes it grow by itself.
            () if queue_grows && is_late(reasons) => ProbeVerdict::GeneratorBound,
            // One request in a hundred late is enough to change a 99th percentile.
            () if is_slow && !reasons.is_empty() => ProbeVerdict::GeneratorBound,
            () if queue_grows => ProbeVerdict::QueueGrows,
            () if is_slow => ProbeVerdict::TooSlow,
            () => ProbeVerdict::Holds,
        }
    }

    /// Whether the generator sent nearly everything in time.
    pub(super) fn is_punctual(&self) -> bool {
        !is_late(&self.bound_because)
    }

    // Whether the machine, and not the rate, may be the reason for the failure.
    pub(super) fn is_excusable(&self, max_loss: f64) -> bool {
        match self.verdict {
            ProbeVerdict::Loss => {
                !self.is_punctual() || self.steady_loss_ratio.is_some_and(|loss| loss <= max_loss)
            }
            // At its limit the generator is late and short, too, but then in every attempt.
            ProbeVerdict::GeneratorBound => !self.bound_because.is_empty(),
            _ => false,
        }
    }
}

fn is_late(reasons: &[BoundReason]) -> bool {
    reasons.iter().any(BoundReason::exceeds_late_limit)
}

// Whether the generator could not offer the rate or receive the replies; lateness alone does not
// count.
fn falls_short(reasons: &[BoundReason]) -> bool {
    reasons.iter().any(|reason| !matches!(reason, BoundReason::SentLate { .. }))
}

// The share of an interval's own requests that was lost.
fn interval_loss(interval: &SlotInterval) -> Option<f64> {
    let answered = interval.answered.filter(|_| interval.sent > 0)?;
    Some(interval.sent.saturating_sub(answered) as f64 / interval.sent as f64)
}

// Up to this share of requests may fail to leave. Their rate is then offered nevertheless.
const MOST_UNSENT: f64 = 0.01;
