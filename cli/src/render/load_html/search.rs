//! The page of a search.

use anyhow::{Context, Result};
use linerate_load::capacity::{Ended, Overload, Verdict};
use linerate_load::stats::Interval;
use linerate_load::{Description, Quantiles};
use serde::Deserialize;

use super::super::axis::Axis;
use super::super::curve::{Curves, Direction, Series, chart};
use super::super::page::{self, Head, Part, Place, Table};
use super::super::{format, load_search};
use super::head::{Load, head};
use super::run::overload_table;
use super::{Body, Tile, generator_facts, latencies, mark, notes, seconds, shares};
use crate::command::load::search::{Method, SearchDocument};

/// The closer look shows rates up to this share away from capacity.
const NEAR: f64 = 0.08;

/// What a page shows of a search: of its latencies the quantiles, as JSON has them.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Found {
    schema: String,
    version: String,
    argv: Vec<String>,
    #[serde(default)]
    started_unix_seconds: Option<u64>,
    #[serde(default)]
    host: Option<String>,
    generator: Description,
    method: Method,
    transactions_per_second: Interval,
    spread_ratio: f64,
    loss_ratio: f64,
    latency_ns: Quantiles,
    generator_bound: bool,
    confirmed: usize,
    neighbourhood: Sample,
    searches: Vec<Sample>,
    #[serde(default)]
    overload: Vec<Overload>,
    #[serde(default)]
    missed: Vec<String>,
    warnings: Vec<String>,
}

/// One search.
#[derive(Debug, Clone, Deserialize)]
struct Sample {
    transactions_per_second: f64,
    loss_ratio: f64,
    latency_ns: Quantiles,
    generator_bound: bool,
    ended: Ended,
    slots: Vec<Probe>,
}

/// One rate that was tried.
#[derive(Debug, Clone, Deserialize)]
struct Probe {
    offered_per_second: f64,
    loss_ratio: f64,
    latency_ns: Quantiles,
    verdict: Verdict,
}

impl Load for Found {
    fn made_by(&self) -> (&str, &str, &[String]) {
        (&self.schema, &self.version, &self.argv)
    }

    fn generator(&self) -> &Description {
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
    let found: Found = serde_json::from_value(value).context("the result cannot be read again")?;
    page::alone(|place| search_part(&found, place))
}

/// A search in a page.
pub(crate) fn search_part(found: &Found, place: &Place) -> Result<Part> {
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
    let body = Body {
        place,
        tiles: tiles(found),
        notes: notes(&found.missed, &found.warnings),
        charts: charts(found),
        tables,
        facts,
    };
    let verdict = format!("Capacity: {}", found.headline());
    let head = Head { mark: mark(&found.missed), ..head(found, &verdict, found.started_unix_seconds) };
    page::part(head, &body)
}

impl Found {
    /// When it began.
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

fn tiles(capacity: &Found) -> Vec<Tile> {
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
        Tile::new(
            format!("{bound}{}", format::rate(rate.median)),
            "/s",
            format!("highest rate that holds: {doubt}"),
        ),
        Tile::new(
            format::percent(capacity.spread_ratio),
            "",
            format!("spread of {} searches, {} confirmed", rate.samples, capacity.confirmed),
        ),
        Tile::new(format::percent(capacity.loss_ratio), "", "lost at that rate"),
        Tile::new(microseconds(capacity.latency_ns.p99), "us", "99 % answered within, at that rate"),
    ]
}

fn all(capacity: &Found) -> impl Iterator<Item = (&'static str, &Sample)> {
    let searches = capacity.searches.iter().map(|search| ("search", search));
    std::iter::once(("neighbourhood", &capacity.neighbourhood)).chain(searches)
}

/// Loss and latency against the rate offered, all of it and near capacity.
fn charts(capacity: &Found) -> Vec<Curves> {
    let probes: Vec<&Probe> = all(capacity).flat_map(|(_, search)| &search.slots).collect();
    if probes.is_empty() {
        return Vec::new();
    }
    let found = capacity.transactions_per_second.median;
    let mark = || (found > 0.0).then(|| (found, capacity.headline()));
    let near = |probe: &&Probe| (probe.offered_per_second / found - 1.0).abs() <= NEAR;
    let close: Vec<&Probe> = probes.iter().copied().filter(near).collect();
    let wide =
        offered(Axis::fitting(&probes.iter().map(|probe| probe.offered_per_second).collect::<Vec<_>>()));
    let mut charts = vec![loss("Loss", &wide, &probes, mark()), latency("Latency", &wide, &probes, mark())];
    if close.len() > 1 {
        let narrow = offered(Axis::close(close.iter().map(|probe| probe.offered_per_second)));
        charts.push(loss("Loss near capacity", &narrow, &close, mark()));
        charts.push(latency("Latency near capacity", &narrow, &close, mark()));
    }
    charts
}

fn offered(axis: Axis) -> Direction {
    let name = if axis.is_log() { "offered a second, logarithmic" } else { "offered a second" };
    Direction { name, axis, read: format::rate }
}

fn loss(title: &str, across: &Direction, probes: &[&Probe], mark: Option<(f64, String)>) -> Curves {
    let upward = shares(probes.iter().map(|probe| probe.loss_ratio));
    chart(title, across, &upward, &series(probes, |probe| Some(probe.loss_ratio)), mark)
}

fn latency(title: &str, across: &Direction, probes: &[&Probe], mark: Option<(f64, String)>) -> Curves {
    let p99 = |probe: &Probe| probe.latency_ns.p99;
    let upward = latencies(probes.iter().filter_map(|probe| p99(probe)));
    let series = series(probes, |probe| p99(probe).map(|ns| ns as f64));
    chart(format!("{title}: 99 % answered within"), across, &upward, &series, mark)
}

/// What held and what did not, apart.
fn series(probes: &[&Probe], pick: impl Fn(&Probe) -> Option<f64>) -> [Series; 2] {
    let of = |class, name, held: bool| Series {
        class,
        name,
        values: probes
            .iter()
            .filter(|probe| (probe.verdict == Verdict::Holds) == held)
            .map(|probe| (probe.offered_per_second, pick(probe)))
            .collect(),
        joined: false,
    };
    [of("fails", "did not hold", false), of("holds", "held", true)]
}

fn searches_table(capacity: &Found) -> Table {
    let row = |(name, search): (&str, &Sample)| {
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
    Table {
        heading: "Each search",
        columns: vec!["", "holds/s", "loss", "p50 us", "p99 us", "rates tried", "ended"],
        rows: all(capacity).map(row).collect(),
        ..Table::default()
    }
}

fn ended(search: &Sample) -> &'static str {
    match search.ended {
        Ended::Confirmed if search.generator_bound => "at the generator's limit",
        Ended::Confirmed => "confirmed",
        Ended::NothingHolds => "nothing holds",
        Ended::OutOfTime => "out of time",
        Ended::Cancelled => "interrupted",
    }
}
