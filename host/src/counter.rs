//! Counters of a stage: packets in, packets out, and losses by reason.

use serde::Serialize;

use crate::stage::name::StageName;

/// A counter that only grows while its source exists, read once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Counter {
    pub stage: StageName,
    /// `ens1f0`, `ens1f0 rx-3`, `cpu 2`, `socket 0.0.0.0:53 ino 812`.
    pub place: String,
    /// As at the source, such as `rx_missed_errors`.
    pub name: String,
    pub counts: CountedUnit,
    /// Since the source started.
    pub value: u64,
    /// The file or the system call.
    pub read_from: String,
}

impl Counter {
    pub(crate) fn new(
        stage: StageName,
        place: impl Into<String>,
        name: impl Into<String>,
        counts: CountedUnit,
        value: u64,
        read_from: impl Into<String>,
    ) -> Self {
        Self { stage, place: place.into(), name: name.into(), counts, value, read_from: read_from.into() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CountedUnit {
    PacketsIn,
    PacketsOut,
    PacketsLost,
    BytesIn,
    BytesOut,
    /// For example a squeeze.
    Events,
    /// In ticks of `USER_HZ`.
    Ticks,
}
