//! Pages of one stretch of load, of a ramp and of overload.

use anyhow::Result;
use linerate_load::load_document::LoadDocument;
use linerate_load::{Latency, SlotInterval, SlotOutcome};

use super::super::axis::ValueAxis;
use super::super::curve::{ChartAxis, CurveChart, CurveSeries, chart};
use super::super::format;
use super::super::page::{self, HtmlTable, PageHead, PageResult, ResultPosition};
use super::head::head;
use super::{
    FigureTile, LoadPageBody, generator_facts, latencies, latency_at, mark, notes, rates, seconds, shares,
};
use crate::command::load::overload::OverloadDocument;
use crate::command::load::ramp::RampDocument;

/// The page of one stretch of load.
pub(crate) fn slot(document: &LoadDocument) -> Result<String> {
    page::single_result_page(|place| slot_part(document, place))
}

/// One stretch of load in a page.
pub(crate) fn slot_part(document: &LoadDocument, place: &ResultPosition) -> Result<PageResult> {
    let outcome = &document.outcome;
    let mut facts = generator_facts(&document.generator);
    facts.push(("sent for", seconds(outcome.duration.as_secs_f64())));
    if outcome.bursts.max_requests > 0 {
        let bursts = &outcome.bursts;
        facts.push((
            "bursts",
            format!("median {}, largest {} requests", bursts.median_requests, bursts.max_requests),
        ));
    }
    let mut tables = vec![latency_table(outcome), account_table(outcome)];
    if !outcome.codes.is_empty() {
        tables.push(codes_table(outcome));
    }
    let body = LoadPageBody {
        place,
        tiles: slot_tiles(outcome),
        notes: notes(&document.missed, &document.warnings),
        charts: timeline_charts(&outcome.intervals)
            .into_iter()
            .chain(distribution(&outcome.latency_ns))
            .collect(),
        tables,
        facts,
    };
    let verdict = format!(
        "{}/s answered of {}/s offered, {} lost",
        format::rate(outcome.answered_per_second),
        format::rate(outcome.offered_per_second),
        format::percent(outcome.loss_ratio()),
    );
    let started = outcome.started_realtime_ns / 1_000_000_000;
    let head = PageHead { mark: mark(&document.missed), ..head(document, &verdict, Some(started)) };
    page::part(head, &body)
}

fn slot_tiles(outcome: &SlotOutcome) -> Vec<FigureTile> {
    vec![
        FigureTile::new(format::rate(outcome.answered_per_second), "/s", "answered"),
        FigureTile::new(
            format::percent(outcome.loss_ratio()),
            "",
            format!("lost: {} of {}", format::grouped(outcome.lost), format::grouped(outcome.sent)),
        ),
        FigureTile::new(latency_at(&outcome.latency_ns, 0.5), "us", "half answered within"),
        FigureTile::new(latency_at(&outcome.latency_ns, 0.99), "us", "99 % answered within"),
    ]
}

fn latency_table(outcome: &SlotOutcome) -> HtmlTable {
    let quantiles = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];
    HtmlTable {
        heading: "Latency, us",
        columns: vec!["", "p50", "p90", "p99", "p99.9", "p99.99", "max"],
        rows: vec![
            std::iter::once("from the intended send time".to_owned())
                .chain(quantiles.map(|quantile| latency_at(&outcome.latency_ns, quantile)))
                .collect(),
        ],
        ..HtmlTable::default()
    }
}

fn account_table(outcome: &SlotOutcome) -> HtmlTable {
    let counts = [
        outcome.sent,
        outcome.answered,
        outcome.lost,
        outcome.duplicate,
        outcome.reordered,
        outcome.corrupt,
        outcome.foreign,
        outcome.late,
        outcome.send_errors.total(),
    ];
    HtmlTable {
        heading: "Every datagram",
        columns: vec![
            "",
            "sent",
            "answered",
            "lost",
            "duplicate",
            "reordered",
            "corrupt",
            "foreign",
            "late",
            "not sent",
        ],
        rows: vec![std::iter::once("datagrams".to_owned()).chain(counts.map(format::grouped)).collect()],
        ..HtmlTable::default()
    }
}

fn codes_table(outcome: &SlotOutcome) -> HtmlTable {
    let row = |code: &linerate_load::CodeCount| {
        let name = code.name.clone().unwrap_or_else(|| format!("code {}", code.code));
        let share = code.count as f64 / outcome.answered.max(1) as f64;
        vec![name, format::grouped(code.count), format::percent(share), format::grouped(code.truncated)]
    };
    HtmlTable {
        heading: "Answers by code",
        columns: vec!["code", "answers", "share", "truncated"],
        rows: outcome.codes.iter().map(row).collect(),
        ..HtmlTable::default()
    }
}

/// Rate, latency and loss over time; nothing where no intervals were told.
fn timeline_charts(intervals: &[SlotInterval]) -> Vec<CurveChart> {
    if intervals.len() < 2 {
        return Vec::new();
    }
    let middle = |interval: &SlotInterval| interval.begins_seconds + interval.seconds / 2.0;
    let series = |class, name, pick: &dyn Fn(&SlotInterval) -> Option<f64>| CurveSeries {
        class,
        name,
        values: intervals.iter().map(|interval| (middle(interval), pick(interval))).collect(),
        joined: true,
    };
    let ends = intervals.iter().map(|interval| interval.begins_seconds + interval.seconds);
    let time = ChartAxis { name: "seconds from the start", axis: ValueAxis::linear(ends), read: seconds };
    let rate = |count: u64, interval: &SlotInterval| count as f64 / interval.seconds;
    let all_rates = intervals
        .iter()
        .flat_map(|interval| [rate(interval.sent, interval), rate(interval.received, interval)]);
    let loss = |interval: &SlotInterval| {
        let answered = interval.answered?;
        (interval.sent > 0).then(|| 1.0 - answered as f64 / interval.sent as f64)
    };
    let ns = |value: Option<u64>| value.map(|ns| ns as f64);
    let all_latencies =
        intervals.iter().flat_map(|interval| [interval.latency_ns.p50, interval.latency_ns.max]).flatten();
    vec![
        chart(
            "Rate",
            &time,
            &rates("a second", all_rates),
            &[
                series("one", "sent", &|interval| Some(rate(interval.sent, interval))),
                series("two", "received", &|interval| Some(rate(interval.received, interval))),
            ],
            None,
        ),
        chart(
            "Latency",
            &time,
            &latencies(all_latencies),
            &[
                series("three", "max", &|interval| ns(interval.latency_ns.max)),
                series("two", "p99", &|interval| ns(interval.latency_ns.p99)),
                series("one", "p50", &|interval| ns(interval.latency_ns.p50)),
            ],
            None,
        ),
        chart(
            "Loss",
            &time,
            &shares(intervals.iter().filter_map(loss)),
            &[series("one", "lost of the requests of that time", &loss)],
            None,
        ),
    ]
}

/// Latency by the share that was answered within it: each step to the right is a tenth of those left.
fn distribution(latency: &Latency) -> Option<CurveChart> {
    // The rarest of so many samples still is one of them.
    let rarest = (latency.count() as f64).clamp(10.0, 1e6);
    let steps = (rarest.log10() * 8.0).floor() as u32;
    let values = (0..=steps).map(|step| {
        let rarity = 10_f64.powf(f64::from(step) / 8.0);
        (rarity, latency.quantile(1.0 - 1.0 / rarity).map(|ns| ns as f64))
    });
    let values: Vec<(f64, Option<f64>)> = values.collect();
    let across = ChartAxis {
        name: "share of the answers, each line a tenth of those left",
        axis: ValueAxis::log([1.0, rarest]),
        read: share_within,
    };
    let upward = latencies(values.iter().filter_map(|(_, ns)| ns.map(|ns| ns as u64)));
    let series = CurveSeries { class: "one", name: "answered within", values, joined: true };
    (latency.count() > 0).then(|| chart("Latency by share", &across, &upward, &[series], None))
}

/// The share that all but one in `rarity` are, with the digits that tell it from the whole: `96.67 %`.
fn share_within(rarity: f64) -> String {
    let digits = rarity.log10().floor().max(0.0) as usize + 1;
    let text = format!("{:.digits$}", (1.0 - 1.0 / rarity) * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// The page of a ramp.
pub(crate) fn ramp(document: &RampDocument) -> Result<String> {
    page::single_result_page(|place| ramp_part(document, place))
}

/// A ramp in a page.
pub(crate) fn ramp_part(document: &RampDocument, place: &ResultPosition) -> Result<PageResult> {
    let steps = &document.steps;
    let best = steps.iter().map(|step| step.answered_per_second).fold(0.0, f64::max);
    let highest = steps.iter().map(|step| step.offered_per_second).fold(0.0, f64::max);
    let row = |step: &SlotOutcome| {
        vec![
            step.asked_per_second.map_or_else(|| format::UNKNOWN.to_owned(), format::rate),
            format::rate(step.offered_per_second),
            format::rate(step.answered_per_second),
            format::percent(step.loss_ratio()),
            latency_at(&step.latency_ns, 0.5),
            latency_at(&step.latency_ns, 0.99),
            latency_at(&step.latency_ns, 1.0),
        ]
    };
    let mut facts = generator_facts(&document.generator);
    facts.extend(steps.first().map(|step| ("each step", seconds(step.duration.as_secs_f64()))));
    let body = LoadPageBody {
        place,
        tiles: Vec::new(),
        notes: notes(&[], &document.warnings),
        charts: rate_charts(steps),
        tables: vec![HtmlTable {
            heading: "Each rate",
            columns: vec!["asked/s", "offered/s", "answered/s", "loss", "p50 us", "p99 us", "max us"],
            rows: steps.iter().map(row).collect(),
            ..HtmlTable::default()
        }],
        facts,
    };
    let verdict = format!("Up to {}/s answered of {}/s offered", format::rate(best), format::rate(highest));
    let started = steps.first().map(|step| step.started_realtime_ns / 1_000_000_000);
    page::part(head(document, &verdict, started), &body)
}

/// Answers, latency and loss against the rate offered.
fn rate_charts(steps: &[SlotOutcome]) -> Vec<CurveChart> {
    let series = |class, name, pick: &dyn Fn(&SlotOutcome) -> Option<f64>| CurveSeries {
        class,
        name,
        values: steps.iter().map(|step| (step.offered_per_second, pick(step))).collect(),
        joined: true,
    };
    let offered = rates("offered a second", steps.iter().map(|step| step.offered_per_second));
    let quantile =
        |quantile| move |step: &SlotOutcome| step.latency_ns.quantile(quantile).map(|latency| latency as f64);
    let all_latencies = steps
        .iter()
        .flat_map(|step| [step.latency_ns.quantile(0.5), step.latency_ns.quantile(0.99)])
        .flatten();
    vec![
        chart(
            "Answers",
            &offered,
            &rates("a second", steps.iter().map(|step| step.offered_per_second)),
            &[
                series("three", "offered", &|step| Some(step.offered_per_second)),
                series("one", "answered", &|step| Some(step.answered_per_second)),
            ],
            None,
        ),
        chart(
            "Latency",
            &offered,
            &latencies(all_latencies),
            &[series("two", "p99", &quantile(0.99)), series("one", "p50", &quantile(0.5))],
            None,
        ),
        chart(
            "Loss",
            &offered,
            &shares(steps.iter().map(SlotOutcome::loss_ratio)),
            &[series("one", "lost", &|step| Some(step.loss_ratio()))],
            None,
        ),
    ]
}

/// The page of multiples of a known capacity.
pub(crate) fn overload(document: &OverloadDocument) -> Result<String> {
    page::single_result_page(|place| overload_part(document, place))
}

/// Multiples of a known capacity in a page.
pub(crate) fn overload_part(document: &OverloadDocument, place: &ResultPosition) -> Result<PageResult> {
    let body = LoadPageBody {
        place,
        tiles: Vec::new(),
        notes: notes(&[], &document.warnings),
        charts: Vec::new(),
        tables: vec![overload_table(&document.overload)],
        facts: generator_facts(&document.generator),
    };
    let verdict = format!("Above a capacity of {}/s", format::rate(document.capacity_per_second));
    page::part(head(document, &verdict, document.started_unix_seconds), &body)
}

/// What is answered at each multiple of capacity.
pub(super) fn overload_table(overload: &[linerate_load::capacity::OverloadResult]) -> HtmlTable {
    let row = |one: &linerate_load::capacity::OverloadResult| {
        let goodput = match (one.goodput_ratio.value(), one.goodput_ratio.why()) {
            (Some(ratio), _) => format::percent(*ratio),
            (None, why) => format!("unknown: {}", why.unwrap_or("no reason recorded")),
        };
        vec![format!("{} x", one.factor), format::rate(one.offered_per_second), goodput]
    };
    HtmlTable {
        heading: "Above capacity",
        columns: vec!["asked", "offered/s", "of capacity still answered"],
        rows: overload.iter().map(row).collect(),
        ..HtmlTable::default()
    }
}
