//! What a stage counts: packets in, out, and lost by named reason.

use serde::Serialize;

use crate::stage::StageName;

/// A counter that only grows while its source lives, read once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Counter {
    /// The stage that counts.
    pub stage: StageName,
    /// Where in the stage: `ens1f0`, `ens1f0 rx-3`, `cpu 2`, `socket 0.0.0.0:53 ino 812`.
    pub place: String,
    /// The counter's name at its source, such as `rx_missed_errors`.
    pub name: String,
    /// What it counts.
    pub counts: CountedUnit,
    /// Its value since its source began.
    pub value: u64,
    /// The file, or the call to the kernel.
    pub read_from: String,
}

/// What a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CountedUnit {
    /// Packets that came into the stage.
    PacketsIn,
    /// Packets that the stage passed on.
    PacketsOut,
    /// Packets that ended here.
    PacketsLost,
    /// Bytes that came in.
    BytesIn,
    /// Bytes passed on.
    BytesOut,
    /// Something that happened, such as a squeeze.
    Events,
    /// Time, in ticks of `USER_HZ`.
    Ticks,
}
