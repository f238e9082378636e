//! The common parts of all pages: the head of a result, its building blocks, and the frame.

use anyhow::{Context, Result};
use askama::Template;

use super::format;
use super::style::non_breaking;
use crate::document::{Document, Tone};
use crate::origin::{HostSummary, Origin};

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

/// The texts for the head of a result.
impl Origin {
    pub(crate) fn time(&self) -> String {
        time(self.started_unix_seconds)
    }

    // The host in words: its name, kernel and CPUs.
    pub(crate) fn host_line(&self) -> String {
        let HostSummary { name, kernel, cpus, cpu_model, .. } = &self.host;
        let parts = [
            name.clone(),
            kernel.as_ref().map(|kernel| format!("Linux {kernel}")),
            cpu_model.clone(),
            cpus.map(|cpus| format::count_with_noun(cpus, "CPU")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { NOT_RECORDED.to_owned() } else { parts.join(" · ") }
    }

    pub(crate) fn command(&self) -> String {
        match self.argv.as_slice() {
            [] => NOT_RECORDED.to_owned(),
            argv => format::command_line(argv),
        }
    }
}

#[derive(Template)]
#[template(path = "single.html")]
struct SingleResultPage<'a> {
    title: String,
    version: &'a str,
    foot: &'a str,
    document: &'a Document,
    body: &'a str,
}

/// Text in which no line break parts a number from its unit.
pub(crate) fn unbroken(text: impl AsRef<str>) -> String {
    non_breaking(text.as_ref())
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

/// The page of one result with this body.
pub(crate) fn single_result_page(document: &Document, body: &str) -> Result<String> {
    let origin = &document.origin;
    let page = SingleResultPage {
        title: format!("{}: {}", document.title, non_breaking(&document.verdict)),
        version: &origin.version,
        foot: &format!("schema {} · {}", origin.schema, non_breaking(&origin.time())),
        document,
        body,
    };
    page.render().context("the page cannot be formatted")
}
