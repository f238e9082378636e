//! Servers beside each other: what `cargo xtask bench servers --json` measured.

use anyhow::Result;
use linerate_host::Known;
use linerate_load::stats::ConfidenceInterval;
use serde::Deserialize;

use super::sheet::{OriginInput, SheetBody, SummarySheet, count};
use crate::render::format::{self, cpu_list};
use crate::render::page::{self, FigureTile, HtmlTable, PageHead, PageNote, PageResult, ResultPosition};
use crate::render::style::TextTone;

/// `linerate.bench-servers/1`, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(crate) struct BenchDocument {
    #[serde(flatten)]
    origin: OriginInput,
    kernel: String,
    cpu: String,
    server_cpus: Vec<u32>,
    generator_cpu: u32,
    workers: u32,
    payload_bytes: u64,
    search_seconds: f64,
    rounds: u32,
    load_average: Option<f64>,
    parts: Vec<PlacementResult>,
    judged: bool,
}

/// What was seen with packets received in one way.
#[derive(Debug, Deserialize)]
struct PlacementResult {
    placement: String,
    servers: Vec<BenchServer>,
    promises: Vec<BenchThreshold>,
}

#[derive(Debug, Deserialize)]
struct BenchServer {
    name: String,
    not_here: Option<String>,
    capacity_per_second: Option<ConfidenceInterval>,
    generator_bound: bool,
    overload_factor: Option<ConfidenceInterval>,
    goodput_ratio: Option<ConfidenceInterval>,
    cpu_ns_per_transaction: Known<f64>,
}

#[derive(Debug, Deserialize)]
struct BenchThreshold {
    what: String,
    verdict: String,
    ratio: Option<ConfidenceInterval>,
    remarks: Vec<String>,
}

impl SummarySheet for BenchDocument {
    fn rank(&self) -> u8 {
        super::BENCHED
    }

    fn unix_seconds(&self) -> Option<u64> {
        self.origin.started_unix_seconds
    }

    fn part(&self, place: &ResultPosition) -> Result<PageResult> {
        let missed = self.promises("miss");
        let told = self.parts.iter().flat_map(|part| {
            let named = move |name: &str| format!("{name}, {}", part.placement);
            part.servers.iter().map(move |server| server.row(named(&server.name)))
        });
        let promises = self.parts.iter().flat_map(|part| &part.promises).map(BenchThreshold::row);
        let body = SheetBody {
            tiles: vec![
                FigureTile::new(self.promises("pass").to_string(), "", "promises kept"),
                FigureTile::new(missed.to_string(), "", "missed").of_class(if missed > 0 { "high" } else { "" }),
                FigureTile::new(self.promises("not-here").to_string(), "", "could not be looked at here"),
            ],
            notes: self.notes(),
            tables: vec![
                HtmlTable {
                    heading: "Servers, and where packets are received",
                    about: "The highest rate that held, and what was answered of it when more was offered: median and \
                            95 % interval."
                        .to_owned(),
                    columns: vec!["server", "capacity/s", "answered above it", "offered", "CPU a transaction"],
                    rows: told.collect(),
                    below: "≥: the generator was the limit.".to_owned(),
                    ..HtmlTable::default()
                },
                HtmlTable {
                    heading: "What was promised",
                    columns: vec!["", "ratio", "promise"],
                    rows: promises.collect(),
                    words_last: true,
                    ..HtmlTable::default()
                },
            ],
        };
        let servers = self.parts.first().map_or(0, |part| part.servers.len());
        let verdict = match (self.judged, missed) {
            (false, _) => format!("{} side by side", count(servers, "server", "servers")),
            (true, 0) => format!("{} side by side: no promise missed", count(servers, "server", "servers")),
            (true, missed) => format!(
                "{} side by side: {} missed",
                count(servers, "server", "servers"),
                count(missed, "promise", "promises")
            ),
        };
        let mark = match (self.judged, missed) {
            (false, _) => None,
            (true, 0) => PageHead::mark(TextTone::Good, "kept"),
            (true, _) => PageHead::mark(TextTone::Bad, "missed"),
        };
        let host = page::host(None, Some(&self.kernel), Some(&self.cpu), None);
        body.part(PageHead { mark, host, ..self.origin.head("Servers beside each other", &verdict) }, place)
    }
}

impl BenchDocument {
    /// How many promises came to this.
    fn promises(&self, verdict: &str) -> usize {
        let all = self.parts.iter().flat_map(|part| &part.promises);
        all.filter(|promise| promise.verdict == verdict).count()
    }

    fn notes(&self) -> Vec<PageNote> {
        let mut notes = vec![PageNote::new(format!(
            "{} on CPU {}, the generator on CPU {}; requests of {} bytes; {} turns of {} s.",
            count(self.workers as usize, "worker", "workers"),
            cpu_list(&self.server_cpus),
            self.generator_cpu,
            self.payload_bytes,
            self.rounds,
            self.search_seconds
        ))];
        if let Some(load) = self.load_average {
            notes.push(PageNote::new(format!(
                "Load average before: {load:.1}. Other work on the machine spoils capacities before it does CPU time."
            )));
        }
        notes
    }
}

impl BenchServer {
    fn row(&self, name: String) -> Vec<String> {
        if let (Some(why), None) = (&self.not_here, &self.capacity_per_second) {
            return vec![name, format!("not here: {why}"), String::new(), String::new(), String::new()];
        }
        let bound = if self.generator_bound { "≥" } else { "" };
        let figure = |interval: &Option<ConfidenceInterval>, shown: &dyn Fn(f64) -> String| match interval {
            Some(interval) => told(interval, shown),
            None => "unknown".to_owned(),
        };
        vec![
            name,
            format!("{bound}{}", figure(&self.capacity_per_second, &format::rate)),
            figure(&self.goodput_ratio, &format::percent),
            figure(&self.overload_factor, &|factor| format!("{factor:.1} times")),
            match &self.cpu_ns_per_transaction {
                Known::Value(nanoseconds) => format::time_span(*nanoseconds),
                Known::Unknown { why } => format!("unknown: {why}"),
            },
        ]
    }
}

impl BenchThreshold {
    fn row(&self) -> Vec<String> {
        let verdict = match self.verdict.as_str() {
            "pass" => "kept",
            "miss" => "missed",
            "not-here" => "not here",
            _ => "told",
        };
        let ratio = self.ratio.as_ref().map_or_else(String::new, |ratio| told(ratio, &format::ratio));
        let remarks: String = self.remarks.iter().map(|remark| format!("; {remark}")).collect();
        vec![verdict.to_owned(), ratio, format!("{}{remarks}", self.what)]
    }
}

/// A median with its interval, where it has one.
fn told(interval: &ConfidenceInterval, shown: &dyn Fn(f64) -> String) -> String {
    match (interval.low, interval.high) {
        (Some(low), Some(high)) => format!("{} ({} to {})", shown(interval.median), shown(low), shown(high)),
        _ => shown(interval.median),
    }
}
