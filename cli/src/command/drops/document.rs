//! What `--json` has of a ledger.

use linerate_trace::drops::PacketAccounting;
use serde::{Deserialize, Serialize};

use super::generator::LoadFile;
use super::meanwhile::EndedCommand;
use crate::origin;
use crate::output;
use crate::render::drops_verdict;

/// The schema of `--json`.
pub(crate) const SCHEMA: &str = "linerate.drops/1";

/// What became of packets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DropsDocument {
    pub(crate) schema: String,
    pub(crate) version: String,
    pub(crate) argv: Vec<String>,
    /// When counting began; null where the clock does not say.
    #[serde(default)]
    pub(crate) started_unix_seconds: Option<u64>,
    /// What the host calls itself.
    #[serde(default)]
    pub(crate) host: Option<String>,
    /// The file that the generator's side is from; null without.
    pub(crate) load: Option<String>,
    /// The command it was counted for; null without.
    pub(crate) command: Option<EndedCommand>,
    /// Nothing is unaccounted for.
    pub(crate) balanced: bool,
    /// Nothing was lost, either.
    pub(crate) clean: bool,
    #[serde(flatten)]
    pub(crate) ledger: PacketAccounting,
}

impl DropsDocument {
    /// A ledger begun at this time.
    pub(crate) fn new(
        started_unix_seconds: Option<u64>,
        ledger: PacketAccounting,
        load: Option<&LoadFile>,
        command: Option<&EndedCommand>,
    ) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            argv: output::argv(),
            started_unix_seconds,
            host: origin::host_name(),
            load: load.map(|load| load.name().to_owned()),
            command: command.cloned(),
            balanced: ledger.is_balanced(),
            clean: drops_verdict::is_clean(&ledger),
            ledger,
        }
    }
}
