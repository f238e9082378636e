//! Transmit queues and qdiscs.

mod observe;
pub(super) mod rules;

use serde::Serialize;

use crate::{CpuSet, Known};

pub use crate::netlink::qdisc::QdiscState;

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

impl TransmitState {
    /// Empty if unknown.
    pub fn queues(&self) -> &[TransmitQueueState] {
        self.queues.value().map_or(&[], Vec::as_slice)
    }

    /// The root qdisc, whose counters include those of its children; `None` if unknown.
    pub fn root(&self) -> Option<&QdiscState> {
        self.disciplines.value()?.iter().find(|discipline| discipline.parent == "root")
    }
}
