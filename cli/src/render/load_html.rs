//! A run of load as one self-contained page: no script, nothing fetched, light and dark.

mod head;
mod run;
mod search;
#[cfg(test)]
mod tests;

use askama::Template;
use linerate_load::{GeneratorDescription, Latency};

use super::axis::ValueAxis;
use super::curve::{ChartAxis, CurveChart};
use super::format;
use super::page::{FactList, FigureTile, HtmlTable, PageHead, PageNote, ResultPosition};
use super::style::TextTone;

pub(crate) use run::{overload, overload_part, ramp, ramp_part, slot, slot_part};
pub(crate) use search::{SearchPageInput, search, search_part};

#[derive(Template)]
#[template(path = "load.html")]
struct LoadPageBody<'a> {
    place: &'a ResultPosition,
    tiles: Vec<FigureTile>,
    notes: Vec<PageNote>,
    charts: Vec<CurveChart>,
    tables: Vec<HtmlTable>,
    facts: FactList,
}

/// Thresholds that were missed, then warnings.
fn notes(missed: &[String], warnings: &[String]) -> Vec<PageNote> {
    let missed = missed.iter().map(|missed| PageNote::alarm("Missed.", format!("{missed}.")));
    missed.chain(warnings.iter().map(|warning| PageNote::new(format!("{warning}.")))).collect()
}

/// Whether thresholds were kept.
fn mark(missed: &[String]) -> Option<(&'static str, String)> {
    if missed.is_empty() { None } else { PageHead::mark(TextTone::Bad, "threshold missed") }
}

/// What offered the load, for the facts.
fn generator_facts(generator: &GeneratorDescription) -> FactList {
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

fn rates(name: &'static str, values: impl IntoIterator<Item = f64>) -> ChartAxis {
    ChartAxis { name, axis: ValueAxis::linear(values), read: format::rate }
}

/// Latencies, ns.
fn latencies(values: impl IntoIterator<Item = u64>) -> ChartAxis {
    ChartAxis {
        name: "microseconds from the intended send time, logarithmic",
        axis: ValueAxis::log(values.into_iter().map(|ns| ns as f64)),
        read: microseconds,
    }
}

/// Shares, at least up to 1 % so that next to nothing looks like it.
fn shares(values: impl IntoIterator<Item = f64>) -> ChartAxis {
    ChartAxis {
        name: "share of the requests sent",
        axis: ValueAxis::linear(values.into_iter().chain([0.01])),
        read: format::percent,
    }
}
