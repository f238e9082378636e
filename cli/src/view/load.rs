//! `linerate load`: one slot or several merged, a ramp, overload. `search` has the search for the capacity.

pub(crate) mod live;
mod merged_generators;
mod search;

use linerate_load::capacity::OverloadResult;
use linerate_load::report::{LoadReport, OverloadReport, RampReport};
use linerate_load::{CodeCount, GeneratorDescription, Latency, SendMethod, SlotInterval, SlotOutcome};

use crate::document::{
    Audience, ChartScale, Document, Fact, LineAxis, LineChart, LineSeries, LineStyle, Mark, Note, Section,
    Table, Tile, Tone,
};
use crate::envelope::{CommandResult, Envelope};
use crate::render::format::{
    comma_list, count_with_noun, cpu_list, grouped, known_text, microseconds, percent, rate,
};

impl CommandResult for LoadReport {
    const SCHEMA: &'static str = "linerate.load/2";

    fn document(envelope: &Envelope<Self>) -> Document {
        let report = &envelope.result;
        let outcome = &report.outcome;
        if report.no_reply {
            return sent_only_document(envelope);
        }
        let verdict = format!(
            "{}/s answered of {}/s offered, {} lost",
            rate(outcome.answered_per_second),
            rate(outcome.offered_per_second),
            percent(outcome.loss_ratio()),
        );
        let merged_text = match report.merged.len() {
            0 => String::new(),
            runs => format!("{runs} runs merged, "),
        };
        let time = (outcome.duration.as_secs_f64() * 1e3).round() / 1e3;
        let about = format!("{merged_text}{}, {time} s", generator_text(&report.generator));
        let mut facts = generator_facts(&report.generator);
        facts.push(Fact::new("sent for", seconds(outcome.duration.as_secs_f64())));
        if outcome.bursts.max_requests > 0 {
            let bursts = &outcome.bursts;
            let words =
                format!("median {}, largest {} requests", bursts.median_requests, bursts.max_requests);
            facts.push(Fact::new("bursts", words));
        }
        let charts = timeline_charts(&outcome.intervals).into_iter().chain(distribution(&outcome.latency_ns));
        let mut sections = vec![
            Section::default().only_for(Audience::Text).with(about.clone()).with(slot_facts(report)),
            chart_section(charts),
            Section::new("Latency, us").only_for(Audience::Page).with(latency_table(outcome)),
            Section::new("Requests and replies").only_for(Audience::Page).with(slot_facts(report)),
        ];
        sections.extend(generators_section(report));
        sections.push(method_section(facts));
        Document {
            tiles: slot_tiles(outcome),
            about,
            sections,
            ..base_document("Load", verdict, envelope, &report.missed)
        }
    }

    fn check(&self) -> Result<(), String> {
        LoadReport::check(self)
    }
}

impl CommandResult for RampReport {
    const SCHEMA: &'static str = "linerate.load-ramp/2";

    fn document(envelope: &Envelope<Self>) -> Document {
        let report = &envelope.result;
        let steps = &report.steps;
        let best_rate = steps.iter().map(|step| step.answered_per_second).fold(0.0, f64::max);
        let highest_rate = steps.iter().map(|step| step.offered_per_second).fold(0.0, f64::max);
        let mut facts = generator_facts(&report.generator);
        let step_fact =
            steps.first().map(|step| Fact::new("each step", seconds(step.duration.as_secs_f64())));
        facts.extend(step_fact);
        let rows = steps.iter().map(|step| {
            [
                known_text(step.requested_per_second, rate),
                rate(step.offered_per_second),
                rate(step.answered_per_second),
                percent(step.loss_ratio()),
                latency_at(&step.latency_ns, 0.5),
                latency_at(&step.latency_ns, 0.99),
                latency_at(&step.latency_ns, 1.0),
            ]
        });
        let table = Table::new(">asked/s | >offered/s | >answered/s | >loss | >p50 us | >p99 us | >max us")
            .with_rows(rows);
        let verdict = format!("Up to {}/s answered of {}/s offered", rate(best_rate), rate(highest_rate));
        Document {
            about: generator_text(&report.generator),
            sections: vec![
                chart_section(rate_charts(steps)),
                Section::new("Each rate").with(table),
                method_section(facts),
            ],
            ..base_document("Load, rate by rate", verdict, envelope, &report.missed)
        }
    }
}

impl CommandResult for OverloadReport {
    const SCHEMA: &'static str = "linerate.load-overload/2";

    fn document(envelope: &Envelope<Self>) -> Document {
        let report = &envelope.result;
        let verdict = format!("Above a capacity of {}/s", rate(report.capacity_per_second));
        Document {
            about: generator_text(&report.generator),
            sections: vec![
                overload_section(&report.overload),
                method_section(generator_facts(&report.generator)),
            ],
            ..base_document("Load above capacity", verdict, envelope, &[])
        }
    }
}

/// The generators of a merged result.
fn generators_section(report: &LoadReport) -> Option<Section> {
    let table = || merged_generators::table(report);
    (!report.merged.is_empty()).then(|| Section::new("Generators").with(table()))
}

/// A slot to a service that sends no replies.
fn sent_only_document(envelope: &Envelope<LoadReport>) -> Document {
    let outcome = &envelope.result.outcome;
    let (per_second, sent_count) = (rate(outcome.offered_per_second), grouped(outcome.sent));
    let verdict =
        format!("{per_second}/s sent, {sent_count} requests. No replies were expected: the receiver counts");
    let about = format!(
        "{}, {}",
        generator_text(&envelope.result.generator),
        seconds(outcome.duration.as_secs_f64())
    );
    let mut sending_facts = vec![Fact::new("sent", outcome.self_watch.send_method.to_string())];
    if outcome.send_errors.unsent() > 0 {
        sending_facts.push(Fact::new("not sent", grouped(outcome.send_errors.unsent())));
    }
    let mut sections =
        vec![Section::default().only_for(Audience::Text).with(about.clone()).with(sending_facts)];
    sections.extend(generators_section(&envelope.result));
    sections.push(method_section(generator_facts(&envelope.result.generator)));
    Document {
        tiles: vec![Tile::new(per_second, "/s", "sent"), Tile::new(sent_count, "", "requests sent")],
        about,
        sections,
        ..base_document("Load", verdict, envelope, &[])
    }
}

fn base_document<T>(
    title: &'static str,
    verdict: String,
    envelope: &Envelope<T>,
    missed_thresholds: &[String],
) -> Document {
    let missed_notes =
        missed_thresholds.iter().map(|threshold| Note::alarm("Missed:", format!("{threshold}.")));
    let warnings = envelope.warnings.iter().map(|warning| Note {
        tone: Tone::Warn,
        lead: "Warning:",
        ..Note::new(format!("{}.", warning.detail))
    });
    let notes = missed_notes.chain(warnings).collect();
    let mark = (!missed_thresholds.is_empty()).then(|| Mark::new(Tone::Bad, "threshold missed"));
    Document { notes, mark, ..Document::new(title, verdict, envelope.origin(), &[]) }
}

/// The last section, about the generator and the method.
fn method_section(facts: Vec<Fact>) -> Section {
    Section::new("How it was measured").only_for(Audience::Page).with(facts)
}

fn chart_section(charts: impl IntoIterator<Item = LineChart>) -> Section {
    charts.into_iter().fold(Section::new("Charts").only_for(Audience::Page), Section::with)
}

/// The generator in one line.
fn generator_text(generator: &GeneratorDescription) -> String {
    format!(
        "{}, {}, {} bytes, {} backend, {}",
        count_with_noun(generator.flows, "flow"),
        generator.workload,
        generator.payload_bytes,
        generator.backend,
        count_with_noun(generator.threads, "thread"),
    )
}

fn generator_facts(generator: &GeneratorDescription) -> Vec<Fact> {
    let mut facts = vec![
        Fact::new("targets", first_of(&generator.targets)),
        Fact::new("workload", format!("{}, {} bytes", generator.workload, generator.payload_bytes)),
        Fact::new("backend", generator.backend.clone()),
        Fact::new("threads, flows", format!("{}, {}", generator.threads, generator.flows)),
    ];
    if !generator.cpus.is_empty() {
        facts.push(Fact::new("CPUs", cpu_list(&generator.cpus)));
    }
    if !generator.sources.is_empty() {
        facts.push(Fact::new("sources", first_of(&generator.sources)));
    }
    facts.extend(generator.fallbacks.iter().map(|fallback| Fact::new("fallback", fallback.clone())));
    facts
}

/// The first items, and the number of further ones.
fn first_of<T: std::fmt::Display>(items: &[T]) -> String {
    const MOST: usize = 8;
    let listed = comma_list(items.iter().take(MOST));
    match items.len().saturating_sub(MOST) {
        0 => listed,
        hidden_count => format!("{listed} and {hidden_count} more"),
    }
}

/// The counts of a slot, as text.
fn slot_facts(report: &LoadReport) -> Vec<Fact> {
    let outcome = &report.outcome;
    let (offered_text, answered_text) = (rate(outcome.offered_per_second), rate(outcome.answered_per_second));
    let counts = [outcome.sent, outcome.answered, outcome.lost].map(grouped);
    let [sent_text, replies, lost_text] = &counts;
    let loss_text = percent(outcome.loss_ratio());
    let mut facts = vec![
        Fact::new("rate", format!("offered {offered_text}/s, answered {answered_text}/s")),
        Fact::new(
            "requests",
            format!("sent {sent_text}, answered {replies}, lost {lost_text} ({loss_text})"),
        ),
    ];
    let (send_method, bursts) = (outcome.self_watch.send_method, &outcome.bursts);
    if bursts.max_requests > 0 {
        let words = format!(
            "{send_method}, median {} at a time, at most {}",
            bursts.median_requests, bursts.max_requests
        );
        facts.push(Fact::new("sent", words));
    }
    let other_replies = format!(
        "duplicate {}, reordered {}, corrupt {}, unsolicited {}, late {}",
        outcome.duplicate, outcome.reordered, outcome.corrupt, outcome.unsolicited, outcome.late
    );
    facts.push(Fact::new("other replies", other_replies));
    if outcome.lost > 0 {
        facts.push(Fact::new("no reply", unanswered(outcome, &report.generator.workload)));
    }
    if outcome.send_errors.unsent() > 0 {
        facts.push(Fact::new("not sent", grouped(outcome.send_errors.unsent())));
    }
    if outcome.self_watch.timed_out > 0 {
        let words =
            format!("{} requests released their place after 200 ms", grouped(outcome.self_watch.timed_out));
        facts.push(Fact::new("window", words));
    }
    facts.push(Fact::new("latency", latency_text(&outcome.latency_ns)));
    facts.extend(codes_fact(&outcome.codes));
    facts.extend(report.generator.fallbacks.iter().map(|fallback| Fact::new("fallback", fallback.clone())));
    facts
}

/// Replies by code; `None` for a protocol without codes.
fn codes_fact(codes: &[CodeCount]) -> Option<Fact> {
    let texts = codes.iter().map(|code| {
        let truncated_text = match code.truncated {
            0 => String::new(),
            count => format!(" ({} truncated)", grouped(count)),
        };
        format!("{} {}{truncated_text}", code_name(code), grouped(code.count))
    });
    (!codes.is_empty()).then(|| Fact::new("codes", comma_list(texts)))
}

pub(crate) fn code_name(code: &CodeCount) -> String {
    code.name.clone().unwrap_or_else(|| format!("code {}", code.code))
}

/// Known reasons for missing replies.
fn unanswered(outcome: &SlotOutcome, workload: &str) -> String {
    let watch = &outcome.self_watch;
    let known_causes = [
        (watch.refused_by_link, "found the link's receiving queue full"),
        (watch.receive_drops, "replies dropped by the generator's own sockets"),
        (outcome.send_errors.refused, "refused by ICMP: nobody listened"),
        (outcome.send_errors.rejected, "rejected on the way (ICMP)"),
        (
            outcome.self_watch.send_drops,
            "dropped by queues of this host (may include packets of other programs)",
        ),
        (outcome.fragmented, "replies in fragments, which only --backend socket counts"),
        (outcome.corrupt, "replies corrupt"),
        (outcome.late, "replies to earlier requests, too late"),
    ];
    let mut unexplained = outcome.lost;
    let mut reasons = Vec::new();
    for (count, cause) in known_causes.into_iter().filter(|(count, _)| *count > 0) {
        unexplained = unexplained.saturating_sub(count);
        reasons.push(format!("{} {cause}", grouped(count)));
    }
    if unexplained > 0 || reasons.is_empty() {
        reasons.push(format!("{} without any reply", grouped(unexplained)));
    }
    if outcome.answered == 0 && unexplained > 0 {
        reasons.push(format!("so check the address and whether the server answers {workload} (--workload)"));
    }
    reasons.join(", ")
}

fn latency_text(latency: &Latency) -> String {
    let text_at = |quantile| {
        let latency = latency.quantile(quantile);
        latency.map_or_else(|| "-".to_owned(), |ns| format!("{} us", microseconds(ns)))
    };
    let [p50, p90, p99, p999, max] = [0.5, 0.9, 0.99, 0.999, 1.0].map(text_at);
    format!("p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {p999}, max {max}")
}

fn slot_tiles(outcome: &SlotOutcome) -> Vec<Tile> {
    let lost_label = format!("lost: {} of {}", grouped(outcome.lost), grouped(outcome.sent));
    vec![
        Tile::new(rate(outcome.answered_per_second), "/s", "answered"),
        Tile::new(percent(outcome.loss_ratio()), "", lost_label),
        Tile::new(latency_at(&outcome.latency_ns, 0.5), "us", "half answered within"),
        Tile::new(latency_at(&outcome.latency_ns, 0.99), "us", "99 % answered within"),
    ]
}

fn latency_table(outcome: &SlotOutcome) -> Table {
    let quantiles = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];
    let figures = quantiles.map(|quantile| latency_at(&outcome.latency_ns, quantile));
    Table::new(" | >p50 | >p90 | >p99 | >p99.9 | >p99.99 | >max")
        .with_rows([std::iter::once("from the intended send time".to_owned()).chain(figures)])
}

/// The share of the capacity that is answered at each multiple of it.
fn overload_section(overload: &[OverloadResult]) -> Section {
    let rows = overload.iter().map(|result| {
        let method_text = match result.send_method {
            SendMethod::LiveFrames => ", sent as live frames",
            _ => "",
        };
        let goodput = match (result.goodput_ratio.value(), result.goodput_ratio.why()) {
            (Some(ratio), _) => format!("{}{method_text}", percent(*ratio)),
            (None, reason) => format!("unknown: {}", reason.unwrap_or("no reason recorded")),
        };
        [format!("{} x", result.factor), rate(result.offered_per_second), goodput]
    });
    let table = Table::new("asked | >offered/s | of capacity still answered").with_rows(rows);
    Section::new("Above capacity").with(table)
}

/// A latency, us.
fn latency_at(latency: &Latency, quantile: f64) -> String {
    known_text(latency.quantile(quantile), microseconds)
}

fn seconds(value: f64) -> String {
    format!("{} s", (value * 100.0).round() / 100.0)
}

fn axis(name: &'static str, scale: ChartScale, format: fn(f64) -> String) -> LineAxis {
    LineAxis { name, scale, include: Vec::new(), format }
}

fn rates_axis(name: &'static str) -> LineAxis {
    axis(name, ChartScale::Linear, rate)
}

fn latency_axis() -> LineAxis {
    axis("microseconds from the intended send time", ChartScale::Logarithmic, |ns| microseconds(ns as u64))
}

/// An axis for shares up to at least 1 %, so that small losses look small.
fn loss_axis() -> LineAxis {
    LineAxis { include: vec![0.01], ..axis("share of the requests sent", ChartScale::Linear, percent) }
}

fn line_chart(title: &str, x_axis: LineAxis, y_axis: LineAxis, series: Vec<LineSeries>) -> LineChart {
    LineChart { title: title.to_owned(), across: x_axis, upward: y_axis, series, marker: None }
}

/// Rate, latency and loss over time.
fn timeline_charts(intervals: &[SlotInterval]) -> Vec<LineChart> {
    if intervals.len() < 2 {
        return Vec::new();
    }
    let midpoint = |interval: &SlotInterval| interval.begins_seconds + interval.seconds / 2.0;
    let series = |style, name, value_of: &dyn Fn(&SlotInterval) -> Option<f64>| LineSeries {
        style,
        name,
        values: intervals.iter().map(|interval| (midpoint(interval), value_of(interval))).collect(),
        joined: true,
    };
    let time = || LineAxis {
        include: intervals.iter().map(|interval| interval.begins_seconds + interval.seconds).collect(),
        ..axis("seconds from the start", ChartScale::Linear, seconds)
    };
    let per_second = |count: u64, interval: &SlotInterval| Some(count as f64 / interval.seconds);
    let ns = |value: Option<u64>| value.map(|ns| ns as f64);
    let loss = |interval: &SlotInterval| {
        let answered = interval.answered?;
        (interval.sent > 0).then(|| 1.0 - answered as f64 / interval.sent as f64)
    };
    vec![
        line_chart(
            "Rate",
            time(),
            rates_axis("per second"),
            vec![
                series(LineStyle::First, "sent", &|interval| per_second(interval.sent, interval)),
                series(LineStyle::Second, "received", &|interval| per_second(interval.received, interval)),
            ],
        ),
        line_chart(
            "Latency",
            time(),
            latency_axis(),
            vec![
                series(LineStyle::Third, "max", &|interval| ns(interval.latency_ns.max)),
                series(LineStyle::Second, "p99", &|interval| ns(interval.latency_ns.p99)),
                series(LineStyle::First, "p50", &|interval| ns(interval.latency_ns.p50)),
            ],
        ),
        line_chart(
            "Loss",
            time(),
            loss_axis(),
            vec![series(LineStyle::First, "lost of the requests of that time", &loss)],
        ),
    ]
}

/// Latency by the share of replies: each step to the right is a tenth of the remaining replies.
fn distribution(latency: &Latency) -> Option<LineChart> {
    // The last point stands for one reply of all.
    let max_rarity = (latency.count() as f64).clamp(10.0, 1e6);
    let steps = (max_rarity.log10() * 8.0).floor() as u32;
    let values = (0..=steps).map(|step| {
        let rarity = 10_f64.powf(f64::from(step) / 8.0);
        (rarity, latency.quantile(1.0 - 1.0 / rarity).map(|ns| ns as f64))
    });
    let x_axis = LineAxis {
        include: vec![1.0, max_rarity],
        ..axis("share of the replies, each line a tenth of those left", ChartScale::Logarithmic, share_within)
    };
    let values = values.collect();
    let series = LineSeries { style: LineStyle::First, name: "answered within", values, joined: true };
    (latency.count() > 0).then(|| line_chart("Latency by share", x_axis, latency_axis(), vec![series]))
}

/// The share of all replies but one in `rarity`, with enough digits to differ from 100 %: `96.67
/// %`.
fn share_within(rarity: f64) -> String {
    let digits = rarity.log10().floor().max(0.0) as usize + 1;
    let text = format!("{:.digits$}", (1.0 - 1.0 / rarity) * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Replies, latency and loss by the offered rate.
fn rate_charts(steps: &[SlotOutcome]) -> Vec<LineChart> {
    let series = |style, name, value_of: &dyn Fn(&SlotOutcome) -> Option<f64>| LineSeries {
        style,
        name,
        values: steps.iter().map(|step| (step.offered_per_second, value_of(step))).collect(),
        joined: true,
    };
    let offered_axis = || rates_axis("offered per second");
    let quantile =
        |quantile| move |step: &SlotOutcome| step.latency_ns.quantile(quantile).map(|latency| latency as f64);
    vec![
        line_chart(
            "Replies",
            offered_axis(),
            rates_axis("per second"),
            vec![
                series(LineStyle::Third, "offered", &|step| Some(step.offered_per_second)),
                series(LineStyle::First, "answered", &|step| Some(step.answered_per_second)),
            ],
        ),
        line_chart(
            "Latency",
            offered_axis(),
            latency_axis(),
            vec![
                series(LineStyle::Second, "p99", &quantile(0.99)),
                series(LineStyle::First, "p50", &quantile(0.5)),
            ],
        ),
        line_chart(
            "Loss",
            offered_axis(),
            loss_axis(),
            vec![series(LineStyle::First, "lost", &|step| Some(step.loss_ratio()))],
        ),
    ]
}

#[cfg(test)]
mod tests;
