//! The search for the capacity.

use anyhow::{Context, Result};
use linerate_load::LatencyQuantiles;
use linerate_load::capacity::{ProbeVerdict, SearchEnd};
use linerate_load::load_document::{ProbedRate, SearchDocument, SearchMethod, SearchSample, SearchSummary};

use super::{
    axis, chart_section, document_of, generator_facts, generator_text, latency_axis, line_chart, loss_axis,
    mark, measured, overload_section, seconds,
};
use crate::document::{
    Audience, ChartScale, Document, Fact, LineAxis, LineChart, LineSeries, LineStyle, Section, Table, Tile,
};
use crate::origin::{HostSummary, Origin};
use crate::render::format::{self, UNKNOWN, percent, rate, rate_range, time_span};

/// The closer charts show rates up to this share away from the capacity.
const NEAR: f64 = 0.08;

/// # Errors
/// If the result cannot be converted, which no result is known to cause.
pub(crate) fn search(document: &SearchDocument) -> Result<Document> {
    let value = serde_json::to_value(document).context("the result cannot be written as JSON")?;
    let summary: SearchSummary = serde_json::from_value(value).context("the result cannot be read again")?;
    Ok(search_summary(&summary))
}

pub(crate) fn search_summary(found: &SearchSummary) -> Document {
    let origin = Origin {
        schema: found.schema.clone(),
        version: found.version.clone(),
        argv: found.argv.clone(),
        started_unix_seconds: found.started_unix_seconds,
        host: HostSummary::named(found.host.clone()),
    };
    let method = &found.method;
    let mut facts = generator_facts(&found.generator);
    facts.extend([
        Fact::new("a rate holds with", bounds(method)),
        Fact::new("each rate offered for", seconds(method.slot_seconds)),
        Fact::new("after a lead-in of", seconds(method.lead_in_seconds)),
        Fact::new("confirmed for", seconds(method.confirm_slot_seconds)),
        Fact::new("resolution", percent(method.resolution_ratio)),
    ]);
    let about = generator_text(&found.generator);
    let verdict = format!("Capacity: {}", headline(found));
    let mut sections = vec![
        Section::default().only_for(Audience::Text).with(about.clone()).with(text_facts(found)),
        chart_section(charts(found)),
        Section::new("Each search").only_for(Audience::Page).with(searches_table(found)),
    ];
    if !found.overload.is_empty() {
        sections.push(overload_section(&found.overload));
    }
    let result = Document {
        about,
        mark: mark(&found.missed),
        tiles: tiles(found),
        sections,
        ..document_of("Capacity by search", verdict, origin, &found.missed, &found.warnings)
    };
    measured(result, facts)
}

fn text_facts(found: &SearchSummary) -> Vec<Fact> {
    let estimate = &found.transactions_per_second;
    let mut facts = Vec::new();
    if let (Some(low), Some(high)) = (estimate.low, estimate.high) {
        let words = format!(
            "{}/s, spread {} over {} searches, {} confirmed",
            rate_range(low, high),
            percent(found.spread_ratio),
            estimate.samples,
            found.confirmed,
        );
        facts.push(Fact::new("95 %", words));
    }
    facts.push(Fact::new("holds with", bounds(&found.method)));
    if estimate.median > 0.0 {
        let latency = &found.latency_ns;
        let at = |ns: Option<u64>| {
            ns.map_or_else(|| "-".to_owned(), |ns| format!("{} us", format::microseconds(ns)))
        };
        facts.push(Fact::new("sent as", found.left_as.to_string()));
        facts.push(Fact::new("loss there", percent(found.loss_ratio)));
        let words = format!(
            "p50 {}, p90 {}, p99 {}, p99.9 {}, max {}",
            at(latency.p50),
            at(latency.p90),
            at(latency.p99),
            at(latency.p999),
            at(latency.max)
        );
        facts.push(Fact::new("latency", words));
    }
    facts
}

/// The capacity; a lower bound is marked.
fn headline(found: &SearchSummary) -> String {
    let median = found.transactions_per_second.median;
    match (median > 0.0, found.generator_bound) {
        (false, _) => "none: no rate holds".to_owned(),
        (true, true) => format!(">= {}/s", exact(median)),
        (true, false) => format!("{}/s", exact(median)),
    }
}

/// A rate with four digits, as many as a fine search resolves.
fn exact(per_second: f64) -> String {
    let unit = 10_f64.powf((per_second.log10().floor() - 3.0).max(0.0));
    format::grouped(((per_second / unit).round() * unit) as u64)
}

/// The conditions under which a rate holds.
fn bounds(method: &SearchMethod) -> String {
    let p99 = method
        .max_p99_ns
        .map_or_else(String::new, |p99| format!(", 99 % answered within {}", time_span(p99 as f64)));
    format!("loss up to {}{p99}, no queue that grows", percent(method.max_loss_ratio))
}

fn microseconds(ns: Option<u64>) -> String {
    ns.map_or_else(|| UNKNOWN.to_owned(), format::microseconds)
}

fn tiles(found: &SearchSummary) -> Vec<Tile> {
    let estimate = &found.transactions_per_second;
    if estimate.median <= 0.0 {
        return Vec::new();
    }
    let bound = if found.generator_bound { "≥" } else { "" };
    let interval = estimate
        .low
        .zip(estimate.high)
        .map_or_else(|| "one search".to_owned(), |(low, high)| format!("{} (95 %)", rate_range(low, high)));
    let spread = format!("spread of {} searches, {} confirmed", estimate.samples, found.confirmed);
    vec![
        Tile::new(
            format!("{bound}{}", rate(estimate.median)),
            "/s",
            format!("highest rate that holds: {interval}"),
        ),
        Tile::new(percent(found.spread_ratio), "", spread),
        Tile::new(percent(found.loss_ratio), "", "lost at that rate"),
        Tile::new(microseconds(found.latency_ns.p99), "us", "99 % answered within, at that rate"),
    ]
}

fn samples(found: &SearchSummary) -> impl Iterator<Item = (&'static str, &SearchSample)> {
    let searches = found.searches.iter().map(|search| ("search", search));
    std::iter::once(("neighbourhood", &found.neighbourhood)).chain(searches)
}

/// Loss and latency against the rate offered, all rates and those near the capacity.
fn charts(found: &SearchSummary) -> Vec<LineChart> {
    let probes: Vec<&ProbedRate> = samples(found).flat_map(|(_, search)| &search.slots).collect();
    if probes.is_empty() {
        return Vec::new();
    }
    let median = found.transactions_per_second.median;
    let near = |probe: &&ProbedRate| (probe.offered_per_second / median - 1.0).abs() <= NEAR;
    let close: Vec<&ProbedRate> = probes.iter().copied().filter(near).collect();
    let marker = (median > 0.0).then(|| (median, headline(found)));
    let chart = |title: &str, scale, probes: &[&ProbedRate]| {
        let offered = || -> LineAxis { axis("offered per second", scale, rate) };
        let p99 = |probe: &ProbedRate| probe.latency_ns.p99.map(|ns| ns as f64);
        let (loss, latency) = (format!("Loss{title}"), format!("Latency{title}: 99 % answered within"));
        [
            line_chart(&loss, offered(), loss_axis(), series(probes, |probe| Some(probe.loss_ratio))),
            line_chart(&latency, offered(), latency_axis(), series(probes, p99)),
        ]
        .map(|chart| LineChart { marker: marker.clone(), ..chart })
    };
    let mut charts = chart("", ChartScale::Automatic, &probes).to_vec();
    if close.len() > 1 {
        charts.extend(chart(" near capacity", ChartScale::LinearZoomed, &close));
    }
    charts
}

/// Rates that held and rates that did not.
fn series(probes: &[&ProbedRate], pick: impl Fn(&ProbedRate) -> Option<f64>) -> Vec<LineSeries> {
    let of = |style, name, held: bool| LineSeries {
        style,
        name,
        values: probes
            .iter()
            .filter(|probe| (probe.verdict == ProbeVerdict::Holds) == held)
            .map(|probe| (probe.offered_per_second, pick(probe)))
            .collect(),
        joined: false,
    };
    vec![of(LineStyle::Fails, "did not hold", false), of(LineStyle::Holds, "held", true)]
}

fn searches_table(found: &SearchSummary) -> Table {
    let rows = samples(found).map(|(name, search)| {
        let LatencyQuantiles { p50, p99, .. } = search.latency_ns;
        let ended = match search.ended {
            SearchEnd::Confirmed if search.generator_bound => "at the generator's limit",
            SearchEnd::Confirmed => "confirmed",
            SearchEnd::NothingHolds => "nothing holds",
            SearchEnd::OutOfTime => "out of time",
            SearchEnd::Cancelled => "interrupted",
        };
        [
            name.to_owned(),
            rate(search.transactions_per_second),
            percent(search.loss_ratio),
            microseconds(p50),
            microseconds(p99),
            search.slots.len().to_string(),
            ended.to_owned(),
        ]
    });
    Table::new(&["", ">holds/s", ">loss", ">p50 us", ">p99 us", ">rates tried", "ended"]).with_rows(rows)
}
