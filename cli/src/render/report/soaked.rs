//! A server while things change around it: what `cargo xtask soak --json` saw.

use anyhow::Result;
use serde::Deserialize;

use super::sheet::{Body, Origin, Sheet, count};
use crate::render::format::{self, grouped};
use crate::render::page::{self, Head, Note, Part, Place, Table, Tile};
use crate::render::style::Tone;

/// `linerate.soak/1`, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(crate) struct Soak {
    #[serde(flatten)]
    origin: Origin,
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
    events: Vec<Happened>,
    requests: Vec<Requests>,
    unbalanced: Vec<String>,
    panics: Panics,
    memory: Memory,
    kept: bool,
}

#[derive(Debug, Deserialize)]
struct Happened {
    what: String,
    times: u32,
}

/// Those of the rounds in which the link stayed up, or of those in which it did not.
#[derive(Debug, Deserialize)]
struct Requests {
    link: String,
    sent: u64,
    answered: u64,
    losses: Vec<Loss>,
    uncounted: Vec<Loss>,
}

#[derive(Debug, Deserialize)]
struct Loss {
    what: String,
    requests: i64,
}

#[derive(Debug, Deserialize)]
struct Panics {
    asked: u64,
    restarts: u64,
    requests_lost: u64,
    kept: bool,
}

#[derive(Debug, Deserialize)]
struct Memory {
    first_quarter_bytes: Option<f64>,
    last_quarter_bytes: Option<f64>,
    kept: bool,
}

impl Sheet for Soak {
    fn rank(&self) -> u8 {
        super::SOAKED
    }

    fn unix_seconds(&self) -> Option<u64> {
        self.origin.started_unix_seconds
    }

    fn part(&self, place: &Place) -> Result<Part> {
        let happened = |event: &Happened| vec![grouped(u64::from(event.times)), event.what.clone()];
        let body = Body {
            tiles: self.tiles(),
            notes: self.notes(),
            tables: vec![
                Table {
                    heading: "What became of requests",
                    about: "A loss that somebody counted is one with a name. What nobody counted may be lost only where a \
                            device that goes down frees what it holds; less than none was counted twice."
                        .to_owned(),
                    columns: vec!["the link", "requests", "fate"],
                    rows: self.requests.iter().flat_map(Requests::rows).collect(),
                    words_last: true,
                    ..Table::default()
                },
                Table {
                    heading: "What happened meanwhile",
                    columns: vec!["times", "event"],
                    rows: self.events.iter().map(happened).collect(),
                    words_last: true,
                    ..Table::default()
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
            true => Head::mark(Tone::Good, "kept"),
            false => Head::mark(Tone::Bad, "failed"),
        };
        let host = page::host(None, Some(&self.kernel), Some(&self.cpu), None);
        body.part(
            Head { mark, host, ..self.origin.head("A server while things change around it", &verdict) },
            place,
        )
    }
}

impl Soak {
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

    fn tiles(&self) -> Vec<Tile> {
        let sum = |figure: fn(&Requests) -> u64| self.requests.iter().map(figure).sum::<u64>();
        let megabytes = |bytes: Option<f64>| match bytes {
            Some(bytes) => format!("{:.2}", bytes / 1e6),
            None => "?".to_owned(),
        };
        let class = |kept: bool| if kept { "" } else { "high" };
        let unbalanced = self.unbalanced.len();
        vec![
            Tile::new(grouped(sum(|requests| requests.sent)), "", "requests sent"),
            Tile::new(grouped(sum(|requests| requests.answered)), "", "answered"),
            Tile::new(unbalanced.to_string(), "", "rounds with requests nobody counted")
                .of_class(class(unbalanced == 0)),
            Tile::new(
                format!("{} of {}", self.panics.restarts, self.panics.asked),
                "",
                format!("restarts after panics, with {} requests lost", grouped(self.panics.requests_lost)),
            )
            .of_class(class(self.panics.kept)),
            Tile::new(
                megabytes(self.memory.last_quarter_bytes),
                "MB",
                format!("resident at last, {} MB at first", megabytes(self.memory.first_quarter_bytes)),
            )
            .of_class(class(self.memory.kept)),
        ]
    }

    fn notes(&self) -> Vec<Note> {
        let unbalanced = self.unbalanced.iter().map(|round| Note::alarm("Does not balance:", round.clone()));
        let fallbacks = self.fallbacks.iter().map(|what| Note::alarm("Fell back:", what.clone()));
        let mut notes: Vec<Note> = unbalanced.chain(fallbacks).collect();
        notes.push(Note::new(format!(
            "{} on CPU {}, the generator on CPU {}; {} flows, requests of {} bytes. Capacity was found to be {}/s.",
            count(self.workers as usize, "worker", "workers"),
            self.server_cpu,
            self.generator_cpu,
            self.flows,
            self.payload_bytes,
            format::rate(self.capacity_per_second)
        )));
        if let Some(load) = self.load_average {
            notes.push(Note::new(format!("Load average before: {load:.1}.")));
        }
        notes
    }
}

impl Requests {
    /// A row a fate.
    fn rows(&self) -> Vec<Vec<String>> {
        let link = match self.link.as_str() {
            "up" => "stayed up",
            _ => "went down and up",
        };
        let row = |count: String, fate: String| vec![link.to_owned(), count, fate];
        let of_loss = |loss: &Loss| row(signed(loss.requests), loss.what.clone());
        let uncounted = |loss: &Loss| row(signed(loss.requests), format!("counted by nobody: {}", loss.what));
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
