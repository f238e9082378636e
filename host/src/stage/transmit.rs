//! Transmit queues and qdiscs.

mod counters;
mod observe;
mod rules;

use serde::{Deserialize, Serialize};

use super::{StageInfo, StageName};
use crate::{CpuSet, Known};

pub(crate) use observe::any_file;

pub(super) const STAGE: StageInfo = StageInfo {
    name: StageName::Transmit,
    explain: "A packet leaves by a transmit queue, through that queue's qdisc and under its lock. XPS \
              chooses the queue by CPU, so that each CPU has its own; without XPS the flow's hash chooses, \
              and CPUs wait at locks.",
    rules: rules::RULES,
    counters: counters::counters,
};

#[derive(Debug, Clone, Serialize)]
pub struct TransmitState {
    pub interface: String,
    pub queues: Known<Vec<TransmitQueueState>>,
    pub disciplines: Known<Vec<QdiscState>>,
}

#[derive(Debug, Clone, Serialize)]
pub struct TransmitQueueState {
    pub queue: u32,
    /// XPS; empty if off, `None` if the interface has no XPS.
    pub xps_cpus: Known<Option<CpuSet>>,
    /// XPS by receive queue (Linux 4.18), as a mask; `None` if the interface has no XPS.
    pub xps_receive_queues: Known<Option<CpuSet>>,
    /// Times the watchdog found it stuck.
    pub timeouts: Known<u64>,
    /// BQL limit; `None` without BQL.
    pub limit_bytes: Known<Option<u64>>,
    /// `None` without a source.
    pub packets: Known<Option<u64>>,
    /// `None` without a source.
    pub packets_read_from: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QdiscState {
    /// `mq`, `fq_codel`, `pfifo_fast`, `noqueue`, ...
    pub kind: String,
    /// As tc prints it, such as `8001:`; `0:` for a default qdisc.
    #[serde(default)]
    pub handle: String,
    /// As tc names them; `None` if they could not be restored, as those of classful kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<String>,
    /// `root`, `ingress`, or the parent's handle as tc prints it, such as `:3`.
    pub parent: String,
    pub packets: u64,
    pub drops: u64,
    pub requeues: u64,
    pub backlog: u64,
}

impl TransmitState {
    /// Empty if unknown.
    pub fn queues(&self) -> &[TransmitQueueState] {
        self.queues.value().map_or(&[], Vec::as_slice)
    }

    /// The root qdisc, whose counters include those below; `None` if unknown.
    pub fn root(&self) -> Option<&QdiscState> {
        self.disciplines.value()?.iter().find(|discipline| discipline.parent == "root")
    }
}
