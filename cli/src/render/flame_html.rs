//! What burns along the packet path as one self-contained page: the flame graph within it, no script, nothing fetched.

mod difference;
mod graph;
#[cfg(test)]
mod tests;

use anyhow::Result;
use askama::Template;
use linerate_trace::contention::LockContention;
use linerate_trace::flame::StackProfile;
use linerate_trace::flame::spots::HotSpot;

use super::flame_text::{callers, context_heads, contexts, doubt, kind, own, sampled, total};
use super::flame_verdict::{FlameVerdict, spinning_share};
use super::format;
use super::page::{self, FactList, FigureTile, HtmlTable, PageHead, PageNote, PageResult, ResultPosition};
use super::style::{TextTone, non_breaking};
use crate::command::flame::{FlameDocument, SelfSamples, graph_for_page};

pub(crate) use difference::{difference, difference_part};

#[derive(Template)]
#[template(path = "flame.html")]
struct FlamePageBody<'a> {
    place: &'a ResultPosition,
    remarks: Vec<PageNote>,
    tiles: Vec<FigureTile>,
    graph: Option<String>,
    graph_heading: &'static str,
    graph_about: String,
    spots_about: String,
    spots: Vec<HotSpotItem<'a>>,
    small: Vec<HotSpotItem<'a>>,
    tables: Vec<HtmlTable>,
    notes: Vec<String>,
    facts: FactList,
}

/// A hot spot with its figures as text.
struct HotSpotItem<'a> {
    spot: &'a HotSpot,
    share: String,
    tone: &'static str,
    seen: String,
}

/// Spots of a smaller share of packet processing are folded up.
const LEAST: f64 = 0.02;
/// From this share on they stand out.
const HOT: f64 = 0.10;
/// Rows that a page has at most, so that one of a host of many CPUs can still be read.
const MOST: usize = 60;

/// The page of a run.
///
/// # Errors
/// As [`part`].
pub(crate) fn flame(document: &FlameDocument) -> Result<String> {
    page::single_result_page(|place| part(document, place))
}

/// A run in a page.
///
/// # Errors
/// If the graph cannot be drawn or the page not be formatted.
pub(crate) fn part(document: &FlameDocument, place: &ResultPosition) -> Result<PageResult> {
    let verdict = FlameVerdict::of(document);
    let profile = document.profile.as_ref();
    let contention = document.contention.as_ref();
    let count = document.spots.iter().take_while(|spot| spot.share_of_path >= LEAST).count();
    let (large, small) = document.spots.split_at(count);
    let body = FlamePageBody {
        place,
        remarks: remarks(&verdict.advice, &document.warnings),
        tiles: tiles(document),
        graph: graph_for_page(document)?.map(|graph| graph::placed(&graph, place)),
        graph_heading: if document.shown.irq_only { "Interrupt context" } else { "CPU time" },
        graph_about: ABOUT.to_owned(),
        spots_about: shares(document.path_samples),
        spots: large.iter().map(HotSpotItem::new).collect(),
        small: small.iter().map(HotSpotItem::new).collect(),
        tables: [contention.map(locks), functions(&document.functions), profile.map(per_cpu)]
            .into_iter()
            .flatten()
            .filter(|table| !table.rows.is_empty())
            .collect(),
        notes: [profile.map(|profile| &profile.notes), contention.map(|contention| &contention.notes)]
            .into_iter()
            .flatten()
            .flatten()
            .cloned()
            .collect(),
        facts: profile
            .map(|profile| [("sampled", sampled(profile)), ("itself", own(profile, contention.is_some()))])
            .into_iter()
            .flatten()
            .collect(),
    };
    let host = &document.host;
    let head = PageHead {
        schema: document.schema.clone(),
        version: document.version.clone(),
        title: "What burns",
        verdict: non_breaking(&verdict.sentence),
        mark: match verdict.tone {
            TextTone::Bad => PageHead::mark(TextTone::Bad, "hot spot"),
            _ => None,
        },
        host: page::host(Some(&host.name), host.kernel.as_deref(), host.cpu_model.as_deref(), None),
        time: page::time(Some(document.started_unix_seconds)),
        unix_seconds: Some(document.started_unix_seconds),
        about: profile
            .map(|profile| non_breaking(&format!("sampled for {:.1} s", profile.seconds)))
            .unwrap_or_default(),
        command: format::command_line(&document.argv),
    };
    page::part(head, &body)
}

fn remarks(advice: &str, warnings: &[String]) -> Vec<PageNote> {
    let advice = Some(advice).filter(|advice| !advice.is_empty()).map(|advice| PageNote::alarm("", advice));
    advice.into_iter().chain(warnings.iter().map(PageNote::new)).collect()
}

const ABOUT: &str = "Width is CPU time: a function lies on the one that called it. Point at a box to read it whole; \
                     the file that --svg writes zooms and searches.";

impl<'a> HotSpotItem<'a> {
    fn new(spot: &'a HotSpot) -> Self {
        let functions: Vec<String> = spot
            .functions
            .iter()
            .map(|function| format!("{} {}", function.name, format::grouped(function.samples)))
            .collect();
        Self {
            share: format::percent(spot.share_of_path),
            tone: match spot.share_of_path {
                share if share >= HOT => "high",
                share if share >= LEAST => "medium",
                _ => "low",
            },
            seen: format!(
                "{} samples, {} of all that is shown: {}",
                format::grouped(spot.samples),
                format::percent(spot.share_of_busy),
                functions.join(", ")
            ),
            spot,
        }
    }
}

fn shares(samples: u64) -> String {
    let doubt = doubt(samples);
    let comma = if doubt.is_empty() { "" } else { ", " };
    format!("Shares of packet processing: {} samples{comma}{doubt}.", format::grouped(samples))
}

fn tiles(document: &FlameDocument) -> Vec<FigureTile> {
    let mut tiles = Vec::new();
    if let Some(profile) = &document.profile {
        let samples: u64 = profile.cpus.iter().map(|cpu| cpu.samples).sum();
        let unknown = || format::UNKNOWN.to_owned();
        let share =
            |part: u64| if samples == 0 { unknown() } else { format::percent(part as f64 / samples as f64) };
        tiles.push(FigureTile::new(format::grouped(samples), "", "samples"));
        tiles.push(FigureTile::new(share(profile.busy()), "", "of them busy"));
        tiles.push(FigureTile::new(
            document.interrupt_share().map_or_else(unknown, format::percent),
            "",
            "of the busy time in interrupt context",
        ));
        let spinning = document.contention.as_ref().and_then(|locks| spinning_share(locks, profile));
        if let Some(spinning) = spinning {
            tiles.push(FigureTile::new(format::percent(spinning), "", "of the busy time spinning for locks"));
        }
    }
    tiles
}

fn locks(contention: &LockContention) -> HtmlTable {
    let row = |waited: &linerate_trace::contention::WaitSite| {
        vec![
            format::time_span(waited.waited_ns as f64),
            format::grouped(waited.waits),
            format::time_span(waited.longest_ns as f64),
            kind(waited.lock).to_owned(),
            callers(waited),
        ]
    };
    HtmlTable {
        heading: "Waits for locks",
        about: total(contention),
        columns: vec!["lost", "waits", "longest", "lock", "where, and who called"],
        rows: contention.locks.iter().take(MOST).map(row).collect(),
        words_last: true,
        ..HtmlTable::default()
    }
}

fn named(name: &str, module: Option<&String>) -> String {
    module.map_or_else(|| name.to_owned(), |module| format!("{name} [{module}]"))
}

fn functions(functions: &[SelfSamples]) -> Option<HtmlTable> {
    let row = |own: &SelfSamples| {
        let name = named(&own.function, own.module.as_ref());
        vec![format::percent(own.share), format::grouped(own.samples), name]
    };
    (!functions.is_empty()).then(|| HtmlTable {
        heading: "Functions by their own time",
        columns: vec!["share", "samples", "function"],
        rows: functions.iter().take(MOST / 2).map(row).collect(),
        words_last: true,
        ..HtmlTable::default()
    })
}

fn per_cpu(profile: &StackProfile) -> HtmlTable {
    let rows = profile.cpus.iter().map(|cpu| {
        let mut row = vec![cpu.cpu.to_string(), format::grouped(cpu.samples)];
        row.extend(contexts(profile, cpu));
        row
    });
    HtmlTable {
        heading: "CPUs",
        about: "Shares of each CPU's samples by what it was doing".to_owned(),
        columns: ["CPU", "samples"].into_iter().chain(context_heads()).collect(),
        rows: rows.collect(),
        ..HtmlTable::default()
    }
}
