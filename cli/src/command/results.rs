//! Further outputs of a command's result: files next to the text.

use anyhow::{Result, ensure};
use clap::Args;

use crate::document::Document;
use crate::envelope::{CommandResult, Envelope};
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
pub(crate) fn write_result<T: CommandResult>(
    json: Option<&OutputTarget>,
    envelope: &Envelope<T>,
    document: impl FnOnce() -> Document,
) -> Result<()> {
    if let Some(target) = json {
        target.write_json(envelope)?;
    }
    if json == Some(&OutputTarget::Stdout) {
        return Ok(());
    }
    output::print(&text::text(&document(), TextStyle::stdout()))
}

impl ResultArgs {
    /// The requested outputs, checked before the work.
    pub(crate) fn targets(&self) -> Result<ResultTargets> {
        let json = OutputTarget::from_option(self.json.as_deref())?;
        let html = OutputTarget::from_option(self.html.as_deref())?;
        let on_stdout =
            [&json, &html].into_iter().flatten().filter(|target| **target == OutputTarget::Stdout).count();
        ensure!(on_stdout <= 1, "--json and --html cannot share standard output; give one of them a file");
        Ok(ResultTargets { json, html, text: on_stdout == 0 })
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
        if let Some(target) = &self.json {
            if T::IS_COMPACT { target.write_compact_json(envelope)? } else { target.write_json(envelope)? }
        }
        if self.html.is_none() && !self.text {
            return Ok(());
        }
        let document = Document { full, ..envelope.document() };
        if let Some(target) = &self.html {
            target.write(&html::page(&document)?)?;
        }
        if self.text {
            output::print(&text::text(&document, TextStyle::stdout()))?;
        }
        Ok(())
    }
}
