//! The ledger: what came into each stage, what left it, and what was lost in between, by name.

mod account;
mod checks;
mod device;
mod divide;
mod entry;
mod evidence;
mod fallen;
mod gaps;
mod make;
mod unseen;
mod way;

use linerate_host::Known;
use serde::{Deserialize, Serialize};

use super::seen::TraceOverhead;

pub use account::GeneratorSaid;
pub use entry::{LossExactness, PathStep, StageEntry, StageLoss};
pub use evidence::{CounterUse, GrownCounter, PacketEvidence, QueuedPackets, SampledTime};

/// What became of packets over a time, of one network namespace.
///
/// An entry's `packets_in` less its losses, what was cut off and what waits is its `packets_out`; where the packets that
/// were really seen to leave it are fewer or more, the difference is `unaccounted`. A packet is in one loss at most.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PacketAccounting {
    /// Whose packets: a line for a person.
    pub subject: String,
    /// For how long they were counted, s.
    pub seconds: f64,
    /// The way in: requests to the ports, or all that is received where no port was named.
    pub requests: AccountingPath,
    /// The way out: replies from the ports, or all that is sent.
    pub replies: AccountingPath,
    /// Packets that came by a device and left by another: from where they left the way in to where they left this host.
    /// Without stages where none were.
    #[serde(default)]
    pub forwarded: AccountingPath,
    /// What counting took from the CPUs.
    #[serde(default)]
    pub overhead: Known<TraceOverhead>,
    /// If only parts of the time were counted; `seconds` and all packets are of these parts.
    #[serde(default)]
    pub sampled: Option<SampledTime>,
    /// Losses that were not on either way: of packets that could not be read, or that were only passing through.
    pub elsewhere: Vec<StageLoss>,
    /// What a reader should know, one line each: counters that disagree, tracepoints the kernel lacks.
    pub notes: Vec<String>,
}

/// One direction, as a packet travels it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AccountingPath {
    /// The stages in a packet's order.
    pub stages: Vec<StageEntry>,
}

impl PacketAccounting {
    /// Packets that were lost by name, on both ways; see [`StageEntry::lost`].
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.ways().map(AccountingPath::lost).fold(0, u64::saturating_add)
    }

    /// Whether nothing is unaccounted for on either way, in any stage where both sides are known.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        self.ways().all(AccountingPath::is_balanced)
    }

    /// All ways: of requests, replies and what is forwarded.
    pub fn ways(&self) -> impl Iterator<Item = &AccountingPath> {
        [&self.requests, &self.replies, &self.forwarded].into_iter()
    }
}

impl AccountingPath {
    /// Packets lost by name; see [`StageEntry::lost`].
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.stages.iter().map(StageEntry::lost).fold(0, u64::saturating_add)
    }

    /// What is unaccounted for in each stage where that is known, without sign, added up.
    #[must_use]
    pub fn unaccounted(&self) -> u64 {
        let known = self.stages.iter().filter_map(|entry| entry.unaccounted.value());
        known.map(|packets| packets.unsigned_abs()).fold(0, u64::saturating_add)
    }

    /// Whether nothing is unaccounted for, where that is known.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        self.unaccounted() == 0
    }

    /// What came in: into the first stage where that is known, and what was lost for certain before.
    #[must_use]
    pub fn packets_in(&self) -> Option<u64> {
        let known = self.stages.iter().position(|entry| entry.packets_in.value().is_some())?;
        let lost = self.stages[..known].iter().map(StageEntry::lost).fold(0, u64::saturating_add);
        self.stages[known].packets_in.value().map(|packets| packets.saturating_add(lost))
    }

    /// What left by another device.
    #[must_use]
    pub fn forwarded(&self) -> u64 {
        self.stages.iter().map(|entry| entry.forwarded).fold(0, u64::saturating_add)
    }

    /// What left the last stage where that is known.
    #[must_use]
    pub fn packets_out(&self) -> Option<u64> {
        self.stages.iter().rev().find_map(|entry| entry.packets_out.value().copied())
    }

    /// The line of a stage.
    #[must_use]
    pub fn entry(&self, step: PathStep) -> Option<&StageEntry> {
        self.stages.iter().find(|entry| entry.stage == step)
    }

    /// All losses with the stage where they were.
    pub fn losses(&self) -> impl Iterator<Item = (PathStep, &StageLoss)> {
        self.stages.iter().flat_map(|entry| entry.losses.iter().map(move |loss| (entry.stage, loss)))
    }
}

#[cfg(test)]
mod tests;
