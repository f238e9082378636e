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
    /// The picture of the path as HTML, and the index of the result with it.
    pub(crate) path: Option<(usize, String)>,
    pub(crate) unread: Vec<UnreadFile>,
}

/// The files of a report and their verdicts.
#[derive(Debug, Serialize)]
pub(crate) struct ReportIndex<'a> {
    /// The file whose packet path comes first; null without one.
    path_from: Option<String>,
    /// In the order of the report.
    results: Vec<ReportEntry>,
    unread: &'a [UnreadFile],
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

    /// The result whose picture of the path is shown.
    pub(crate) fn path_member(&self) -> Option<&JoinedResult> {
        self.path.as_ref().and_then(|(index, _)| self.members.get(*index))
    }

    pub(crate) fn index(&self) -> ReportIndex<'_> {
        let report_entry = |member: &JoinedResult| ReportEntry {
            file: member.file.clone(),
            schema: member.head.schema.clone(),
            version: member.head.version.clone(),
            started_unix_seconds: member.head.unix_seconds,
            host: member.head.host.clone(),
            kind: member.head.title,
            verdict: member.head.verdict.clone(),
            mark: member.head.mark.as_ref().map(|mark| mark.words.clone()),
        };
        ReportIndex {
            path_from: self.path_member().map(|member| member.file.clone()),
            results: self.members.iter().map(report_entry).collect(),
            unread: &self.unread,
        }
    }
}
