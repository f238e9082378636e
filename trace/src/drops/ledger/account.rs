//! What the generator says of its side.

use serde::{Deserialize, Serialize};

/// What a generator of load says that it sent and got, over the time of the ledger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GeneratorSaid {
    /// Requests it sent, all of them, once each.
    pub sent: u64,
    /// Requests that were answered in time.
    pub answered: u64,
    /// Requests that were not; `answered` and this are `sent`.
    pub lost: u64,
    /// Replies that came when their request was given up. Their requests are in `lost`.
    pub late: u64,
    /// Replies to requests that had been answered.
    pub duplicate: u64,
    /// Replies that matched no request or were damaged.
    pub foreign: u64,
}

impl GeneratorSaid {
    /// Replies that came, wanted or not.
    #[must_use]
    pub fn received(&self) -> u64 {
        [self.late, self.duplicate, self.foreign]
            .iter()
            .fold(self.answered, |sum, more| sum.saturating_add(*more))
    }
}
