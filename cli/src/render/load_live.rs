//! What happens under load, a line an interval, as iperf3 shows it.

use linerate_load::SlotInterval;

use super::format;

/// Shows intervals on standard error as they come.
pub(crate) struct LiveIntervals {
    on: bool,
    headed: bool,
    /// Sent and not answered so far; a reply may come before its request's interval is told.
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
            eprintln!("{HEADER}");
        }
        eprintln!("{}", line(interval, self.unanswered));
    }

    /// Shows a line of its own.
    pub(crate) fn note(&mut self, text: &str) {
        if self.on {
            eprintln!("{text}");
        }
    }
}

const HEADER: &str = "       seconds      sent/s  received/s     p50 us     p99 us   unanswered";

/// An interval in one line.
fn line(interval: &SlotInterval, unanswered: i64) -> String {
    let begins = interval.begins_seconds;
    let ends = begins + interval.seconds;
    let decimals = usize::from((begins * 1e3).round() % 1e3 != 0.0 || (ends * 1e3).round() % 1e3 != 0.0) * 2;
    let time = format!("{begins:.decimals$}-{ends:.decimals$}");
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

#[cfg(test)]
mod tests {
    use linerate_load::LatencyQuantiles;

    use super::*;

    #[test]
    fn columns_line_up() {
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
        let shown = line(&interval, 12_345);
        assert_eq!(shown, "          9-10      1.00 M       999 k       34.2      1,234       12,345");
        assert_eq!(shown.len(), HEADER.len());
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
