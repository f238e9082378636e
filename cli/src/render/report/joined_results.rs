//! Results, each with its heading.

use serde::Serialize;

use crate::command::report::reading::UnreadFile;
use crate::document::Document;
use crate::render::page::{self, NOT_RECORDED};

/// A result of a report.
#[derive(Debug)]
pub(crate) struct JoinedResult {
    /// The id of the result in the page.
    pub(crate) id: String,
    pub(crate) file: String,
    pub(crate) document: Document,
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
    pub(crate) fn hosts(&self) -> Vec<String> {
        let mut hosts: Vec<String> = Vec::new();
        for host in self.members.iter().map(|member| member.document.origin.host_line()) {
            if !hosts.contains(&host) && host != NOT_RECORDED {
                hosts.push(host);
            }
        }
        if hosts.is_empty() { vec![NOT_RECORDED.to_owned()] } else { hosts }
    }

    /// The time span of all results.
    pub(crate) fn time(&self) -> String {
        let times = || self.members.iter().filter_map(|member| member.document.origin.started_unix_seconds);
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
        let report_entry = |JoinedResult { file, document, .. }: &JoinedResult| ReportEntry {
            file: file.clone(),
            schema: document.origin.schema.clone(),
            version: document.origin.version.clone(),
            started_unix_seconds: document.origin.started_unix_seconds,
            host: document.origin.host_line(),
            kind: document.title,
            verdict: document.verdict.clone(),
            mark: document.mark.as_ref().map(|mark| mark.words.clone()),
        };
        ReportIndex {
            path_from: self.path_member().map(|member| member.file.clone()),
            results: self.members.iter().map(report_entry).collect(),
            unread: &self.unread,
        }
    }
}
