//! The result of counting packets for a time or for a command.

use serde::{Deserialize, Serialize};

use super::ledger::{AccountingPath, PacketAccounting};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DropsResult {
    /// The file with the generator's counts.
    pub load: Option<String>,
    /// The command that ran while packets were counted.
    pub command: Option<CountedCommand>,
    /// No packet is unaccounted for.
    pub balanced: bool,
    /// No packet was lost or is unaccounted for.
    pub clean: bool,
    #[serde(flatten)]
    pub accounting: PacketAccounting,
    /// Whether text lists the stages without losses, too.
    #[serde(skip)]
    pub full: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CountedCommand {
    pub argv: Vec<String>,
    /// Exit status; `None` if a signal ended it.
    pub status: Option<i32>,
    /// Whether it was ended because the counting ended.
    pub interrupted: bool,
}

impl DropsResult {
    #[must_use]
    pub fn new(accounting: PacketAccounting) -> Self {
        Self {
            load: None,
            command: None,
            balanced: accounting.is_balanced(),
            clean: accounting.is_clean(),
            accounting,
            full: false,
        }
    }
}

impl PacketAccounting {
    /// Whether no packet was lost or is unaccounted for.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let has_losses = |path: &AccountingPath| path.losses().any(|(_, loss)| loss.packets > 0);
        let has_unseen_drops = self.sampled.is_some_and(|sampled| sampled.socket_drops_packets > 0);
        !has_unseen_drops
            && self.is_balanced()
            && !self.ways().any(has_losses)
            && self.elsewhere.iter().all(|loss| loss.packets == 0)
    }
}
