//! What `linerate tune` planned, changed, and put back.

use anyhow::Result;
use linerate_tune::TunePlan;
use serde::Deserialize;
use serde_json::Value;

use super::sheet::{OriginInput, SheetBody, SummarySheet, count, outcome};
use crate::render::page::{self, FigureTile, HtmlTable, PageHead, PageNote, PageResult, ResultPosition};
use crate::render::style::{TextTone, non_breaking};

/// `linerate.tune-apply/1`, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(crate) struct TuneApplyInput {
    #[serde(flatten)]
    origin: OriginInput,
    tune: u64,
    goal: String,
    changes: Vec<TuneStepInput>,
    broke_off: Option<String>,
    findings: Option<Vec<RemainingInput>>,
}

/// A change and what became of it.
#[derive(Debug, Deserialize)]
pub(super) struct TuneStepInput {
    name: String,
    from: String,
    to: String,
    outcome: Value,
}

#[derive(Debug, Deserialize)]
struct RemainingInput {
    id: String,
    severity: String,
    title: String,
}

/// `linerate.tune-undo/1`, as far as it is shown.
#[derive(Debug, Deserialize)]
pub(crate) struct TuneUndoInput {
    #[serde(flatten)]
    origin: OriginInput,
    tune: u64,
    settings: Vec<RestoredSettingInput>,
}

#[derive(Debug, Deserialize)]
struct RestoredSettingInput {
    name: String,
    first: String,
    outcome: Value,
}

impl SummarySheet for TunePlan {
    fn rank(&self) -> u8 {
        super::PLANNED
    }

    fn unix_seconds(&self) -> Option<u64> {
        self.read_unix_seconds
    }

    fn part(&self, place: &ResultPosition) -> Result<PageResult> {
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
        let body = SheetBody {
            tiles: vec![
                FigureTile::new(all().count().to_string(), "", "changes"),
                FigureTile::new(self.left.len().to_string(), "", "findings left as they are"),
            ],
            tables: vec![
                HtmlTable {
                    heading: "What would be changed",
                    columns: vec!["setting", "from", "to", "why"],
                    rows: rows.collect(),
                    words_last: true,
                    ..HtmlTable::default()
                },
                HtmlTable {
                    heading: "What is held back",
                    columns: vec!["until fixed", "what", "why", "what to do first"],
                    rows: held.collect(),
                    words_last: true,
                    ..HtmlTable::default()
                },
                HtmlTable {
                    heading: "What is left",
                    columns: vec!["finding", "severity", "what", "why it is left"],
                    rows: left.collect(),
                    words_last: true,
                    ..HtmlTable::default()
                },
            ],
            ..SheetBody::default()
        };
        let head = PageHead {
            schema: self.schema.clone(),
            version: self.version.clone(),
            title: "A plan for the path",
            verdict: non_breaking(&format!("{changes} planned for {}", self.goal)),
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

impl SummarySheet for TuneApplyInput {
    fn rank(&self) -> u8 {
        super::TUNED
    }

    fn unix_seconds(&self) -> Option<u64> {
        self.origin.started_unix_seconds
    }

    fn part(&self, place: &ResultPosition) -> Result<PageResult> {
        let found = self.findings.as_deref().unwrap_or_default();
        let remain = found.iter().filter(|finding| finding.severity != "note").count();
        let mut notes: Vec<PageNote> =
            self.broke_off.iter().map(|why| PageNote::alarm("Broke off:", why.clone())).collect();
        if self.findings.is_none() {
            notes.push(PageNote::new(
                "What doctor finds afterwards is not known: the host could not be read.",
            ));
        }
        let body = SheetBody {
            tiles: vec![
                FigureTile::new(self.changes.len().to_string(), "", "changes"),
                FigureTile::new(remain.to_string(), "", "findings above note that remain"),
            ],
            notes,
            tables: vec![
                steps(&self.changes),
                HtmlTable {
                    heading: "What doctor still finds",
                    columns: vec!["finding", "severity", "what"],
                    rows: found
                        .iter()
                        .map(|finding| {
                            vec![finding.id.clone(), finding.severity.clone(), finding.title.clone()]
                        })
                        .collect(),
                    words_last: true,
                    ..HtmlTable::default()
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
            (true, _) => PageHead::mark(TextTone::Bad, "broke off"),
            (false, 0) => PageHead::mark(TextTone::Good, "made"),
            (false, _) => PageHead::mark(TextTone::Warn, "made, something remains"),
        };
        body.part(PageHead { mark, ..self.origin.head("What was tuned", &verdict) }, place)
    }
}

impl SummarySheet for TuneUndoInput {
    fn rank(&self) -> u8 {
        super::UNDONE
    }

    fn unix_seconds(&self) -> Option<u64> {
        self.origin.started_unix_seconds
    }

    fn part(&self, place: &ResultPosition) -> Result<PageResult> {
        let is_back = |setting: &&RestoredSettingInput| {
            setting.outcome.as_str().is_some_and(|outcome| matches!(outcome, "restored" | "already"))
        };
        let back = self.settings.iter().filter(is_back).count();
        let all = self.settings.len();
        let rows = self
            .settings
            .iter()
            .map(|setting| vec![setting.name.clone(), setting.first.clone(), outcome(&setting.outcome)]);
        let body = SheetBody {
            tiles: vec![FigureTile::new(format!("{back} of {all}"), "", "settings are as they were before")],
            tables: vec![HtmlTable {
                heading: "Settings put back",
                columns: vec!["setting", "before the tune", "became"],
                rows: rows.collect(),
                words_last: true,
                ..HtmlTable::default()
            }],
            ..SheetBody::default()
        };
        let verdict = match back == all {
            true => format!("Tune {} undone: all is as it was before", self.tune),
            false => {
                format!("Tune {} undone but for {}", self.tune, count(all - back, "setting", "settings"))
            }
        };
        let mark = match back == all {
            true => PageHead::mark(TextTone::Good, "undone"),
            false => PageHead::mark(TextTone::Warn, "something was left"),
        };
        body.part(PageHead { mark, ..self.origin.head("What was put back", &verdict) }, place)
    }
}

/// Changes and what became of each.
pub(super) fn steps(changes: &[TuneStepInput]) -> HtmlTable {
    let row = |step: &TuneStepInput| {
        vec![step.name.clone(), step.from.clone(), step.to.clone(), outcome(&step.outcome)]
    };
    HtmlTable {
        heading: "What was changed",
        columns: vec!["setting", "from", "to", "became"],
        rows: changes.iter().map(row).collect(),
        words_last: true,
        ..HtmlTable::default()
    }
}
