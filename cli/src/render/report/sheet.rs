//! Results that have no page of their own and are shown among others: tiles, notes and tables.

use std::fmt::Debug;

use anyhow::Result;
use askama::Template;
use serde::Deserialize;
use serde_json::Value;

use crate::render::format;
use crate::render::page::{self, FigureTile, HtmlTable, PageHead, PageNote, PageResult, ResultPosition};
use crate::render::style::non_breaking;

/// A result that can be shown as a sheet.
pub(crate) trait SummarySheet: Debug {
    /// Its place in the story, as [`super::rank`] has those of others.
    fn rank(&self) -> u8;

    /// When it was made; none where it does not say, as documents of earlier versions do not.
    fn unix_seconds(&self) -> Option<u64>;

    /// The result in a page.
    ///
    /// # Errors
    /// Only if formatting fails, which no result is known to cause.
    fn part(&self, place: &ResultPosition) -> Result<PageResult>;
}

#[derive(Template)]
#[template(path = "sheet.html")]
struct PlacedSheet<'a> {
    place: &'a ResultPosition,
    tiles: Vec<FigureTile>,
    notes: Vec<PageNote>,
    tables: Vec<HtmlTable>,
}

/// What stands in a sheet.
#[derive(Default)]
pub(super) struct SheetBody {
    pub(super) tiles: Vec<FigureTile>,
    pub(super) notes: Vec<PageNote>,
    pub(super) tables: Vec<HtmlTable>,
}

/// What documents say of themselves.
#[derive(Debug, Deserialize)]
pub(super) struct OriginInput {
    pub(super) schema: String,
    pub(super) version: String,
    #[serde(default)]
    argv: Vec<String>,
    #[serde(default)]
    host: Option<String>,
    #[serde(default)]
    pub(super) started_unix_seconds: Option<u64>,
}

impl OriginInput {
    /// What is said above a result, but for its mark.
    pub(super) fn head(&self, title: &'static str, verdict: &str) -> PageHead {
        PageHead {
            schema: self.schema.clone(),
            version: self.version.clone(),
            title,
            verdict: non_breaking(verdict),
            mark: None,
            host: page::host(self.host.as_deref(), None, None, None),
            time: page::time(self.started_unix_seconds),
            unix_seconds: self.started_unix_seconds,
            about: String::new(),
            command: match self.argv.as_slice() {
                [] => page::NOT_RECORDED.to_owned(),
                argv => format::command_line(argv),
            },
        }
    }
}

impl SheetBody {
    /// As it stands in a page. Tables without rows are left out.
    pub(super) fn part(self, head: PageHead, place: &ResultPosition) -> Result<PageResult> {
        let Self { tiles, notes, mut tables } = self;
        tables.retain(|table| !table.rows.is_empty());
        page::part(head, &PlacedSheet { place, tiles, notes, tables })
    }
}

/// What became of something, in words: `made`, or `refused: ` and why. Documents have a name, or an object of one.
pub(super) fn outcome(value: &Value) -> String {
    let words = |name: &str| name.replace(['_', '-'], " ");
    match value {
        Value::String(name) => words(name),
        Value::Object(object) => match object.iter().next() {
            Some((name, Value::Object(more))) => {
                let told: Vec<String> = more.values().map(text).collect();
                format!("{}: {}", words(name), told.join("; "))
            }
            Some((name, more)) => format!("{}: {}", words(name), text(more)),
            None => String::new(),
        },
        _ => text(value),
    }
}

/// A value as text, without the quotes of JSON.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// So many of them, in words.
pub(super) fn count(number: usize, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn outcomes_are_told_with_their_reason() {
        assert_eq!(outcome(&json!("made")), "made");
        assert_eq!(outcome(&json!({"refused": {"why": "EPERM"}})), "refused: EPERM");
        assert_eq!(outcome(&json!({"covered": {"by": 7}})), "covered: 7");
        assert_eq!(outcome(&json!("undo_died")), "undo died");
    }
}
