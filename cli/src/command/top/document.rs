//! A picture as a document.

use linerate_host::live::Picture;
use linerate_host::live::picture::SCHEMA;
use serde::Serialize;

use crate::output;

/// What `--json` prints, and `--record` writes on each line.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    schema: &'static str,
    version: &'static str,
    argv: Vec<String>,
    #[serde(flatten)]
    picture: &'a Picture,
}

impl<'a> Document<'a> {
    pub(super) fn new(picture: &'a Picture) -> Self {
        Self { schema: SCHEMA, version: env!("CARGO_PKG_VERSION"), argv: output::argv(), picture }
    }
}
