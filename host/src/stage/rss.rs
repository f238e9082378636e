//! Receive-side scaling: which queue a packet comes into.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{PacketPath, Stage, StageName};
use crate::counter::Counter;
use crate::finding::Rule;
use crate::{Host, Known};

/// The stage.
pub(super) const STAGE: Stage = Stage {
    name: StageName::Rss,
    explain: "The NIC hashes the addresses, and if told so the ports, of each packet, and looks up in its indirection \
              table which receive queue that hash belongs to. A queue that is not in the table gets nothing; a flow \
              never leaves its queue.",
    rules: RULES,
    counters,
};

const RULES: &[Rule] = &[];

/// Receive-side scaling of an interface.
#[derive(Debug, Clone, Serialize)]
pub struct Rss {
    /// The interface.
    pub interface: String,
    /// The queue of each entry of the indirection table (`ethtool -x`); none where the driver has no table.
    pub table: Known<Option<Vec<u32>>>,
    /// The hash function and key; none where the driver does not tell.
    pub hash: Known<Option<Hash>>,
    /// Which fields of a packet are hashed, by kind of packet: `udp4`, `udp6`, `tcp4`, `tcp6`; none where the driver does not tell.
    pub fields: Known<Option<BTreeMap<String, HashFields>>>,
    /// Rules that put flows into queues (`ethtool -n`); none where the driver has none.
    pub ntuple: Known<Option<Vec<NtupleRule>>>,
    /// What each receive queue took in, in the order of queues; none where no source tells.
    pub queues: Known<Option<Vec<QueueCounts>>>,
}

/// A hash function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hash {
    /// `toeplitz`, `xor`, `crc32`.
    pub function: String,
    /// Its key, in hexadecimal.
    #[serde(default)]
    pub key: String,
}

/// Fields of a packet that go into the hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HashFields {
    /// Source address.
    pub source_address: bool,
    /// Destination address.
    pub destination_address: bool,
    /// Source port (bytes 0 and 1 of the header of layer 4).
    pub source_port: bool,
    /// Destination port (bytes 2 and 3).
    pub destination_port: bool,
}

/// A rule that puts flows into a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NtupleRule {
    /// Its place in the driver's table.
    pub location: u32,
    /// Kind of flow: `udp4`, `ether`, ...
    pub flow: String,
    /// The queue; none where it drops or uses an RSS context.
    pub queue: Option<u32>,
    /// The destination port it asks for; none where it takes any.
    #[serde(default)]
    pub destination_port: Option<u16>,
}

/// What a receive queue took in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueCounts {
    /// The queue.
    pub queue: u32,
    /// Packets.
    pub packets: u64,
    /// Bytes; none where the source does not tell.
    pub bytes: Option<u64>,
    /// Packets lost for want of buffers or descriptors; none where the source does not tell.
    pub drops: Option<u64>,
    /// The counter's place: `qstats-get` of the netdev family, or the driver's name for it.
    pub read_from: String,
}

impl Rss {
    /// Reads the interface.
    #[must_use]
    pub fn observe(_host: &Host, interface: &str) -> Self {
        let not_yet = || Known::unknown("not read yet");
        Self {
            interface: interface.to_owned(),
            table: not_yet(),
            hash: Known::unknown("not read yet"),
            fields: Known::unknown("not read yet"),
            ntuple: Known::unknown("not read yet"),
            queues: Known::unknown("not read yet"),
        }
    }
}

fn counters(_path: &PacketPath) -> Vec<Counter> {
    Vec::new()
}
