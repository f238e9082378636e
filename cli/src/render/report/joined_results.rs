//! Results, each with its heading.

use serde::Serialize;

use crate::command::report::reading::UnreadFile;
use crate::render::page::{self, PageHead};

/// A result of a report.
#[derive(Debug)]
pub(crate) struct JoinedResult {
    /// The id of the result in the page.
    pub(crate) id: String,
    pub(crate) file: String,
    pub(crate) head: PageHead,
    pub(crate) body: String,
}

/// All results in their order.
#[derive(Debug)]
pub(crate) struct JoinedResults {
    pub(crate) members: Vec<JoinedResult>,
    /// The picture of the path as HTML.
    pub(crate) path: Option<String>,
    /// The index of the result with that picture.
    pub(crate) path_of: Option<usize>,
    pub(crate) unread: Vec<UnreadFile>,
}

/// The files of a report and their verdicts.
#[derive(Debug, Serialize)]
pub(crate) struct ReportIndex {
    /// The file whose packet path comes first; null without one.
    path_from: Option<String>,
    /// In the order of the report.
    results: Vec<ReportEntry>,
    unread: Vec<UnreadEntry>,
}

#[derive(Debug, Serialize)]
struct ReportEntry {
    file: String,
    schema: String,
    version: String,
    /// Null if the result does not contain it.
    started_unix_seconds: Option<u64>,
    host: String,
    kind: &'static str,
    verdict: String,
    /// The verdict in a word or two; null where a result is neither good nor bad.
    mark: Option<String>,
}

#[derive(Debug, Serialize)]
struct UnreadEntry {
    file: String,
    schema: Option<String>,
    why: String,
}

impl JoinedResults {
    /// The page's title.
    pub(crate) fn title(&self) -> String {
        match self.members.len() {
            0 => "No result that can be shown".to_owned(),
            1 => "One result".to_owned(),
            count => format!("{count} results"),
        }
    }

    /// The hosts of the results, each once.
    pub(crate) fn hosts(&self) -> Vec<&str> {
        let mut hosts: Vec<&str> = Vec::new();
        for member in &self.members {
            if !hosts.contains(&member.head.host.as_str()) && member.head.host != page::NOT_RECORDED {
                hosts.push(&member.head.host);
            }
        }
        if hosts.is_empty() { vec![page::NOT_RECORDED] } else { hosts }
    }

    /// The time span of all results.
    pub(crate) fn time(&self) -> String {
        let times = || self.members.iter().filter_map(|member| member.head.unix_seconds);
        match (times().min(), times().max()) {
            (Some(first), Some(last)) if first != last => {
                format!("{} to {}", page::time(Some(first)), page::time(Some(last)))
            }
            (first, _) => page::time(first),
        }
    }

    pub(crate) fn index(&self) -> ReportIndex {
        let report_entry = |member: &JoinedResult| ReportEntry {
            file: member.file.clone(),
            schema: member.head.schema.clone(),
            version: member.head.version.clone(),
            started_unix_seconds: member.head.unix_seconds,
            host: plain(&member.head.host),
            kind: member.head.title,
            verdict: plain(&member.head.verdict),
            mark: member.head.mark.as_ref().map(|(_, words)| words.clone()),
        };
        let unread_entry = |file: &UnreadFile| UnreadEntry {
            file: file.file.clone(),
            schema: file.schema.clone(),
            why: file.why.clone(),
        };
        ReportIndex {
            path_from: self.path_of.and_then(|index| Some(self.members.get(index)?.file.clone())),
            results: self.members.iter().map(report_entry).collect(),
            unread: self.unread.iter().map(unread_entry).collect(),
        }
    }
}

/// Text without the marks that control line breaks in a page.
pub(super) fn plain(text: &str) -> String {
    text.replace('\u{a0}', " ").replace('\u{2060}', "")
}
