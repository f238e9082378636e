//! What a search found, as text.

use linerate_load::capacity::{ProbeResult, ProbeVerdict};

use super::{format, load_text};
use crate::command::load::search::{SearchDocument, SearchMethod};

/// The names of the columns of [`probe`].
pub(crate) const HEADER: &str = "offered/s  answered/s      loss     p99 us  verdict";

/// One rate that was tried, in one line.
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

/// A verdict in words.
pub(crate) fn verdict(verdict: ProbeVerdict) -> &'static str {
    match verdict {
        ProbeVerdict::Holds => "holds",
        ProbeVerdict::NothingAnswered => "nothing answered",
        ProbeVerdict::Loss => "loss",
        ProbeVerdict::TooSlow => "too slow",
        ProbeVerdict::QueueGrows => "queue grows",
        ProbeVerdict::GeneratorBound => "generator bound",
    }
}

pub(crate) fn text(document: &SearchDocument) -> String {
    let capacity = &document.capacity;
    let rate = &capacity.transactions_per_second;
    let mut lines = vec![
        load_text::generator_text(&document.generator),
        format!("capacity {}", headline(rate.median, capacity.generator_bound)),
    ];
    if let (Some(low), Some(high)) = (rate.low, rate.high) {
        lines.push(format!(
            "doubt    {}/s (95 %)   spread {} over {} searches, {} confirmed",
            format::rate_range(low, high),
            format::percent(capacity.spread_ratio),
            rate.samples,
            capacity.confirmed,
        ));
    }
    lines.push(format!("bound    {}", bounds(&document.method)));
    if rate.median > 0.0 {
        lines.push(format!("sent     {}", capacity.left_as));
        lines.push(format!("there    loss {}", format::percent(capacity.loss_ratio)));
        lines.push(load_text::latency(&capacity.latency_ns));
    }
    lines.extend(document.overload.iter().map(load_text::overload_line));
    load_text::text_with_warnings(lines, &document.missed, &document.warnings)
}

/// The figure, with whether it is more than that.
pub(crate) fn headline(found: f64, lower_bound: bool) -> String {
    match (found > 0.0, lower_bound) {
        (false, _) => "none: no rate holds".to_owned(),
        (true, true) => format!(">= {}/s", exact(found)),
        (true, false) => format!("{}/s", exact(found)),
    }
}

/// A rate with as many digits as a fine search tells apart: four.
fn exact(per_second: f64) -> String {
    let unit = 10_f64.powf((per_second.log10().floor() - 3.0).max(0.0));
    format::grouped(((per_second / unit).round() * unit) as u64)
}

/// What a rate had to keep to hold.
pub(crate) fn bounds(method: &SearchMethod) -> String {
    let p99 = method
        .max_p99_ns
        .map_or_else(String::new, |p99| format!(", 99 % answered within {}", format::time_span(p99 as f64)));
    format!("loss up to {}{p99}, no queue that grows", format::percent(method.max_loss_ratio))
}
