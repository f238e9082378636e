//! The generator's counts.

use serde::{Deserialize, Serialize};

/// Counts of a load generator over the time of the ledger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GeneratorSaid {
    /// Each counted once.
    pub sent: u64,
    /// In time.
    pub answered: u64,
    /// `sent` is this plus `answered`.
    pub lost: u64,
    /// Replies after their request was given up. The requests are in `lost`.
    pub late: u64,
    /// Replies to requests that had been answered.
    pub duplicate: u64,
    /// Replies that matched no request or were damaged.
    pub unsolicited: u64,
}

impl GeneratorSaid {
    /// All replies.
    pub fn received(&self) -> u64 {
        [self.late, self.duplicate, self.unsolicited]
            .iter()
            .fold(self.answered, |sum, count| sum.saturating_add(*count))
    }
}
