//! Live lines on standard error: one per interval, rate or probe.

use linerate_load::capacity::{ProbeResult, ProbeVerdict};
use linerate_load::{SlotInterval, SlotOutcome};

use crate::render::format;

/// Shows intervals on standard error when they end.
pub(crate) struct LiveIntervals {
    on: bool,
    headed: bool,
    /// Sent minus received. A reply can arrive before the interval of its request ends.
    unanswered: i64,
}

impl LiveIntervals {
    /// Shows nothing unless `on`.
    pub(crate) fn new(on: bool) -> Self {
        Self { on, headed: false, unanswered: 0 }
    }

    pub(crate) fn interval(&mut self, interval: &SlotInterval) {
        if !self.on {
            return;
        }
        self.unanswered = self.unanswered.saturating_add_unsigned(interval.sent);
        self.unanswered = self.unanswered.saturating_sub_unsigned(interval.received);
        if !self.headed {
            self.headed = true;
            status_line!("{HEADER}");
        }
        status_line!("{}", line(interval, self.unanswered));
    }

    /// Shows a separate line.
    pub(crate) fn note(&mut self, text: &str) {
        if self.on {
            status_line!("{text}");
        }
    }
}

const HEADER: &str = "       seconds      sent/s  received/s     p50 us     p99 us   unanswered";

fn line(interval: &SlotInterval, unanswered: i64) -> String {
    let begin_seconds = interval.begins_seconds;
    let end_seconds = begin_seconds + interval.seconds;
    let decimals =
        usize::from((begin_seconds * 1e3).round() % 1e3 != 0.0 || (end_seconds * 1e3).round() % 1e3 != 0.0)
            * 2;
    let time = format!("{begin_seconds:.decimals$}-{end_seconds:.decimals$}");
    let rate = |count: u64| format::rate(count as f64 / interval.seconds);
    let latency = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), format::microseconds);
    format!(
        "{time:>14}  {:>10}  {:>10} {:>10} {:>10} {:>12}",
        rate(interval.sent),
        rate(interval.received),
        latency(interval.latency_ns.p50),
        latency(interval.latency_ns.p99),
        format::grouped(unanswered.max(0).unsigned_abs()),
    )
}

/// Headings of [`ramp_step`].
pub(crate) const RAMP_HEADER: &str = "  asked/s   offered/s  answered/s      loss     p50 us     p99 us";

pub(crate) fn ramp_step(outcome: &SlotOutcome) -> String {
    let latency =
        |quantile| outcome.latency_ns.quantile(quantile).map_or_else(|| "-".to_owned(), format::microseconds);
    format!(
        "{:>9}  {:>10}  {:>10}  {:>8} {:>10} {:>10}",
        outcome.requested_per_second.map_or_else(|| "-".to_owned(), format::rate),
        format::rate(outcome.offered_per_second),
        format::rate(outcome.answered_per_second),
        format::percent(outcome.loss_ratio()),
        latency(0.5),
        latency(0.99),
    )
}

/// Headings of [`probe`].
pub(crate) const PROBE_HEADER: &str = "offered/s  answered/s      loss     p99 us  verdict";

pub(crate) fn probe(probe: &ProbeResult) -> String {
    format!(
        "{:>9}  {:>10}  {:>8} {:>10}  {}",
        format::rate(probe.offered_per_second),
        format::rate(probe.answered_per_second),
        format::percent(probe.loss_ratio),
        probe.latency_ns.quantile(0.99).map_or_else(|| "-".to_owned(), format::microseconds),
        verdict(probe.verdict),
    )
}

fn verdict(verdict: ProbeVerdict) -> &'static str {
    match verdict {
        ProbeVerdict::Holds => "holds",
        ProbeVerdict::NothingAnswered => "nothing answered",
        ProbeVerdict::Loss => "loss",
        ProbeVerdict::TooSlow => "too slow",
        ProbeVerdict::QueueGrows => "queue grows",
        ProbeVerdict::GeneratorBound => "generator bound",
    }
}

#[cfg(test)]
mod tests {
    use linerate_load::LatencyQuantiles;

    use super::*;

    #[test]
    fn live_columns_align_with_the_header() {
        let latency_ns =
            LatencyQuantiles { p50: Some(34_200), p99: Some(1_234_000), ..LatencyQuantiles::default() };
        let interval = SlotInterval {
            number: 9,
            begins_seconds: 9.0,
            seconds: 1.0,
            sent: 1_000_000,
            received: 999_000,
            answered: None,
            latency_ns,
        };
        let text = line(&interval, 12_345);
        assert_eq!(text, "          9-10      1.00 M       999 k       34.2      1,234       12,345");
        assert_eq!(text.len(), HEADER.len());
        let last = SlotInterval {
            begins_seconds: 0.5,
            seconds: 0.25,
            received: 0,
            latency_ns: LatencyQuantiles::default(),
            ..interval
        };
        assert_eq!(
            line(&last, -3),
            "     0.50-0.75      4.00 M           0          -          -            0"
        );
    }
}
