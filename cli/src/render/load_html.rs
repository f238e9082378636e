//! A run of load as one self-contained page: no script, nothing fetched, light and dark.

mod run;
mod search;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result};
use askama::Template;
use linerate_measure::{Description, Latency};

use super::axis::Axis;
use super::curve::{Curves, Direction};
use super::format;
use super::style::unbroken;

pub(crate) use run::{overload, ramp, slot};
pub(crate) use search::search;

#[derive(Template)]
#[template(path = "load.html")]
struct Page<'a> {
    schema: &'a str,
    version: &'a str,
    heading: String,
    made_of: String,
    tiles: Vec<Tile>,
    missed: &'a [String],
    warnings: &'a [String],
    charts: Vec<Curves>,
    tables: Vec<Table>,
    facts: Vec<(&'static str, String)>,
    command: String,
}

/// A figure large enough to be read across a room.
struct Tile {
    figure: String,
    unit: &'static str,
    label: String,
}

struct Table {
    heading: &'static str,
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Page<'_> {
    fn rendered(mut self) -> Result<String> {
        for tile in &mut self.tiles {
            tile.label = unbroken(&tile.label);
        }
        self.heading = unbroken(&self.heading);
        self.render().context("the page cannot be formatted")
    }
}

fn tile(figure: String, unit: &'static str, label: impl Into<String>) -> Tile {
    Tile { figure, unit, label: label.into() }
}

/// What offered the load, for the facts.
fn generator_facts(generator: &Description) -> Vec<(&'static str, String)> {
    let list = |items: Vec<String>| {
        const MOST: usize = 8;
        let more = items.len().saturating_sub(MOST);
        let shown = items.into_iter().take(MOST).collect::<Vec<_>>().join(", ");
        if more > 0 { format!("{shown} and {more} more") } else { shown }
    };
    let mut facts = vec![
        ("targets", list(generator.targets.iter().map(ToString::to_string).collect())),
        ("workload", format!("{}, {} bytes", generator.workload, generator.payload_bytes)),
        ("backend", generator.backend.clone()),
        ("threads, flows", format!("{}, {}", generator.threads, generator.flows)),
    ];
    if !generator.cpus.is_empty() {
        facts.push(("CPUs", format::cpu_list(&generator.cpus)));
    }
    if !generator.sources.is_empty() {
        facts.push(("sources", list(generator.sources.iter().map(ToString::to_string).collect())));
    }
    facts.extend(generator.fallbacks.iter().map(|fallback| ("instead", fallback.clone())));
    facts
}

/// A latency, ns, with its unit left to the axis or column; `?` where there is none.
fn latency_at(latency: &Latency, quantile: f64) -> String {
    latency.quantile(quantile).map_or_else(|| format::UNKNOWN.to_owned(), format::microseconds)
}

fn microseconds(ns: f64) -> String {
    format::microseconds(ns as u64)
}

fn seconds(value: f64) -> String {
    format!("{} s", (value * 100.0).round() / 100.0)
}

/// Rates from zero.
fn rates(name: &'static str, values: impl IntoIterator<Item = f64>) -> Direction {
    Direction { name, axis: Axis::linear(values), read: format::rate }
}

/// Latencies, ns.
fn latencies(values: impl IntoIterator<Item = u64>) -> Direction {
    Direction {
        name: "microseconds from the intended send time, logarithmic",
        axis: Axis::log(values.into_iter().map(|ns| ns as f64)),
        read: microseconds,
    }
}

/// Shares, at least up to 1 % so that next to nothing looks like it.
fn shares(values: impl IntoIterator<Item = f64>) -> Direction {
    Direction {
        name: "share of the requests sent",
        axis: Axis::linear(values.into_iter().chain([0.01])),
        read: format::percent,
    }
}
