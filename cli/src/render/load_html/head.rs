//! What stands above each kind of result of load.

use linerate_load::GeneratorDescription;
use linerate_load::load_document::LoadDocument;

use super::super::page::{self, PageHead};
use super::super::style::non_breaking;
use super::super::{format, load_text};
use crate::command::load::overload::OverloadDocument;
use crate::command::load::ramp::RampDocument;

/// What a document of load says of itself.
pub(super) trait LoadPageHead {
    /// Its schema, the version of the program that made it, and how that was called.
    fn made_by(&self) -> (&str, &str, &[String]);
    /// What offered the load.
    fn generator(&self) -> &GeneratorDescription;
    /// What kind of result it is.
    fn title(&self) -> &'static str;
    /// The host that offered the load, where the document says.
    fn host(&self) -> Option<&str>;
}

/// What stands above it.
pub(super) fn head(document: &impl LoadPageHead, verdict: &str, started: Option<u64>) -> PageHead {
    let (schema, version, argv) = document.made_by();
    PageHead {
        schema: schema.to_owned(),
        version: version.to_owned(),
        title: document.title(),
        verdict: non_breaking(verdict),
        mark: None,
        host: page::host(document.host(), None, None, None),
        time: page::time(started),
        unix_seconds: started,
        about: non_breaking(&load_text::generator_text(document.generator())),
        command: format::command_line(argv),
    }
}

impl LoadPageHead for LoadDocument {
    fn made_by(&self) -> (&str, &str, &[String]) {
        (&self.schema, &self.version, &self.argv)
    }

    fn generator(&self) -> &GeneratorDescription {
        &self.generator
    }

    fn title(&self) -> &'static str {
        "Load"
    }

    fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }
}

impl LoadPageHead for RampDocument {
    fn made_by(&self) -> (&str, &str, &[String]) {
        (&self.schema, &self.version, &self.argv)
    }

    fn generator(&self) -> &GeneratorDescription {
        &self.generator
    }

    fn title(&self) -> &'static str {
        "Load, rate by rate"
    }

    fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }
}

impl LoadPageHead for OverloadDocument {
    fn made_by(&self) -> (&str, &str, &[String]) {
        (&self.schema, &self.version, &self.argv)
    }

    fn generator(&self) -> &GeneratorDescription {
        &self.generator
    }

    fn title(&self) -> &'static str {
        "Load above capacity"
    }

    fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }
}
