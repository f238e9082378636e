//! What a run of load came to, as text.

use linerate_load::capacity::OverloadResult;
use linerate_load::load_document::LoadDocument;
use linerate_load::{GeneratorDescription, Latency, LeftAs, SlotOutcome};

use super::format;
use crate::command::load::overload::OverloadDocument;
use crate::command::load::ramp::RampDocument;

/// The account of one slot.
pub(crate) fn slot(document: &LoadDocument) -> String {
    let outcome = &document.outcome;
    let several = match document.merged.len() {
        0 => String::new(),
        runs => format!("{runs} runs merged, "),
    };
    let seconds = (outcome.duration.as_secs_f64() * 1e3).round() / 1e3;
    let mut lines = vec![format!("{several}{}, {seconds} s", generator_text(&document.generator))];
    lines.push(format!(
        "offered  {:>12}/s   answered {}/s",
        format::rate(outcome.offered_per_second),
        format::rate(outcome.answered_per_second)
    ));
    lines.push(format!(
        "sent     {:>12}     answered {}   lost {} ({})",
        format::grouped(outcome.sent),
        format::grouped(outcome.answered),
        format::grouped(outcome.lost),
        format::percent(outcome.loss_ratio()),
    ));
    lines.extend(send_method_line(outcome));
    lines.push(format!(
        "apart    duplicate {}   reordered {}   corrupt {}   foreign {}   late {}",
        outcome.duplicate, outcome.reordered, outcome.corrupt, outcome.foreign, outcome.late
    ));
    lines.extend(unanswered(outcome));
    lines.push(latency(&outcome.latency_ns));
    if !outcome.codes.is_empty() {
        let codes = outcome.codes.iter().map(|code| {
            let name = code.name.clone().unwrap_or_else(|| format!("code {}", code.code));
            let truncated = match code.truncated {
                0 => String::new(),
                count => format!(" ({} truncated)", format::grouped(count)),
            };
            format!("{name} {}{truncated}", format::grouped(code.count))
        });
        lines.push(format!("answers  {}", codes.collect::<Vec<_>>().join("   ")));
    }
    lines.extend(document.generator.fallbacks.iter().map(|fallback| format!("instead  {fallback}")));
    text_with_warnings(lines, &document.missed, &document.warnings)
}

/// What is known of the requests without an answer.
fn unanswered(outcome: &SlotOutcome) -> Option<String> {
    let watch = &outcome.self_watch;
    let known = [
        (watch.refused_by_link, "found the link's receiving queue full"),
        (watch.receive_drops, "replies dropped by the generator's own sockets"),
        (outcome.send_errors.refused, "refused by ICMP: nobody listened"),
        (outcome.corrupt, "replies corrupt"),
        (outcome.late, "replies to earlier requests, too late"),
    ];
    let mut rest = outcome.lost;
    let mut reasons = Vec::new();
    for (count, what) in known.into_iter().filter(|(count, _)| *count > 0) {
        rest = rest.saturating_sub(count);
        reasons.push(format!("{} {what}", format::grouped(count)));
    }
    reasons.push(format!("{} without any reply", format::grouped(rest)));
    (outcome.lost > 0).then(|| format!("no reply {}", reasons.join("   ")))
}

/// How requests left, if any did.
fn send_method_line(outcome: &SlotOutcome) -> Option<String> {
    let (way, bursts) = (outcome.self_watch.left_as, &outcome.bursts);
    (bursts.max_requests > 0).then(|| {
        format!("left     {way}, {} at a time, at most {}", bursts.median_requests, bursts.max_requests)
    })
}

/// What came of each rate.
pub(crate) fn ramp(document: &RampDocument) -> String {
    let mut lines = vec![ramp_header()];
    lines.extend(document.steps.iter().map(ramp_step));
    text_with_warnings(lines, &[], &document.warnings)
}

/// The names of the columns of [`ramp_step`].
pub(crate) fn ramp_header() -> String {
    "  asked/s   offered/s  answered/s      loss     p50 us     p99 us".to_owned()
}

/// One rate in one line.
pub(crate) fn ramp_step(outcome: &SlotOutcome) -> String {
    let latency =
        |quantile| outcome.latency_ns.quantile(quantile).map_or_else(|| "-".to_owned(), format::microseconds);
    format!(
        "{:>9}  {:>10}  {:>10}  {:>8} {:>10} {:>10}",
        outcome.asked_per_second.map_or_else(|| "-".to_owned(), format::rate),
        format::rate(outcome.offered_per_second),
        format::rate(outcome.answered_per_second),
        format::percent(outcome.loss_ratio()),
        latency(0.5),
        latency(0.99),
    )
}

/// What is answered above a known capacity.
pub(crate) fn overload(document: &OverloadDocument) -> String {
    let mut lines = vec![format!("capacity {:>12}/s as given", format::rate(document.capacity_per_second))];
    lines.extend(document.overload.iter().map(overload_line));
    text_with_warnings(lines, &[], &document.warnings)
}

/// What is answered at one multiple of capacity.
pub(crate) fn overload_line(overload: &OverloadResult) -> String {
    let factor = overload.factor;
    match (overload.goodput_ratio.value(), overload.goodput_ratio.why()) {
        (Some(ratio), _) => {
            let way = match overload.left_as {
                LeftAs::LiveFrames => ", asked by live frames",
                _ => "",
            };
            format!("at {factor:>4} x  {} of capacity still answered{way}", format::percent(*ratio))
        }
        (None, why) => format!("at {factor:>4} x  unknown: {}", why.unwrap_or("no reason recorded")),
    }
}

pub(crate) fn latency(latency: &Latency) -> String {
    let at = |quantile| {
        let latency = latency.quantile(quantile);
        latency.map_or_else(|| "-".to_owned(), |ns| format!("{} us", format::microseconds(ns)))
    };
    let [p50, p90, p99, p999, max] = [0.5, 0.9, 0.99, 0.999, 1.0].map(at);
    format!("latency  p50 {p50}   p90 {p90}   p99 {p99}   p99.9 {p999}   max {max}")
}

/// What offered the load.
pub(crate) fn generator_text(generator: &GeneratorDescription) -> String {
    format!(
        "{} flows, {}, {} bytes, {} backend, {} thread{}",
        generator.flows,
        generator.workload,
        generator.payload_bytes,
        generator.backend,
        generator.threads,
        if generator.threads == 1 { "" } else { "s" },
    )
}

/// The lines with what was missed and what has to be known, as one text.
pub(crate) fn text_with_warnings(mut lines: Vec<String>, missed: &[String], warnings: &[String]) -> String {
    lines.extend(missed.iter().map(|missed| format!("missed: {missed}")));
    lines.extend(warnings.iter().map(|warning| format!("warning: {warning}")));
    lines.push(String::new());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::made_up_load;

    #[test]
    fn requests_without_an_answer_have_reasons_that_add_up() {
        let mut document = made_up_load::document();
        let outcome = &mut document.outcome;
        (outcome.answered, outcome.lost) = (outcome.sent - 100, 100);
        (outcome.corrupt, outcome.late) = (3, 5);
        outcome.self_watch.refused_by_link = 40;
        let text = slot(&document);
        let line = text.lines().find(|line| line.starts_with("no reply")).expect("a line");
        let counts = line.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        assert_eq!(counts.collect::<Vec<_>>(), [40, 3, 5, 52], "{line}");
        document.outcome.lost = 0;
        assert!(!slot(&document).contains("no reply"));
    }

    #[test]
    fn truncated_answers_are_told_with_their_code() {
        let text = slot(&made_up_load::document());
        let line = text.lines().find(|line| line.starts_with("answers")).expect("a line");
        assert!(line.contains("NOERROR") && line.contains("(12 truncated)"), "{line}");
    }
}
