//! Several results as one: first the path, then the conclusion of each result, then each result in
//! full, in the order in which an engineer reads them.

mod joined;
mod text;

use anyhow::{Context, Result};
use askama::Template;
use linerate_lab::ladder::report::LadderReport;
use linerate_load::report::{LoadReport, OverloadReport, RampReport, SearchReport};
use linerate_trace::drops::DropsResult;
use linerate_trace::flame::comparison::FlameComparison;
use linerate_trace::flame::result::FlameResult;

use linerate_tune::boost::report::{BoostApplyReport, BoostPlanReport};
use linerate_tune::report::TuneApplyReport;
use linerate_tune::transaction::UndoReport;

use crate::command::report::fleet_report::FleetReport;
use crate::command::report::reading::{ResultFile, ResultFiles, UnreadFile};
use crate::document::Document;
use crate::envelope::CommandResult as _;

use super::page::{PageResult, ResultPosition};
use super::style::non_breaking;
use super::{format, html};
pub(crate) use joined::{JoinedResult, JoinedResults};
pub(crate) use text::text;

/// Results in the order of the report.
#[derive(Debug)]
pub(crate) struct OrderedResults {
    sources: Vec<ResultFile>,
    unread: Vec<UnreadFile>,
}

impl OrderedResults {
    /// Sorts the results: the path, changes, capacity, the load, and the use of time and the loss
    /// of packets; results of the same kind by time.
    pub(crate) fn of(read: ResultFiles) -> Self {
        let mut sources = read.sources;
        sources.sort_by(|one, other| {
            let key = |source: &ResultFile| {
                let rank = rank(&source.document);
                (rank, source.document.origin.started_unix_seconds)
            };
            key(one).cmp(&key(other)).then_with(|| one.file.cmp(&other.file))
        });
        Self { sources, unread: read.unread }
    }

    /// Whether no file is a result, of this or another version.
    pub(crate) fn is_empty(&self) -> bool {
        let is_ours = |unread: &UnreadFile| {
            unread.schema.as_ref().is_some_and(|schema| schema.starts_with("linerate."))
        };
        self.sources.is_empty() && !self.unread.iter().any(is_ours)
    }

    /// All results with their bodies.
    ///
    /// # Errors
    /// If a body cannot be made, such as a flame graph that cannot be drawn.
    pub(crate) fn render_results(self) -> Result<JoinedResults> {
        let pictured = self.picture_index();
        let path = match pictured.and_then(|index| self.sources.get(index)) {
            Some(source) => {
                let path = source.document.path_only();
                Some(html::part(&path, &ResultPosition::nested("path"))?.body)
            }
            None => None,
        };
        let mut members = Vec::new();
        for (index, source) in self.sources.iter().enumerate() {
            let id = format!("result-{}", index + 1);
            let elsewhere = path.is_some() && pictured == Some(index);
            let place = ResultPosition::nested(&id).without_picture(elsewhere);
            let PageResult { head, body } =
                part(&source.document, &place).with_context(|| format!("{} cannot be shown", source.file))?;
            members.push(JoinedResult { id, file: source.file.clone(), head, body });
        }
        let path_of = pictured.filter(|_| path.is_some());
        Ok(JoinedResults { members, path, path_of, unread: self.unread })
    }

    /// The index of the latest result with a picture of the path.
    fn picture_index(&self) -> Option<usize> {
        let doctors = self.sources.iter().enumerate().filter(|(_, source)| source.document.has_path());
        doctors
            .max_by_key(|(index, source)| (source.document.origin.started_unix_seconds, *index))
            .map(|(index, _)| index)
    }
}

/// The place of a kind of result in the report.
fn rank(document: &Document) -> u8 {
    match document.origin.schema.as_str() {
        _ if document.has_path() => 0,
        FleetReport::SCHEMA => 0,
        linerate_tune::plan::SCHEMA
        | TuneApplyReport::SCHEMA
        | UndoReport::SCHEMA
        | BoostPlanReport::SCHEMA
        | BoostApplyReport::SCHEMA => 1,
        LadderReport::SCHEMA => 6,
        SearchReport::SCHEMA => 9,
        RampReport::SCHEMA => 10,
        LoadReport::SCHEMA => 11,
        OverloadReport::SCHEMA => 12,
        DropsResult::SCHEMA => 14,
        FlameResult::SCHEMA => 15,
        FlameComparison::SCHEMA => 16,
        _ => 13,
    }
}

fn part(document: &Document, place: &ResultPosition) -> Result<PageResult> {
    if place.picture_elsewhere {
        html::part(&document.without_path(), place)
    } else {
        html::part(document, place)
    }
}

#[derive(Template)]
#[template(path = "report.html")]
struct ReportPage<'a> {
    title: String,
    version: &'static str,
    foot: &'static str,
    hosts: Vec<&'a str>,
    time: String,
    command: String,
    contents: Vec<ContentsEntry<'a>>,
    path: &'a str,
    path_about: String,
    results: &'a [JoinedResult],
    unread: &'a [UnreadFile],
}

/// A line of the table of contents.
struct ContentsEntry<'a> {
    id: &'a str,
    words: &'a str,
    file: &'a str,
}

impl<'a> ContentsEntry<'a> {
    fn own(id: &'a str, words: &'a str) -> Self {
        Self { id, words, file: "" }
    }
}

/// A file without its directory.
fn short(file: &str) -> &str {
    file.rsplit_once('/').map_or(file, |(_, name)| name)
}

/// The page of all results.
///
/// # Errors
/// Only if formatting fails, which no result is known to cause.
pub(crate) fn page(joined: &JoinedResults, argv: &[String]) -> Result<String> {
    let results = joined.members.iter().map(|member| ContentsEntry {
        id: &member.id,
        words: member.head.title,
        file: short(&member.file),
    });
    let fixed = [ContentsEntry::own("path", "The packet path"), ContentsEntry::own("summary", "Verdicts")];
    let unread = (!joined.unread.is_empty()).then_some(ContentsEntry::own("unread", "Not shown"));
    let page = ReportPage {
        title: joined.title(),
        version: env!("CARGO_PKG_VERSION"),
        foot: "linerate report",
        hosts: joined.hosts(),
        time: joined.time(),
        command: format::command_line(argv),
        contents: fixed.into_iter().chain(results).chain(unread).collect(),
        path: joined.path.as_deref().unwrap_or_default(),
        path_about: non_breaking(&path_about(joined)),
        results: &joined.members,
        unread: &joined.unread,
    };
    page.render().context("the page cannot be formatted")
}

fn path_about(joined: &JoinedResults) -> String {
    match joined.path_of.and_then(|index| joined.members.get(index)) {
        Some(member) => format!("As linerate doctor read it, {}: {}.", member.head.time, member.file),
        None => "No result here has a picture of it: linerate doctor --json writes one.".to_owned(),
    }
}

#[cfg(test)]
mod tests;
