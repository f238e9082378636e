//! A server while things change around it: what `cargo xtask soak --json` saw.

use anyhow::Result;
use serde::Deserialize;

use super::sheet::{OriginInput, SheetBody, SummarySheet, count};
use crate::render::format::{self, grouped};
use crate::render::page::{self, FigureTile, HtmlTable, PageHead, PageNote, PageResult, ResultPosition};
use crate::render::style::TextTone;

/// `linerate.soak/1`, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(crate) struct SoakInput {
    #[serde(flatten)]
    origin: OriginInput,
    elapsed_seconds: f64,
    kernel: String,
    cpu: String,
    load_average: Option<f64>,
    backend: String,
    fallbacks: Vec<String>,
    workers: u32,
    server_cpu: u32,
    generator_cpu: u32,
    flows: u64,
    payload_bytes: u64,
    capacity_per_second: f64,
    offered_per_second: f64,
    events: Vec<SoakEventInput>,
    requests: Vec<SoakRequestsInput>,
    unbalanced: Vec<String>,
    panics: SoakPanicsInput,
    memory: SoakMemoryInput,
    kept: bool,
}

#[derive(Debug, Deserialize)]
struct SoakEventInput {
    what: String,
    times: u32,
}

/// Those of the rounds in which the link stayed up, or of those in which it did not.
#[derive(Debug, Deserialize)]
struct SoakRequestsInput {
    link: String,
    sent: u64,
    answered: u64,
    losses: Vec<SoakLossInput>,
    uncounted: Vec<SoakLossInput>,
}

#[derive(Debug, Deserialize)]
struct SoakLossInput {
    what: String,
    requests: i64,
}

#[derive(Debug, Deserialize)]
struct SoakPanicsInput {
    asked: u64,
    restarts: u64,
    requests_lost: u64,
    kept: bool,
}

#[derive(Debug, Deserialize)]
struct SoakMemoryInput {
    first_quarter_bytes: Option<f64>,
    last_quarter_bytes: Option<f64>,
    kept: bool,
}

impl SummarySheet for SoakInput {
    fn rank(&self) -> u8 {
        super::SOAKED
    }

    fn unix_seconds(&self) -> Option<u64> {
        self.origin.started_unix_seconds
    }

    fn part(&self, place: &ResultPosition) -> Result<PageResult> {
        let happened = |event: &SoakEventInput| vec![grouped(u64::from(event.times)), event.what.clone()];
        let body = SheetBody {
            tiles: self.tiles(),
            notes: self.notes(),
            tables: vec![
                HtmlTable {
                    heading: "What became of requests",
                    about: "A loss that somebody counted is one with a name. What nobody counted may be lost only where a \
                            device that goes down frees what it holds; less than none was counted twice."
                        .to_owned(),
                    columns: vec!["the link", "requests", "fate"],
                    rows: self.requests.iter().flat_map(SoakRequestsInput::rows).collect(),
                    words_last: true,
                    ..HtmlTable::default()
                },
                HtmlTable {
                    heading: "What happened meanwhile",
                    columns: vec!["times", "event"],
                    rows: self.events.iter().map(happened).collect(),
                    words_last: true,
                    ..HtmlTable::default()
                },
            ],
        };
        let verdict = format!(
            "{} for {} at {}/s: {}",
            self.backend,
            format::elapsed(self.elapsed_seconds),
            format::rate(self.offered_per_second),
            match self.failures().as_slice() {
                [] => "every request has a fate, no worker was stuck, memory stayed".to_owned(),
                failures => failures.join("; "),
            }
        );
        let mark = match self.kept {
            true => PageHead::mark(TextTone::Good, "kept"),
            false => PageHead::mark(TextTone::Bad, "failed"),
        };
        let host = page::host(None, Some(&self.kernel), Some(&self.cpu), None);
        body.part(
            PageHead { mark, host, ..self.origin.head("A server while things change around it", &verdict) },
            place,
        )
    }
}

impl SoakInput {
    fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        if !self.unbalanced.is_empty() {
            failures.push(format!("{} did not balance", count(self.unbalanced.len(), "round", "rounds")));
        }
        if !self.panics.kept {
            failures.push("panics and restarts differ".to_owned());
        }
        if !self.memory.kept {
            failures.push(match self.memory.last_quarter_bytes {
                Some(_) => "memory grew".to_owned(),
                None => "too short to judge memory".to_owned(),
            });
        }
        if failures.is_empty() && !self.kept {
            failures.push("no request was sent".to_owned());
        }
        failures
    }

    fn tiles(&self) -> Vec<FigureTile> {
        let sum = |figure: fn(&SoakRequestsInput) -> u64| self.requests.iter().map(figure).sum::<u64>();
        let megabytes = |bytes: Option<f64>| match bytes {
            Some(bytes) => format!("{:.2}", bytes / 1e6),
            None => "?".to_owned(),
        };
        let class = |kept: bool| if kept { "" } else { "high" };
        let unbalanced = self.unbalanced.len();
        vec![
            FigureTile::new(grouped(sum(|requests| requests.sent)), "", "requests sent"),
            FigureTile::new(grouped(sum(|requests| requests.answered)), "", "answered"),
            FigureTile::new(unbalanced.to_string(), "", "rounds with requests nobody counted")
                .of_class(class(unbalanced == 0)),
            FigureTile::new(
                format!("{} of {}", self.panics.restarts, self.panics.asked),
                "",
                format!("restarts after panics, with {} requests lost", grouped(self.panics.requests_lost)),
            )
            .of_class(class(self.panics.kept)),
            FigureTile::new(
                megabytes(self.memory.last_quarter_bytes),
                "MB",
                format!("resident at last, {} MB at first", megabytes(self.memory.first_quarter_bytes)),
            )
            .of_class(class(self.memory.kept)),
        ]
    }

    fn notes(&self) -> Vec<PageNote> {
        let unbalanced =
            self.unbalanced.iter().map(|round| PageNote::alarm("Does not balance:", round.clone()));
        let fallbacks = self.fallbacks.iter().map(|what| PageNote::alarm("Fell back:", what.clone()));
        let mut notes: Vec<PageNote> = unbalanced.chain(fallbacks).collect();
        notes.push(PageNote::new(format!(
            "{} on CPU {}, the generator on CPU {}; {} flows, requests of {} bytes. Capacity was found to be {}/s.",
            count(self.workers as usize, "worker", "workers"),
            self.server_cpu,
            self.generator_cpu,
            self.flows,
            self.payload_bytes,
            format::rate(self.capacity_per_second)
        )));
        if let Some(load) = self.load_average {
            notes.push(PageNote::new(format!("Load average before: {load:.1}.")));
        }
        notes
    }
}

impl SoakRequestsInput {
    /// A row a fate.
    fn rows(&self) -> Vec<Vec<String>> {
        let link = match self.link.as_str() {
            "up" => "stayed up",
            _ => "went down and up",
        };
        let row = |count: String, fate: String| vec![link.to_owned(), count, fate];
        let of_loss = |loss: &SoakLossInput| row(signed(loss.requests), loss.what.clone());
        let uncounted =
            |loss: &SoakLossInput| row(signed(loss.requests), format!("counted by nobody: {}", loss.what));
        let mut rows = vec![
            row(grouped(self.sent), "sent".to_owned()),
            row(grouped(self.answered), "answered".to_owned()),
        ];
        rows.extend(self.losses.iter().map(of_loss));
        rows.extend(self.uncounted.iter().map(uncounted));
        rows
    }
}

fn signed(count: i64) -> String {
    let sign = if count < 0 { "−" } else { "" };
    format!("{sign}{}", grouped(count.unsigned_abs()))
}
