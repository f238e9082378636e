//! Several results as one: first the path, then the conclusion of each result, then each result in
//! full, in the order in which an engineer reads them.

mod joined_results;
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

use super::page::{PageResult, ResultPosition, mark_class, unbroken};
use super::{format, html};
pub(crate) use joined_results::{JoinedResult, JoinedResults};
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
    pub(crate) fn from_files(files: ResultFiles) -> Self {
        let mut sources = files.sources;
        sources.sort_by(|left, right| {
            let key = |source: &ResultFile| {
                let rank = rank(&source.document);
                (rank, source.document.origin.started_unix_seconds)
            };
            key(left).cmp(&key(right)).then_with(|| left.file.cmp(&right.file))
        });
        Self { sources, unread: files.unread }
    }

    /// Whether no file is a result, of this or another version.
    pub(crate) fn is_empty(&self) -> bool {
        let has_own_schema =
            |file: &UnreadFile| file.schema.as_ref().is_some_and(|schema| schema.starts_with("linerate."));
        self.sources.is_empty() && !self.unread.iter().any(has_own_schema)
    }

    /// All results with their bodies.
    ///
    /// # Errors
    /// If a body cannot be made, such as a flame graph that cannot be drawn.
    pub(crate) fn render_results(self) -> Result<JoinedResults> {
        let picture_index = self.picture_index();
        let path = match picture_index {
            Some(index) => {
                let path = self.sources[index].document.path_only();
                Some((index, html::part(&path, &ResultPosition::nested("path"))?.body))
            }
            None => None,
        };
        let mut members = Vec::new();
        for (index, source) in self.sources.iter().enumerate() {
            let id = format!("result-{}", index + 1);
            let position = ResultPosition::nested(&id);
            let part = if picture_index == Some(index) {
                html::part(&source.document.without_path(), &position)
            } else {
                html::part(&source.document, &position)
            };
            let PageResult { head, body } =
                part.with_context(|| format!("{} cannot be shown", source.file))?;
            members.push(JoinedResult { id, file: source.file.clone(), head, body });
        }
        Ok(JoinedResults { members, path, unread: self.unread })
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
    fn for_section(id: &'a str, words: &'a str) -> Self {
        Self { id, words, file: "" }
    }
}

/// A file without its directory.
fn file_name(file: &str) -> &str {
    file.rsplit_once('/').map_or(file, |(_, name)| name)
}

pub(crate) fn page(report: &JoinedResults, argv: &[String]) -> Result<String> {
    let results = report.members.iter().map(|member| ContentsEntry {
        id: &member.id,
        words: member.head.title,
        file: file_name(&member.file),
    });
    let fixed_entries = [
        ContentsEntry::for_section("path", "The packet path"),
        ContentsEntry::for_section("summary", "Verdicts"),
    ];
    let unread_entry =
        (!report.unread.is_empty()).then_some(ContentsEntry::for_section("unread", "Not shown"));
    let page = ReportPage {
        title: report.title(),
        version: env!("CARGO_PKG_VERSION"),
        foot: "linerate report",
        hosts: report.hosts(),
        time: report.time(),
        command: format::command_line(argv),
        contents: fixed_entries.into_iter().chain(results).chain(unread_entry).collect(),
        path: report.path.as_ref().map_or("", |(_, picture)| picture),
        path_about: unbroken(&path_about(report)),
        results: &report.members,
        unread: &report.unread,
    };
    page.render().context("the page cannot be formatted")
}

fn path_about(report: &JoinedResults) -> String {
    match report.path_member() {
        Some(member) => format!("As linerate doctor read it, {}: {}.", member.head.time, member.file),
        None => "No result here has a picture of it: linerate doctor --json writes one.".to_owned(),
    }
}

#[cfg(test)]
mod tests;
