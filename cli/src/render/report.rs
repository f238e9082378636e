//! Several results as one: first the path, then the conclusion of each result, then each result in
//! full, in the order in which an engineer reads them.

mod joined_results;
mod text;

use anyhow::{Context, Result};
use askama::Template;

use crate::command::report::reading::{ResultFile, ResultFiles, UnreadFile};

use super::page::{ResultPosition, mark_class, unbroken};
use super::{format, html};
pub(crate) use joined_results::{JoinedResult, JoinedResults};
pub(crate) use text::text;

/// Sorts the results by their rank, and results of the same rank by time. Returns them with their bodies.
///
/// # Errors
/// If a body cannot be made, such as a flame graph that cannot be drawn.
pub(crate) fn join(files: ResultFiles) -> Result<JoinedResults> {
    let ResultFiles { mut sources, unread } = files;
    sources.sort_by(|left, right| {
        let key = |source: &ResultFile| (source.rank, source.document.origin.started_unix_seconds);
        key(left).cmp(&key(right)).then_with(|| left.file.cmp(&right.file))
    });
    // The latest result with a picture of the path.
    let with_picture = sources.iter().enumerate().filter(|(_, source)| source.document.has_path());
    let picture_index = with_picture
        .max_by_key(|(index, source)| (source.document.origin.started_unix_seconds, *index))
        .map(|(index, _)| index);
    let path_part = |index: usize| {
        let path = sources[index].document.path_only();
        html::part(&path, &ResultPosition::nested("path")).map(|body| (index, body))
    };
    let path = picture_index.map(path_part).transpose()?;
    let mut members = Vec::new();
    for (index, ResultFile { file, document, .. }) in sources.into_iter().enumerate() {
        let id = format!("result-{}", index + 1);
        let position = ResultPosition::nested(&id);
        let body = match picture_index == Some(index) {
            true => html::part(&document.without_path(), &position),
            false => html::part(&document, &position),
        };
        let body = body.with_context(|| format!("{file} cannot be shown"))?;
        members.push(JoinedResult { id, file, document, body });
    }
    Ok(JoinedResults { members, path, unread })
}

#[derive(Template)]
#[template(path = "report.html")]
struct ReportPage<'a> {
    title: String,
    version: &'static str,
    foot: &'static str,
    hosts: Vec<String>,
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
        words: member.document.title,
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
        path_about: unbroken(path_about(report)),
        results: &report.members,
        unread: &report.unread,
    };
    page.render().context("the page cannot be formatted")
}

fn path_about(report: &JoinedResults) -> String {
    match report.path_member() {
        Some(member) => {
            format!("As linerate doctor read it, {}: {}.", member.document.origin.time(), member.file)
        }
        None => "No result here has a picture of it: linerate doctor --json writes one.".to_owned(),
    }
}

#[cfg(test)]
mod tests;
