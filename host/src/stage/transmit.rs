//! The way out: which transmit queue a packet leaves by, and what holds it up there.

mod counters;
mod observe;
mod rules;

use serde::{Deserialize, Serialize};

use super::{StageInfo, StageName};
use crate::{CpuSet, Known};

pub(crate) use observe::any_file;

/// The stage.
pub(super) const STAGE: StageInfo = StageInfo {
    name: StageName::Transmit,
    explain: "A packet leaves by a transmit queue, through that queue's discipline and under its lock. XPS chooses the \
              queue by CPU, so that each CPU has its own; without it the flow's hash chooses, and CPUs meet at locks.",
    rules: rules::RULES,
    counters: counters::counters,
};

/// The transmit side of an interface.
#[derive(Debug, Clone, Serialize)]
pub struct TransmitState {
    /// The interface.
    pub interface: String,
    /// Its transmit queues, in order.
    pub queues: Known<Vec<TransmitQueueState>>,
    /// Its queueing disciplines.
    pub disciplines: Known<Vec<QdiscState>>,
}

/// A transmit queue.
#[derive(Debug, Clone, Serialize)]
pub struct TransmitQueueState {
    /// The queue.
    pub queue: u32,
    /// CPUs whose packets leave by it (XPS); empty where XPS is off; none where the interface has no XPS.
    pub xps_cpus: Known<Option<CpuSet>>,
    /// Receive queues whose packets' answers leave by it (XPS, Linux 4.18), in the kernel's mask; none where the interface has no XPS.
    pub xps_receive_queues: Known<Option<CpuSet>>,
    /// Times the watchdog found it stuck.
    pub timeouts: Known<u64>,
    /// Bytes that byte queue limits let it hold; none without BQL.
    pub limit_bytes: Known<Option<u64>>,
    /// Packets it sent; none where no source tells.
    pub packets: Known<Option<u64>>,
    /// Where those are counted; none where no source tells.
    pub packets_read_from: Option<String>,
}

/// A queueing discipline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QdiscState {
    /// `mq`, `fq_codel`, `pfifo_fast`, `noqueue`, ...
    pub kind: String,
    /// Its handle as tc prints it, such as `8001:`; `0:` where the kernel made it by itself.
    #[serde(default)]
    pub handle: String,
    /// Its parameters as tc names them; none where they could not be put back, as those of a kind that holds others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<String>,
    /// `root`, `ingress`, or the parent's handle as tc prints it, such as `:3`.
    pub parent: String,
    /// Packets sent.
    pub packets: u64,
    /// Packets lost.
    pub drops: u64,
    /// Packets that had to be queued again because the driver was busy.
    pub requeues: u64,
    /// Packets that wait.
    pub backlog: u64,
}

impl TransmitState {
    /// Its transmit queues, empty where they are unknown.
    #[must_use]
    pub fn queues(&self) -> &[TransmitQueueState] {
        self.queues.value().map_or(&[], Vec::as_slice)
    }

    /// The discipline at its root, which counts what all those below it count; none where it is unknown.
    #[must_use]
    pub fn root(&self) -> Option<&QdiscState> {
        self.disciplines.value()?.iter().find(|discipline| discipline.parent == "root")
    }
}
