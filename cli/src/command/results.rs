//! Further outputs of a command's result: files next to the text.

use anyhow::Result;
use clap::Args;
use linerate_host::Host;

use crate::document::Document;
use crate::envelope::{CommandResult, Envelope};
use crate::origin::{self, HostSummary};
use crate::output::{self, OutputTarget};
use crate::render::style::TextStyle;
use crate::render::{html, text};

/// Options that commands with a report have in common.
#[derive(Debug, Args)]
pub(crate) struct ResultArgs {
    /// Write the result as JSON; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    json: Option<String>,
    /// Write the result as an HTML page; - is standard output
    #[arg(long, value_name = "FILE")]
    html: Option<String>,
}

/// The requested outputs of a result.
#[derive(Debug)]
pub(crate) struct ResultTargets {
    pub(crate) json: Option<OutputTarget>,
    pub(crate) html: Option<OutputTarget>,
    /// Whether standard output is left for text.
    pub(crate) text: bool,
}

/// Writes a result as JSON if that is requested, and as text unless the JSON is on standard output.
/// A file that cannot be written must not cost the text.
pub(crate) fn write_result<T: CommandResult>(
    json: Option<&OutputTarget>,
    envelope: &Envelope<T>,
    document: impl FnOnce() -> Document,
) -> Result<()> {
    let printed = match json {
        Some(OutputTarget::Stdout) => Ok(()),
        _ => output::print(&text::text(&document(), TextStyle::stdout())),
    };
    printed.and(json.map_or(Ok(()), |target| target.write_json(envelope)))
}

/// Writes a state of this host, read just now, as [`write_result`] does.
pub(crate) fn write_state<T: CommandResult>(
    json: Option<&OutputTarget>,
    host: &Host,
    result: T,
    document: impl FnOnce(&Envelope<T>) -> Document,
) -> Result<()> {
    let envelope = Envelope::new(HostSummary::observe(host), origin::unix_seconds(), result);
    write_result(json, &envelope, || document(&envelope))
}

impl ResultArgs {
    /// The requested outputs, checked before the work.
    pub(crate) fn targets(&self) -> Result<ResultTargets> {
        let json = OutputTarget::from_option(self.json.as_deref())?;
        let html = OutputTarget::from_option(self.html.as_deref())?;
        output::check_distinct(&self.named())?;
        let text = ![&json, &html].contains(&&Some(OutputTarget::Stdout));
        Ok(ResultTargets { json, html, text })
    }

    /// The options with their outputs.
    pub(crate) fn named(&self) -> [(&'static str, Option<&str>); 2] {
        [("--json", self.json.as_deref()), ("--html", self.html.as_deref())]
    }
}

impl ResultTargets {
    /// Writes a result in every requested form.
    pub(crate) fn write<T: CommandResult>(&self, envelope: &Envelope<T>) -> Result<()> {
        self.write_with_detail(envelope, false)
    }

    /// As [`write`](Self::write), with everything in the text if `full`.
    pub(crate) fn write_with_detail<T: CommandResult>(
        &self,
        envelope: &Envelope<T>,
        full: bool,
    ) -> Result<()> {
        let json = |target: &OutputTarget| {
            if T::IS_COMPACT { target.write_compact_json(envelope) } else { target.write_json(envelope) }
        };
        if self.html.is_none() && !self.text {
            return self.json.as_ref().map_or(Ok(()), json);
        }
        let document = Document { full, ..envelope.document() };
        self.write_forms(
            || text::text(&document, TextStyle::stdout()),
            json,
            |target| target.write(&html::page(&document)?),
        )
    }

    /// Writes the requested forms. The text comes first, and a form that cannot be written does not
    /// cost another.
    pub(crate) fn write_forms(
        &self,
        text: impl FnOnce() -> String,
        json: impl FnOnce(&OutputTarget) -> Result<()>,
        html: impl FnOnce(&OutputTarget) -> Result<()>,
    ) -> Result<()> {
        let printed = self.text.then(|| output::print(&text()));
        let files = [self.json.as_ref().map(json), self.html.as_ref().map(html)];
        printed.into_iter().chain(files.into_iter().flatten()).collect()
    }
}
