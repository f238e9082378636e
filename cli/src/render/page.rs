//! The common parts of all pages: the head of a result, its building blocks, and the frame.

use anyhow::{Context, Result};
use askama::Template;

use super::format;
use super::style::{TextTone, non_breaking};

#[derive(Debug, Clone)]
pub(crate) struct PageHead {
    pub(crate) schema: String,
    /// The version of the program that made the result.
    pub(crate) version: String,
    /// The kind of result.
    pub(crate) title: &'static str,
    /// The conclusion: one sentence.
    pub(crate) verdict: String,
    // The conclusion in a word or two, with its class. `None` for results that are neither good
    // nor bad.
    pub(crate) mark: Option<(&'static str, String)>,
    /// The host of the result, in words.
    pub(crate) host: String,
    pub(crate) time: String,
    pub(crate) unix_seconds: Option<u64>,
    /// The subject and the duration of the measurement; may be empty.
    pub(crate) about: String,
    pub(crate) command: String,
}

/// A result for a page.
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
    /// Whether the picture of the path is elsewhere in the page.
    pub(crate) picture_elsewhere: bool,
}

/// A figure large enough to be read across a room.
#[derive(Debug, Clone)]
pub(crate) struct FigureTile {
    pub(crate) figure: String,
    pub(crate) unit: &'static str,
    pub(crate) label: String,
    /// The CSS class that gives its colour; empty for none.
    pub(crate) class: &'static str,
}

// A note that a reader needs before the figures.
#[derive(Debug, Clone)]
pub(crate) struct PageNote {
    /// A word before the text; may be empty.
    pub(crate) lead: &'static str,
    pub(crate) text: String,
    /// `alarm`, `good`, or empty.
    pub(crate) class: &'static str,
}

impl ResultPosition {
    /// A result with a page of its own.
    pub(crate) fn standalone() -> Self {
        Self { prefix: String::new(), level: 2, picture_elsewhere: false }
    }

    /// One of several results in a page, below its own heading.
    pub(crate) fn nested(id: &str) -> Self {
        Self { prefix: format!("{id}-"), level: 3, picture_elsewhere: false }
    }

    /// The same position, with or without the picture of the path elsewhere in the page.
    pub(crate) fn without_picture(self, picture_elsewhere: bool) -> Self {
        Self { picture_elsewhere, ..self }
    }

    /// An id that is unique in the page.
    pub(crate) fn id(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl FigureTile {
    pub(crate) fn new(figure: impl Into<String>, unit: &'static str, label: impl Into<String>) -> Self {
        let label: String = label.into();
        Self { figure: figure.into(), unit, label: non_breaking(&label), class: "" }
    }

    pub(crate) fn of_class(self, class: &'static str) -> Self {
        Self { class, ..self }
    }
}

impl PageNote {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        let text: String = text.into();
        Self { lead: "", text: non_breaking(&text), class: "" }
    }

    pub(crate) fn alarm(lead: &'static str, text: impl Into<String>) -> Self {
        Self { lead, class: "alarm", ..Self::new(text) }
    }

    pub(crate) fn good(text: impl Into<String>) -> Self {
        Self { class: "good", ..Self::new(text) }
    }
}

impl PageHead {
    // The word for the verdict, because colour alone is not accessible.
    pub(crate) fn mark(tone: TextTone, words: impl Into<String>) -> Option<(&'static str, String)> {
        let class = match tone {
            TextTone::Good => "good",
            TextTone::Bad => "bad",
            TextTone::Warn => "warn",
            TextTone::Plain | TextTone::Strong | TextTone::Faint => "plain",
        };
        Some((class, words.into()))
    }
}

/// Text for a host or time that a document does not contain.
pub(crate) const NOT_RECORDED: &str = "not recorded";

/// A time for the head of a result.
pub(crate) fn time(unix_seconds: Option<u64>) -> String {
    unix_seconds.map_or_else(|| NOT_RECORDED.to_owned(), |seconds| non_breaking(&format::utc(seconds)))
}

// A host in words: its name, kernel and CPUs.
pub(crate) fn host(
    name: Option<&str>,
    kernel: Option<&str>,
    model: Option<&str>,
    cpus: Option<usize>,
) -> String {
    let cpus = cpus.map(|cpus| if cpus == 1 { "1 CPU".to_owned() } else { format!("{cpus} CPUs") });
    let parts = [
        name.map(str::to_owned),
        kernel.map(|kernel| format!("Linux {kernel}")),
        model.map(str::to_owned),
        cpus,
    ];
    let parts: Vec<String> = parts.into_iter().flatten().map(|part| non_breaking(&part)).collect();
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

/// The page of one result.
///
/// # Errors
///
/// The error of `part`; or a formatting error, which no result is known to cause.
pub(crate) fn single_result_page(part: impl FnOnce(&ResultPosition) -> Result<PageResult>) -> Result<String> {
    let PageResult { head, body } = part(&ResultPosition::standalone())?;
    let page = SingleResultPage {
        title: format!("{}: {}", head.title, head.verdict),
        version: &head.version,
        foot: &format!("schema {} · {}", head.schema, head.time),
        head: &head,
        body: &body,
    };
    page.render().context("the page cannot be formatted")
}

/// A result's body from its template.
///
/// # Errors
/// If formatting fails, which no result is known to cause.
pub(crate) fn part(head: PageHead, body: &impl Template) -> Result<PageResult> {
    Ok(PageResult { head, body: body.render().context("the page cannot be formatted")? })
}
