//! What `linerate tune` planned, changed, and put back.

use anyhow::Result;
use linerate_tune::Plan;
use serde::Deserialize;
use serde_json::Value;

use super::sheet::{Body, Origin, Sheet, count, outcome};
use crate::render::page::{self, Head, Note, Part, Place, Table, Tile};
use crate::render::style::{Tone, unbroken};

/// `linerate.tune-apply/1`, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(crate) struct Applied {
    #[serde(flatten)]
    origin: Origin,
    tune: u64,
    goal: String,
    changes: Vec<Step>,
    broke_off: Option<String>,
    findings: Option<Vec<Remaining>>,
}

/// A change and what became of it.
#[derive(Debug, Deserialize)]
pub(super) struct Step {
    name: String,
    from: String,
    to: String,
    outcome: Value,
}

#[derive(Debug, Deserialize)]
struct Remaining {
    id: String,
    severity: String,
    title: String,
}

/// `linerate.tune-undo/1`, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(crate) struct Undone {
    #[serde(flatten)]
    origin: Origin,
    tune: u64,
    settings: Vec<PutBack>,
}

#[derive(Debug, Deserialize)]
struct PutBack {
    name: String,
    first: String,
    outcome: Value,
}

impl Sheet for Plan {
    fn rank(&self) -> u8 {
        super::PLANNED
    }

    fn unix_seconds(&self) -> Option<u64> {
        self.read_unix_seconds
    }

    fn part(&self, place: &Place) -> Result<Part> {
        let all = || self.agreements.iter().chain(&self.changes);
        let rows = all().map(|change| {
            vec![
                change.setting.to_string(),
                change.from.to_string(),
                change.to.to_string(),
                change.why.clone(),
            ]
        });
        let left = self.left.iter().map(|left| {
            vec![left.finding.clone(), left.severity.to_string(), left.title.clone(), left.why.clone()]
        });
        let held = self.held_back.iter().map(|held| {
            let what = count(held.changes.len(), "change", "changes");
            vec![held.until_fixed.clone(), what, format!("{} {}", held.why, held.effect), held.first.clone()]
        });
        let changes = count(all().count(), "change", "changes");
        let body = Body {
            tiles: vec![
                Tile::new(all().count().to_string(), "", "changes"),
                Tile::new(self.left.len().to_string(), "", "findings left as they are"),
            ],
            tables: vec![
                Table {
                    heading: "What would be changed",
                    columns: vec!["setting", "from", "to", "why"],
                    rows: rows.collect(),
                    words_last: true,
                    ..Table::default()
                },
                Table {
                    heading: "What is held back",
                    columns: vec!["until fixed", "what", "why", "what to do first"],
                    rows: held.collect(),
                    words_last: true,
                    ..Table::default()
                },
                Table {
                    heading: "What is left",
                    columns: vec!["finding", "severity", "what", "why it is left"],
                    rows: left.collect(),
                    words_last: true,
                    ..Table::default()
                },
            ],
            ..Body::default()
        };
        let head = Head {
            schema: self.schema.clone(),
            version: self.version.clone(),
            title: "A plan for the path",
            verdict: unbroken(&format!("{changes} planned for {}", self.goal)),
            mark: None,
            host: page::NOT_RECORDED.to_owned(),
            time: page::time(self.read_unix_seconds),
            unix_seconds: self.read_unix_seconds,
            about: String::new(),
            command: page::NOT_RECORDED.to_owned(),
        };
        body.part(head, place)
    }
}

impl Sheet for Applied {
    fn rank(&self) -> u8 {
        super::TUNED
    }

    fn unix_seconds(&self) -> Option<u64> {
        self.origin.started_unix_seconds
    }

    fn part(&self, place: &Place) -> Result<Part> {
        let found = self.findings.as_deref().unwrap_or_default();
        let remain = found.iter().filter(|finding| finding.severity != "note").count();
        let mut notes: Vec<Note> =
            self.broke_off.iter().map(|why| Note::alarm("Broke off:", why.clone())).collect();
        if self.findings.is_none() {
            notes.push(Note::new("What doctor finds afterwards is not known: the host could not be read."));
        }
        let body = Body {
            tiles: vec![
                Tile::new(self.changes.len().to_string(), "", "changes"),
                Tile::new(remain.to_string(), "", "findings above note that remain"),
            ],
            notes,
            tables: vec![
                steps(&self.changes),
                Table {
                    heading: "What doctor still finds",
                    columns: vec!["finding", "severity", "what"],
                    rows: found
                        .iter()
                        .map(|finding| {
                            vec![finding.id.clone(), finding.severity.clone(), finding.title.clone()]
                        })
                        .collect(),
                    words_last: true,
                    ..Table::default()
                },
            ],
        };
        let verdict = format!(
            "Tune {} for {}: {}{}",
            self.tune,
            self.goal,
            count(self.changes.len(), "change", "changes"),
            if self.broke_off.is_some() { ", broken off" } else { " made and read back" },
        );
        let mark = match (self.broke_off.is_some(), remain) {
            (true, _) => Head::mark(Tone::Bad, "broke off"),
            (false, 0) => Head::mark(Tone::Good, "made"),
            (false, _) => Head::mark(Tone::Warn, "made, something remains"),
        };
        body.part(Head { mark, ..self.origin.head("What was tuned", &verdict) }, place)
    }
}

impl Sheet for Undone {
    fn rank(&self) -> u8 {
        super::UNDONE
    }

    fn unix_seconds(&self) -> Option<u64> {
        self.origin.started_unix_seconds
    }

    fn part(&self, place: &Place) -> Result<Part> {
        let is_back = |setting: &&PutBack| {
            setting.outcome.as_str().is_some_and(|outcome| matches!(outcome, "restored" | "already"))
        };
        let back = self.settings.iter().filter(is_back).count();
        let all = self.settings.len();
        let rows = self
            .settings
            .iter()
            .map(|setting| vec![setting.name.clone(), setting.first.clone(), outcome(&setting.outcome)]);
        let body = Body {
            tiles: vec![Tile::new(format!("{back} of {all}"), "", "settings are as they were before")],
            tables: vec![Table {
                heading: "Settings put back",
                columns: vec!["setting", "before the tune", "became"],
                rows: rows.collect(),
                words_last: true,
                ..Table::default()
            }],
            ..Body::default()
        };
        let verdict = match back == all {
            true => format!("Tune {} undone: all is as it was before", self.tune),
            false => {
                format!("Tune {} undone but for {}", self.tune, count(all - back, "setting", "settings"))
            }
        };
        let mark = match back == all {
            true => Head::mark(Tone::Good, "undone"),
            false => Head::mark(Tone::Warn, "something was left"),
        };
        body.part(Head { mark, ..self.origin.head("What was put back", &verdict) }, place)
    }
}

/// Changes and what became of each.
pub(super) fn steps(changes: &[Step]) -> Table {
    let row =
        |step: &Step| vec![step.name.clone(), step.from.clone(), step.to.clone(), outcome(&step.outcome)];
    Table {
        heading: "What was changed",
        columns: vec!["setting", "from", "to", "became"],
        rows: changes.iter().map(row).collect(),
        words_last: true,
        ..Table::default()
    }
}
