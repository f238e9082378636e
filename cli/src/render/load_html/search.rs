//! The page of a search.

use anyhow::Result;
use linerate_measure::capacity::{Capacity, CapacitySample, Ended, Probe, Verdict};

use super::super::axis::Axis;
use super::super::curve::{Curves, Direction, Series, chart};
use super::super::{format, load_search, load_text};
use super::run::overload_table;
use super::{Page, Table, Tile, generator_facts, latencies, latency_at, seconds, shares, tile};
use crate::command::load::search::SearchDocument;

/// The closer look shows rates up to this share away from capacity.
const NEAR: f64 = 0.08;

/// The page of a search.
pub(crate) fn search(document: &SearchDocument) -> Result<String> {
    let capacity = &document.capacity;
    let mut tables = vec![searches_table(capacity)];
    if !document.overload.is_empty() {
        tables.push(overload_table(&document.overload));
    }
    let method = &document.method;
    let mut facts = generator_facts(&document.generator);
    facts.push(("a rate holds with", load_search::bounds(document)));
    facts.push(("each rate offered for", seconds(method.slot_seconds)));
    facts.push(("after a lead-in of", seconds(method.lead_in_seconds)));
    facts.push(("confirmed for", seconds(method.confirm_slot_seconds)));
    facts.push(("resolution", format::percent(method.resolution_ratio)));
    Page {
        schema: document.schema,
        version: document.version,
        heading: format!("Capacity: {}", load_search::headline(capacity)),
        made_of: load_text::made_of(&document.generator),
        tiles: tiles(capacity),
        missed: &document.missed,
        warnings: &document.warnings,
        charts: charts(capacity),
        tables,
        facts,
        command: format::command_line(&document.argv),
    }
    .rendered()
}

fn tiles(capacity: &Capacity) -> Vec<Tile> {
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
        tile(
            format!("{bound}{}", format::rate(rate.median)),
            "/s",
            format!("highest rate that holds: {doubt}"),
        ),
        tile(
            format::percent(capacity.spread_ratio),
            "",
            format!("spread of {} searches, {} confirmed", rate.samples, capacity.confirmed),
        ),
        tile(format::percent(capacity.loss_ratio), "", "lost at that rate"),
        tile(latency_at(&capacity.latency_ns, 0.99), "us", "99 % answered within, at that rate"),
    ]
}

fn all(capacity: &Capacity) -> impl Iterator<Item = (&'static str, &CapacitySample)> {
    let searches = capacity.searches.iter().map(|search| ("search", search));
    std::iter::once(("neighbourhood", &capacity.neighbourhood)).chain(searches)
}

/// Loss and latency against the rate offered, all of it and near capacity.
fn charts(capacity: &Capacity) -> Vec<Curves> {
    let probes: Vec<&Probe> = all(capacity).flat_map(|(_, search)| &search.slots).collect();
    if probes.is_empty() {
        return Vec::new();
    }
    let found = capacity.transactions_per_second.median;
    let mark = || (found > 0.0).then(|| (found, load_search::headline(capacity)));
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
    let p99 = |probe: &Probe| probe.latency_ns.quantile(0.99);
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

fn searches_table(capacity: &Capacity) -> Table {
    let row = |(name, search): (&str, &CapacitySample)| {
        vec![
            name.to_owned(),
            format::rate(search.transactions_per_second),
            format::percent(search.loss_ratio),
            latency_at(&search.latency_ns, 0.5),
            latency_at(&search.latency_ns, 0.99),
            search.slots.len().to_string(),
            ended(search).to_owned(),
        ]
    };
    Table {
        heading: "Each search",
        columns: vec!["", "holds/s", "loss", "p50 us", "p99 us", "rates tried", "ended"],
        rows: all(capacity).map(row).collect(),
    }
}

fn ended(search: &CapacitySample) -> &'static str {
    match search.ended {
        Ended::Confirmed if search.generator_bound => "at the generator's limit",
        Ended::Confirmed => "confirmed",
        Ended::NothingHolds => "nothing holds",
        Ended::OutOfTime => "out of time",
        Ended::Cancelled => "interrupted",
    }
}
