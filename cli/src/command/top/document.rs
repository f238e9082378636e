//! A picture as a document.

use linerate_host::live::Snapshot;
use linerate_host::live::picture::SCHEMA;
use serde::Serialize;

use crate::output;

/// What `--json` prints, and `--record` writes on each line.
#[derive(Serialize)]
pub(super) struct TopDocument<'a> {
    schema: &'static str,
    version: &'static str,
    argv: Vec<String>,
    #[serde(flatten)]
    picture: &'a Snapshot,
}

impl<'a> TopDocument<'a> {
    pub(super) fn new(picture: &'a Snapshot) -> Self {
        Self { schema: SCHEMA, version: env!("CARGO_PKG_VERSION"), argv: output::argv(), picture }
    }
}
