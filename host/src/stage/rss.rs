//! Receive-side scaling: the distribution of packets over receive queues.

mod observe;
mod queue_counts;
mod queue_names;
pub(super) mod rules;
#[cfg(test)]
pub(crate) mod sample;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Known;

pub use crate::ethtool::{HashFields, HashFunction, IndirectionInfo, NtupleRule};
pub use queue_counts::QueueCounts;
pub(crate) use queue_counts::{parse_counter_name, queue_counts};

#[derive(Debug, Clone, Serialize)]
pub struct RssState {
    pub interface: String,
    /// The queue of each entry of the indirection table (`ethtool -x`); `None` if the driver has no
    /// table.
    pub table: Known<Option<Vec<u32>>>,
    /// Number of queues that the driver allows in the table; `None` if it does not report it.
    pub table_queues: Known<Option<u32>>,
    /// `None` if the driver does not report it.
    pub hash: Known<Option<HashFunction>>,
    /// Hashed fields by flow type: `udp4`, `udp6`, `tcp4`, `tcp6`; `None` if the driver does not
    /// report them.
    pub fields: Known<Option<BTreeMap<String, HashFields>>>,
    /// Rules that direct flows to queues (`ethtool -n`); `None` if the driver has none.
    pub ntuple: Known<Option<Vec<NtupleRule>>>,
    /// Counters of receive queues; `None` without a source.
    pub queues: Known<Option<Vec<QueueCounts>>>,
}

impl RssState {
    pub fn entries(&self) -> Option<&[u32]> {
        self.table.value()?.as_deref()
    }

    pub fn counts(&self) -> Option<&[QueueCounts]> {
        self.queues.value()?.as_deref()
    }

    pub fn rules(&self) -> Option<&[NtupleRule]> {
        self.ntuple.value().map(|rules| rules.as_deref().unwrap_or_default())
    }
}
