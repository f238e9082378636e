//! The common parts of all pages: the head of a result, its building blocks, and the frame.

use anyhow::{Context, Result};
use askama::Template;

use super::format;
use super::style::non_breaking;
use crate::document::{Mark, Tone};
use crate::origin::HostSummary;

#[derive(Debug, Clone)]
pub(crate) struct PageHead {
    pub(crate) schema: String,
    /// The version of the program that made the result.
    pub(crate) version: String,
    /// The kind of result.
    pub(crate) title: &'static str,
    /// The conclusion: one sentence.
    pub(crate) verdict: String,
    // The conclusion in a word or two. `None` for results that are neither good nor bad.
    pub(crate) mark: Option<Mark>,
    /// The host of the result, in words.
    pub(crate) host: String,
    pub(crate) time: String,
    pub(crate) unix_seconds: Option<u64>,
    /// The subject and the duration of the measurement; may be empty.
    pub(crate) about: String,
    pub(crate) command: String,
}

#[derive(Debug)]
pub(crate) struct PageResult {
    pub(crate) head: PageHead,
    pub(crate) body: String,
}

/// The position of a result in a page.
#[derive(Debug, Clone)]
pub(crate) struct ResultPosition {
    // Prefix of every id, so that two results in one page have no id in common.
    prefix: String,
    /// Level of the headings in the body.
    pub(crate) level: u8,
}

impl ResultPosition {
    /// A result with a page of its own.
    pub(crate) fn standalone() -> Self {
        Self { prefix: String::new(), level: 2 }
    }

    /// One of several results in a page, below its own heading.
    pub(crate) fn nested(id: &str) -> Self {
        Self { prefix: format!("{id}-"), level: 3 }
    }

    /// An id that is unique in the page.
    pub(crate) fn id(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

/// Text for a host or time that a document does not contain.
pub(crate) const NOT_RECORDED: &str = "not recorded";

/// A time for the head of a result.
pub(crate) fn time(unix_seconds: Option<u64>) -> String {
    unix_seconds.map_or_else(|| NOT_RECORDED.to_owned(), format::utc)
}

// A host in words: its name, kernel and CPUs.
pub(crate) fn host(host: &HostSummary) -> String {
    let cpus = host.cpus.map(|cpus| if cpus == 1 { "1 CPU".to_owned() } else { format!("{cpus} CPUs") });
    let parts = [
        host.name.clone(),
        host.kernel.as_ref().map(|kernel| format!("Linux {kernel}")),
        host.cpu_model.clone(),
        cpus,
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { NOT_RECORDED.to_owned() } else { parts.join(" · ") }
}

#[derive(Template)]
#[template(path = "single.html")]
struct SingleResultPage<'a> {
    title: String,
    version: &'a str,
    foot: &'a str,
    head: &'a PageHead,
    body: &'a str,
}

/// Text in which no line break parts a number from its unit.
pub(crate) fn unbroken(text: &str) -> String {
    non_breaking(text)
}

/// The class of a mark in the head. Its words are there because colour alone is not accessible.
pub(crate) fn mark_class(tone: &Tone) -> &'static str {
    match tone {
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Warn => "warn",
        Tone::Plain | Tone::Strong | Tone::Faint => "plain",
    }
}

pub(crate) fn single_result_page(part: impl FnOnce(&ResultPosition) -> Result<PageResult>) -> Result<String> {
    let PageResult { head, body } = part(&ResultPosition::standalone())?;
    let page = SingleResultPage {
        title: format!("{}: {}", head.title, non_breaking(&head.verdict)),
        version: &head.version,
        foot: &format!("schema {} · {}", head.schema, non_breaking(&head.time)),
        head: &head,
        body: &body,
    };
    page.render().context("the page cannot be formatted")
}

/// A result's body from its template.
pub(crate) fn part(head: PageHead, body: &impl Template) -> Result<PageResult> {
    Ok(PageResult { head, body: body.render().context("the page cannot be formatted")? })
}
