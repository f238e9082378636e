//! The ledger: packets into and out of each stage, and losses by name.

mod account;
mod checks;
mod device;
mod direction_balance;
mod divide;
mod entry;
mod evidence;
mod gaps;
mod ignored_packets;
mod loss_placement;
mod make;
mod untraced_packets;

use linerate_host::Known;
use serde::{Deserialize, Serialize};

use super::packet_counts::TraceOverhead;

pub use account::GeneratorSaid;
pub use entry::{LossExactness, PathStep, StageEntry, StageLoss};
pub use evidence::{CounterUse, GrownCounter, PacketEvidence, QueuedPackets, SampledTime};

/// Packets of one network namespace over a time.
///
/// An entry's `packets_in` minus losses, truncated and waiting packets is its expected
/// `packets_out`; the difference to the packets seen leaving is `unaccounted`. A packet is in at
/// most one loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PacketAccounting {
    /// For people, one line.
    pub subject: String,
    pub seconds: f64,
    /// Receive: requests to the ports, or everything received if no port was named.
    pub requests: AccountingPath,
    /// Transmit: replies from the ports, or everything sent.
    pub replies: AccountingPath,
    /// Packets that arrived by a device and left by another: from where they left the receive path
    /// to where they left this host. Without stages if there were none.
    #[serde(default)]
    pub forwarded: AccountingPath,
    /// CPU time of counting.
    #[serde(default)]
    pub overhead: Known<TraceOverhead>,
    /// If only parts of the time were counted; `seconds` and all packets are of these parts.
    #[serde(default)]
    pub sampled: Option<SampledTime>,
    /// Losses on neither path: of packets that could not be decoded, or were forwarded.
    pub elsewhere: Vec<StageLoss>,
    /// Notes for the reader, one line each: counters that disagree, tracepoints the kernel lacks.
    pub notes: Vec<String>,
}

/// One direction, in packet order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AccountingPath {
    pub stages: Vec<StageEntry>,
}

impl PacketAccounting {
    /// Losses by name on both paths; see [`StageEntry::lost`].
    pub fn lost(&self) -> u64 {
        self.ways().map(AccountingPath::lost).fold(0, u64::saturating_add)
    }

    /// Whether nothing is unaccounted for on either path, in any stage with both sides known.
    pub fn is_balanced(&self) -> bool {
        self.ways().all(AccountingPath::is_balanced)
    }

    /// Requests, replies and forwarded packets.
    pub fn ways(&self) -> impl Iterator<Item = &AccountingPath> {
        [&self.requests, &self.replies, &self.forwarded].into_iter()
    }
}

impl AccountingPath {
    /// Losses by name; see [`StageEntry::lost`].
    pub fn lost(&self) -> u64 {
        self.stages.iter().map(StageEntry::lost).fold(0, u64::saturating_add)
    }

    /// The sum over stages of the absolute unaccounted packets, where known.
    pub fn unaccounted(&self) -> u64 {
        let known_packets = self.stages.iter().filter_map(|entry| entry.unaccounted.value());
        known_packets.map(|packets| packets.unsigned_abs()).fold(0, u64::saturating_add)
    }

    /// Whether nothing is unaccounted for, where known.
    pub fn is_balanced(&self) -> bool {
        self.unaccounted() == 0
    }

    /// Packets into the first stage with a known number, plus certain losses in earlier stages.
    pub fn packets_in(&self) -> Option<u64> {
        let first_known = self.stages.iter().position(|entry| entry.packets_in.value().is_some())?;
        let lost_packets =
            self.stages[..first_known].iter().map(StageEntry::lost).fold(0, u64::saturating_add);
        self.stages[first_known].packets_in.value().map(|packets| packets.saturating_add(lost_packets))
    }

    /// Packets that left by another device.
    pub fn forwarded(&self) -> u64 {
        self.stages.iter().map(|entry| entry.forwarded).fold(0, u64::saturating_add)
    }

    /// Packets out of the last stage with a known number.
    pub fn packets_out(&self) -> Option<u64> {
        self.stages.iter().rev().find_map(|entry| entry.packets_out.value().copied())
    }

    pub fn entry(&self, step: PathStep) -> Option<&StageEntry> {
        self.stages.iter().find(|entry| entry.stage == step)
    }

    /// With their stage.
    pub fn losses(&self) -> impl Iterator<Item = (PathStep, &StageLoss)> {
        self.stages.iter().flat_map(|entry| entry.losses.iter().map(move |loss| (entry.stage, loss)))
    }
}

#[cfg(test)]
mod tests;
