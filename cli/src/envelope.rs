//! The JSON document around every result, for writing and for reading.

use std::fs;
use std::path::Path;

use anyhow::{Context, Error, Result, bail};
use linerate_host::Host;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::document::Document;
use crate::origin::{self, HostSummary, Origin, Warning};
use crate::output;

/// A result that commands write as JSON, text and HTML, and that `report` reads.
pub(crate) trait CommandResult: Serialize + DeserializeOwned {
    /// `linerate.NAME/VERSION`.
    const SCHEMA: &'static str;
    // Whether the JSON is one line, because it has long lists of numbers.
    const IS_COMPACT: bool = false;

    /// The result as people read it.
    fn document(envelope: &Envelope<Self>) -> Document;

    /// # Errors
    /// If a result that was read contradicts itself.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A result with where it is from. Its keys come first in the JSON document, the result's own are below `result`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Envelope<T> {
    pub(crate) schema: String,
    /// Version of the program that made the result.
    pub(crate) version: String,
    pub(crate) argv: Vec<String>,
    /// When the command started to measure or read; `None` if unknown.
    pub(crate) started_unix_seconds: Option<u64>,
    pub(crate) host: HostSummary,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) result: T,
}

impl<T> Envelope<T> {
    /// A result of this run of the program.
    pub(crate) fn with_schema(
        schema: &'static str,
        host: HostSummary,
        started_unix_seconds: Option<u64>,
        result: T,
    ) -> Self {
        Self {
            schema: schema.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            argv: output::argv(),
            started_unix_seconds,
            host,
            warnings: Vec::new(),
            result,
        }
    }

    /// A state of this host, read just now.
    pub(crate) fn of_now(schema: &'static str, result: T) -> Self {
        Self::with_schema(schema, HostSummary::observe(&Host::live()), origin::unix_seconds(), result)
    }

    pub(crate) fn with_warnings(mut self, warnings: impl IntoIterator<Item = Warning>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    /// A document with a verdict, and with the warnings as notes.
    pub(crate) fn new_document(&self, title: &'static str, verdict: impl Into<String>) -> Document {
        Document::new(title, verdict, self.origin(), &self.warnings)
    }

    pub(crate) fn origin(&self) -> Origin {
        Origin {
            schema: self.schema.clone(),
            version: self.version.clone(),
            argv: self.argv.clone(),
            started_unix_seconds: self.started_unix_seconds,
            host: self.host.clone(),
        }
    }
}

impl<T: CommandResult> Envelope<T> {
    /// A result of this run of the program.
    pub(crate) fn new(host: HostSummary, started_unix_seconds: Option<u64>, result: T) -> Self {
        Self::with_schema(T::SCHEMA, host, started_unix_seconds, result)
    }

    /// The result as people read it.
    pub(crate) fn document(&self) -> Document {
        T::document(self)
    }

    /// Parses a document that a command wrote with `--json`.
    ///
    /// # Errors
    /// If the text is no JSON, a document of another schema or version, or contradicts itself.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let value: Value =
            serde_json::from_str(text).with_context(|| format!("it is no {} document", T::SCHEMA))?;
        match value.get("schema").and_then(Value::as_str) {
            Some(schema) if schema == T::SCHEMA => {}
            Some(schema) => bail!("its schema is {schema}; {} is required", T::SCHEMA),
            None => bail!("it names no schema; {} is required", T::SCHEMA),
        }
        // Not from `value`, because parsing the text directly is most exact for numbers and map
        // keys.
        let envelope: Self = serde_json::from_str(text)?;
        envelope.result.check().map_err(Error::msg)?;
        Ok(envelope)
    }

    /// Reads a file that a command wrote with `--json`.
    ///
    /// # Errors
    /// As [`Envelope::parse`], or if the file cannot be read. The error names the file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let path_text = || path.display().to_string();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path_text()))?;
        Self::parse(&text).with_context(path_text)
    }
}
