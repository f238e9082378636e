//! Where requests of one UDP port wait, from the interrupt to the reply at the driver.
//!
//! BPF programs at BTF tracepoints record events of the port, its CPUs and their threads for
//! windows of time. Between windows the events are joined to requests, each with the times of its
//! stages, and to the work of each CPU, which gives the reason why the slowest requests were slow.
//! Pauses between windows keep the measurement within [`DELAY_BUDGET`].

mod cause;
mod chrome;
mod event;
mod port;
mod program;
mod record;
mod requests;
mod session;
mod stacks;
mod summary;
mod timeline;

use linerate_host::Known;
use serde::{Deserialize, Serialize};

pub use cause::DelayCause;
pub use chrome::DelayTrace;
pub use port::PortPlace;
pub use record::{DelayRecord, DelayStage};
pub use session::{DELAY_BUDGET, DelaySession};
pub use summary::{CpuStageDelay, DelayQuantiles, LongSoftirq, SlowReason, SoftirqDelay, StageDelay};

/// The operation in an error message.
const WHAT: &str = "timing requests";

/// Times of the requests of one port.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DelayReport {
    pub port: u16,
    pub seconds: f64,
    /// Windows of recording, and their time together.
    pub windows: u64,
    pub observed_seconds: f64,
    /// Datagrams to the port that entered IP in these windows.
    pub received: u64,
    /// Datagrams that were read, and those whose arrival is not known: they came before the window,
    /// or several threads read the same socket at the same moment.
    pub reads: u64,
    pub unmatched_reads: u64,
    pub replies: u64,
    /// Replies that do not repeat the first two bytes of a request: each was taken for the reply to
    /// the oldest request of its client.
    #[serde(default)]
    pub replies_by_order: u64,
    /// Requests of which every stage was seen.
    pub requests: u64,
    pub end_to_end_ns: DelayQuantiles,
    /// The slowest 1 % of the requests.
    pub slowest_ns: DelayQuantiles,
    /// In the order of a packet.
    pub stages: Vec<StageDelay>,
    /// Why the slowest 1 % were slow, most frequent reason first.
    pub reasons: Vec<SlowReason>,
    pub softirqs: Vec<SoftirqDelay>,
    /// The longest softirqs of all kinds, longest first.
    #[serde(default)]
    pub longest_softirqs: Vec<LongSoftirq>,
    /// Events without room in the tables.
    pub lost_events: u64,
    pub own: DelayCost,
}

/// The cost of the measurement, included in all other values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DelayCost {
    pub events: u64,
    /// Program time per event with the call, measured by the kernel in the first window.
    pub ns_a_run: Known<f64>,
    /// On all CPUs together, as a share of one CPU.
    pub programs_cpu_share: f64,
    /// Of reading and joining the events, as a share of one CPU.
    pub process_cpu_share: f64,
}

#[cfg(test)]
mod tests;
