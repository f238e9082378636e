//! The search for the capacity.

use linerate_load::capacity::{CapacitySample, ProbeResult, ProbeVerdict, SearchEnd};
use linerate_load::report::{SearchMethod, SearchReport};

use super::{
    axis, base_document, chart_section, codes_fact, generator_facts, generator_text, latency_at,
    latency_axis, latency_text, line_chart, loss_axis, method_section, overload_section, seconds,
};
use crate::document::{
    Audience, ChartScale, Document, Fact, LineAxis, LineChart, LineSeries, LineStyle, Section, Table, Tile,
};
use crate::envelope::{CommandResult, Envelope};
use crate::render::format::{self, percent, rate, rate_range, time_span};

/// The closer charts show rates up to this distance from the capacity.
const NEAR: f64 = 0.08;

impl CommandResult for SearchReport {
    const SCHEMA: &'static str = "linerate.load-search/2";

    fn document(envelope: &Envelope<Self>) -> Document {
        let report = &envelope.result;
        let method = &report.method;
        let mut facts = generator_facts(&report.generator);
        facts.extend(codes_fact(&report.capacity.codes));
        facts.extend([
            Fact::new("a rate holds with", bounds(method)),
            Fact::new("each rate offered for", seconds(method.slot_seconds)),
            Fact::new("after a lead-in of", seconds(method.lead_in_seconds)),
            Fact::new("confirmed for", seconds(method.confirm_slot_seconds)),
            Fact::new("resolution", percent(method.resolution_ratio)),
        ]);
        let about = generator_text(&report.generator);
        let verdict = format!("Capacity: {}", headline(report));
        let mut sections = vec![
            Section::default().only_for(Audience::Text).with(about.clone()).with(text_facts(report)),
            chart_section(charts(report)),
            Section::new("Each search").only_for(Audience::Page).with(searches_table(report)),
        ];
        if !report.overload.is_empty() {
            sections.push(overload_section(&report.overload));
        }
        sections.push(method_section(facts));
        Document {
            about,
            tiles: tiles(report),
            sections,
            ..base_document("Capacity by search", verdict, envelope, &report.missed)
        }
    }
}

fn text_facts(report: &SearchReport) -> Vec<Fact> {
    let estimate = &report.capacity.transactions_per_second;
    let mut facts = Vec::new();
    if let (Some(low), Some(high)) = (estimate.low, estimate.high) {
        let words = format!(
            "{}/s, spread {} over {} searches, {} confirmed",
            rate_range(low, high),
            percent(report.capacity.spread_ratio),
            estimate.samples,
            report.capacity.confirmed,
        );
        facts.push(Fact::new("95 %", words));
    }
    facts.push(Fact::new("holds with", bounds(&report.method)));
    if estimate.median > 0.0 {
        let latency = &report.capacity.latency_ns;
        facts.push(Fact::new("sent", report.capacity.send_method.to_string()));
        facts.push(Fact::new("loss there", percent(report.capacity.loss_ratio)));
        facts.push(Fact::new("latency", latency_text(latency)));
        facts.extend(codes_fact(&report.capacity.codes));
    }
    facts
}

/// The capacity; a lower bound is marked.
fn headline(report: &SearchReport) -> String {
    let median = report.capacity.transactions_per_second.median;
    let is_bound =
        report.capacity.generator_bound || report.capacity.neighbourhood.ended == SearchEnd::Cancelled;
    match (median > 0.0, is_bound) {
        _ if report.capacity.is_unknown() => "unknown: interrupted".to_owned(),
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

fn tiles(report: &SearchReport) -> Vec<Tile> {
    let estimate = &report.capacity.transactions_per_second;
    if estimate.median <= 0.0 {
        return Vec::new();
    }
    let bound_sign = if report.capacity.generator_bound { "≥" } else { "" };
    let interval = match (estimate.low.zip(estimate.high), estimate.samples) {
        (Some((low, high)), _) => format!("{} (95 %)", rate_range(low, high)),
        (None, 1) => "one search".to_owned(),
        (None, samples) => format!("median of {samples} searches"),
    };
    let spread = format!("spread of {} searches, {} confirmed", estimate.samples, report.capacity.confirmed);
    vec![
        Tile::new(
            format!("{bound_sign}{}", rate(estimate.median)),
            "/s",
            format!("highest rate that holds: {interval}"),
        ),
        Tile::new(percent(report.capacity.spread_ratio), "", spread),
        Tile::new(percent(report.capacity.loss_ratio), "", "lost at that rate"),
        Tile::new(latency_at(&report.capacity.latency_ns, 0.99), "us", "99 % answered within, at that rate"),
    ]
}

fn samples(report: &SearchReport) -> impl Iterator<Item = (&'static str, &CapacitySample)> {
    let searches = report.capacity.searches.iter().map(|search| ("search", search));
    std::iter::once(("neighbourhood", &report.capacity.neighbourhood)).chain(searches)
}

/// Loss and latency by the offered rate: all rates, and those near the capacity.
fn charts(report: &SearchReport) -> Vec<LineChart> {
    let probes: Vec<&ProbeResult> = samples(report).flat_map(|(_, search)| &search.slots).collect();
    if probes.is_empty() {
        return Vec::new();
    }
    let median = report.capacity.transactions_per_second.median;
    let is_near_capacity = |probe: &&ProbeResult| (probe.offered_per_second / median - 1.0).abs() <= NEAR;
    let near_capacity: Vec<&ProbeResult> = probes.iter().copied().filter(is_near_capacity).collect();
    let marker = (median > 0.0).then(|| (median, headline(report)));
    let chart = |title: &str, scale, probes: &[&ProbeResult]| {
        let offered_axis = || -> LineAxis { axis("offered per second", scale, rate) };
        let p99 = |probe: &ProbeResult| probe.latency_ns.quantile(0.99).map(|ns| ns as f64);
        let (loss, latency) = (format!("Loss{title}"), format!("Latency{title}: 99 % answered within"));
        [
            line_chart(&loss, offered_axis(), loss_axis(), series(probes, |probe| Some(probe.loss_ratio))),
            line_chart(&latency, offered_axis(), latency_axis(), series(probes, p99)),
        ]
        .map(|chart| LineChart { marker: marker.clone(), ..chart })
    };
    let mut charts = chart("", ChartScale::Automatic, &probes).to_vec();
    if near_capacity.len() > 1 {
        charts.extend(chart(" near capacity", ChartScale::LinearZoomed, &near_capacity));
    }
    charts
}

/// Rates that held and rates that did not.
fn series(probes: &[&ProbeResult], value_of: impl Fn(&ProbeResult) -> Option<f64>) -> Vec<LineSeries> {
    let series_of = |style, name, is_held: bool| LineSeries {
        style,
        name,
        values: probes
            .iter()
            .filter(|probe| (probe.verdict == ProbeVerdict::Holds) == is_held)
            .map(|probe| (probe.offered_per_second, value_of(probe)))
            .collect(),
        joined: false,
    };
    vec![series_of(LineStyle::Fails, "did not hold", false), series_of(LineStyle::Holds, "held", true)]
}

fn searches_table(report: &SearchReport) -> Table {
    let rows = samples(report).map(|(name, search)| {
        let end_text = match search.ended {
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
            latency_at(&search.latency_ns, 0.5),
            latency_at(&search.latency_ns, 0.99),
            search.slots.len().to_string(),
            end_text.to_owned(),
        ]
    });
    Table::new(" | >holds/s | >loss | >p50 us | >p99 us | >rates tried | ended").with_rows(rows)
}
