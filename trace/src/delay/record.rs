//! One request and its stages.

use serde::{Deserialize, Serialize};

/// Moments of a request; stages lie between them.
pub(super) const POINTS: usize = 8;
pub(super) const STAGES: usize = POINTS - 1;

/// A part of the way of a request and its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DelayStage {
    /// From the interrupt that asks for NET_RX, or from the interface of a client on this host,
    /// until NET_RX or a NAPI thread runs.
    Softirq,
    /// From then until the packet enters IP: packets before it in the same poll.
    Poll,
    /// Until it is in the socket's queue.
    Ip,
    /// Until the thread that reads it got its CPU.
    WakeUp,
    /// Until it is read.
    Read,
    /// Until the reply is handed to the queueing discipline.
    Server,
    /// Until the driver gets it.
    Transmit,
}

impl DelayStage {
    pub const ALL: [Self; STAGES] =
        [Self::Softirq, Self::Poll, Self::Ip, Self::WakeUp, Self::Read, Self::Server, Self::Transmit];
}

/// Times of a request, CLOCK_MONOTONIC in ns, never decreasing. Stages are their differences, so
/// that they add up to the end-to-end time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DelayRecord {
    pub points: [u64; POINTS],
    pub receive_cpu: u32,
    pub read_cpu: u32,
    pub transmit_cpu: u32,
    /// Kernel address of the socket.
    pub socket: u64,
    /// Thread that read the request, and thread that sent the reply.
    pub reader: u32,
    pub replier: u32,
    /// Index of the interface of the reply.
    pub device: u32,
}

impl DelayRecord {
    pub fn stage_ns(&self, stage: DelayStage) -> u64 {
        let index = stage as usize;
        self.points[index + 1].saturating_sub(self.points[index])
    }

    pub fn end_to_end_ns(&self) -> u64 {
        self.points[POINTS - 1].saturating_sub(self.points[0])
    }

    /// The CPU that the stage waits for.
    pub fn cpu(&self, stage: DelayStage) -> u32 {
        match stage {
            DelayStage::Softirq | DelayStage::Poll | DelayStage::Ip => self.receive_cpu,
            DelayStage::WakeUp | DelayStage::Read | DelayStage::Server => self.read_cpu,
            DelayStage::Transmit => self.transmit_cpu,
        }
    }
}
