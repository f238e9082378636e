//! The page of a search.

use anyhow::{Context, Result};
use linerate_load::capacity::{OverloadResult, ProbeVerdict, SearchEnd};
use linerate_load::stats::ConfidenceInterval;
use linerate_load::{GeneratorDescription, LatencyQuantiles};
use serde::Deserialize;

use super::super::axis::ValueAxis;
use super::super::curve::{ChartAxis, CurveChart, CurveSeries, chart};
use super::super::page::{self, HtmlTable, PageHead, PageResult, ResultPosition};
use super::super::{format, load_search};
use super::head::{LoadPageHead, head};
use super::run::overload_table;
use super::{FigureTile, LoadPageBody, generator_facts, latencies, mark, notes, seconds, shares};
use crate::command::load::search::{SearchDocument, SearchMethod};

/// The closer look shows rates up to this share away from capacity.
const NEAR: f64 = 0.08;

/// What a page shows of a search: of its latencies the quantiles, as JSON has them.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SearchPageInput {
    schema: String,
    version: String,
    argv: Vec<String>,
    #[serde(default)]
    started_unix_seconds: Option<u64>,
    #[serde(default)]
    host: Option<String>,
    generator: GeneratorDescription,
    method: SearchMethod,
    transactions_per_second: ConfidenceInterval,
    spread_ratio: f64,
    loss_ratio: f64,
    latency_ns: LatencyQuantiles,
    generator_bound: bool,
    confirmed: usize,
    neighbourhood: SearchSample,
    searches: Vec<SearchSample>,
    #[serde(default)]
    overload: Vec<OverloadResult>,
    #[serde(default)]
    missed: Vec<String>,
    warnings: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct SearchSample {
    transactions_per_second: f64,
    loss_ratio: f64,
    latency_ns: LatencyQuantiles,
    generator_bound: bool,
    ended: SearchEnd,
    slots: Vec<ProbedRate>,
}

/// One rate that was tried.
#[derive(Debug, Clone, Deserialize)]
struct ProbedRate {
    offered_per_second: f64,
    loss_ratio: f64,
    latency_ns: LatencyQuantiles,
    verdict: ProbeVerdict,
}

impl LoadPageHead for SearchPageInput {
    fn made_by(&self) -> (&str, &str, &[String]) {
        (&self.schema, &self.version, &self.argv)
    }

    fn generator(&self) -> &GeneratorDescription {
        &self.generator
    }

    fn title(&self) -> &'static str {
        "Capacity by search"
    }

    fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }
}

/// The page of a search.
pub(crate) fn search(document: &SearchDocument) -> Result<String> {
    let value = serde_json::to_value(document).context("the result cannot be written as JSON")?;
    let found: SearchPageInput = serde_json::from_value(value).context("the result cannot be read again")?;
    page::single_result_page(|place| search_part(&found, place))
}

/// A search in a page.
pub(crate) fn search_part(found: &SearchPageInput, place: &ResultPosition) -> Result<PageResult> {
    let mut tables = vec![searches_table(found)];
    if !found.overload.is_empty() {
        tables.push(overload_table(&found.overload));
    }
    let method = &found.method;
    let mut facts = generator_facts(&found.generator);
    facts.push(("a rate holds with", load_search::bounds(method)));
    facts.push(("each rate offered for", seconds(method.slot_seconds)));
    facts.push(("after a lead-in of", seconds(method.lead_in_seconds)));
    facts.push(("confirmed for", seconds(method.confirm_slot_seconds)));
    facts.push(("resolution", format::percent(method.resolution_ratio)));
    let body = LoadPageBody {
        place,
        tiles: tiles(found),
        notes: notes(&found.missed, &found.warnings),
        charts: charts(found),
        tables,
        facts,
    };
    let verdict = format!("Capacity: {}", found.headline());
    let head = PageHead { mark: mark(&found.missed), ..head(found, &verdict, found.started_unix_seconds) };
    page::part(head, &body)
}

impl SearchPageInput {
    pub(crate) fn unix_seconds(&self) -> Option<u64> {
        self.started_unix_seconds
    }

    fn headline(&self) -> String {
        load_search::headline(self.transactions_per_second.median, self.generator_bound)
    }
}

fn microseconds(ns: Option<u64>) -> String {
    ns.map_or_else(|| format::UNKNOWN.to_owned(), format::microseconds)
}

fn tiles(capacity: &SearchPageInput) -> Vec<FigureTile> {
    let rate = &capacity.transactions_per_second;
    if rate.median <= 0.0 {
        return Vec::new();
    }
    let bound = if capacity.generator_bound { "≥" } else { "" };
    let doubt = rate.low.zip(rate.high).map_or_else(
        || "one search".to_owned(),
        |(low, high)| format!("{} (95 %)", format::rate_range(low, high)),
    );
    vec![
        FigureTile::new(
            format!("{bound}{}", format::rate(rate.median)),
            "/s",
            format!("highest rate that holds: {doubt}"),
        ),
        FigureTile::new(
            format::percent(capacity.spread_ratio),
            "",
            format!("spread of {} searches, {} confirmed", rate.samples, capacity.confirmed),
        ),
        FigureTile::new(format::percent(capacity.loss_ratio), "", "lost at that rate"),
        FigureTile::new(microseconds(capacity.latency_ns.p99), "us", "99 % answered within, at that rate"),
    ]
}

fn all(capacity: &SearchPageInput) -> impl Iterator<Item = (&'static str, &SearchSample)> {
    let searches = capacity.searches.iter().map(|search| ("search", search));
    std::iter::once(("neighbourhood", &capacity.neighbourhood)).chain(searches)
}

/// Loss and latency against the rate offered, all of it and near capacity.
fn charts(capacity: &SearchPageInput) -> Vec<CurveChart> {
    let probes: Vec<&ProbedRate> = all(capacity).flat_map(|(_, search)| &search.slots).collect();
    if probes.is_empty() {
        return Vec::new();
    }
    let found = capacity.transactions_per_second.median;
    let mark = || (found > 0.0).then(|| (found, capacity.headline()));
    let near = |probe: &&ProbedRate| (probe.offered_per_second / found - 1.0).abs() <= NEAR;
    let close: Vec<&ProbedRate> = probes.iter().copied().filter(near).collect();
    let wide = offered(ValueAxis::auto_scaled(
        &probes.iter().map(|probe| probe.offered_per_second).collect::<Vec<_>>(),
    ));
    let mut charts = vec![loss("Loss", &wide, &probes, mark()), latency("Latency", &wide, &probes, mark())];
    if close.len() > 1 {
        let narrow = offered(ValueAxis::linear_zoomed(close.iter().map(|probe| probe.offered_per_second)));
        charts.push(loss("Loss near capacity", &narrow, &close, mark()));
        charts.push(latency("Latency near capacity", &narrow, &close, mark()));
    }
    charts
}

fn offered(axis: ValueAxis) -> ChartAxis {
    let name = if axis.is_log() { "offered a second, logarithmic" } else { "offered a second" };
    ChartAxis { name, axis, read: format::rate }
}

fn loss(title: &str, across: &ChartAxis, probes: &[&ProbedRate], mark: Option<(f64, String)>) -> CurveChart {
    let upward = shares(probes.iter().map(|probe| probe.loss_ratio));
    chart(title, across, &upward, &series(probes, |probe| Some(probe.loss_ratio)), mark)
}

fn latency(
    title: &str,
    across: &ChartAxis,
    probes: &[&ProbedRate],
    mark: Option<(f64, String)>,
) -> CurveChart {
    let p99 = |probe: &ProbedRate| probe.latency_ns.p99;
    let upward = latencies(probes.iter().filter_map(|probe| p99(probe)));
    let series = series(probes, |probe| p99(probe).map(|ns| ns as f64));
    chart(format!("{title}: 99 % answered within"), across, &upward, &series, mark)
}

/// What held and what did not, apart.
fn series(probes: &[&ProbedRate], pick: impl Fn(&ProbedRate) -> Option<f64>) -> [CurveSeries; 2] {
    let of = |class, name, held: bool| CurveSeries {
        class,
        name,
        values: probes
            .iter()
            .filter(|probe| (probe.verdict == ProbeVerdict::Holds) == held)
            .map(|probe| (probe.offered_per_second, pick(probe)))
            .collect(),
        joined: false,
    };
    [of("fails", "did not hold", false), of("holds", "held", true)]
}

fn searches_table(capacity: &SearchPageInput) -> HtmlTable {
    let row = |(name, search): (&str, &SearchSample)| {
        vec![
            name.to_owned(),
            format::rate(search.transactions_per_second),
            format::percent(search.loss_ratio),
            microseconds(search.latency_ns.p50),
            microseconds(search.latency_ns.p99),
            search.slots.len().to_string(),
            ended(search).to_owned(),
        ]
    };
    HtmlTable {
        heading: "Each search",
        columns: vec!["", "holds/s", "loss", "p50 us", "p99 us", "rates tried", "ended"],
        rows: all(capacity).map(row).collect(),
        ..HtmlTable::default()
    }
}

fn ended(search: &SearchSample) -> &'static str {
    match search.ended {
        SearchEnd::Confirmed if search.generator_bound => "at the generator's limit",
        SearchEnd::Confirmed => "confirmed",
        SearchEnd::NothingHolds => "nothing holds",
        SearchEnd::OutOfTime => "out of time",
        SearchEnd::Cancelled => "interrupted",
    }
}
