//! The softirq: NAPI polls queues, RPS hands packets to other CPUs, the backlog holds them.

mod counters;
mod load;
mod napi;
mod observe;
mod rules;
pub(crate) mod softirqs;
pub(crate) mod softnet;
pub(in crate::stage) mod traffic;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{StageInfo, StageName};
use crate::{CpuSet, Known};

/// The stage.
pub(super) const STAGE: StageInfo = StageInfo {
    name: StageName::Softirq,
    explain: "The interrupt's CPU polls the queue in the NET_RX softirq, up to 64 packets a turn, and takes each up to \
              the socket; with RPS it hands each to the backlog of another CPU chosen by hash. Nothing else runs on a \
              CPU that is in softirq.",
    rules: rules::RULES,
    counters: counters::counters,
};

/// State of packet processing.
#[derive(Debug, Clone, Serialize)]
pub struct SoftirqState {
    /// A line a CPU of `/proc/net/softnet_stat`.
    pub softnet: Known<Vec<SoftnetCpu>>,
    /// NET_RX softirqs run, by CPU (`/proc/softirqs`).
    pub net_rx: Known<BTreeMap<u32, u64>>,
    /// RPS, an item an interface.
    pub rps: Vec<InterfaceRps>,
    /// NAPI instances (netdev netlink, Linux 6.8); none where the kernel does not tell.
    pub napi: Known<Option<Vec<NapiInstance>>>,
    /// Sysctls of `net.core` that matter here, by name: `netdev_budget`, `netdev_budget_usecs`, `netdev_max_backlog`,
    /// `rps_sock_flow_entries`, `dev_weight`, `flow_limit_table_len`. What this kernel is too old for is not there.
    pub sysctls: BTreeMap<String, Known<u64>>,
}

/// A CPU's line of `/proc/net/softnet_stat`. Its counters are 32 bits wide and begin anew at 2^32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SoftnetCpu {
    /// The CPU.
    pub cpu: u32,
    /// Packets taken from a backlog or a NAPI instance.
    pub processed: u64,
    /// Packets lost because the CPU's backlog was full.
    pub dropped: u64,
    /// Times NET_RX stopped with work left, for want of budget or time.
    pub time_squeeze: u64,
    /// Times another CPU handed this one packets (RPS).
    pub received_rps: Option<u64>,
    /// Packets lost to the flow limit; they are part of `dropped`.
    pub flow_limit: Option<u64>,
    /// Packets that wait in the backlog (Linux 5.10).
    pub backlog: Option<u64>,
}

/// RPS of an interface.
#[derive(Debug, Clone, Serialize)]
pub struct InterfaceRps {
    /// The interface.
    pub interface: String,
    /// An item a receive queue.
    pub queues: Known<Vec<RpsQueue>>,
    /// `gro_flush_timeout` in nanoseconds; none where the kernel has none.
    pub gro_flush_timeout_ns: Known<Option<u64>>,
    /// `napi_defer_hard_irqs` (Linux 5.11); none where the kernel has none.
    pub napi_defer_hard_irqs: Known<Option<u32>>,
    /// `threaded` (Linux 5.12); none where the kernel has none.
    pub threaded: Known<Option<bool>>,
}

/// RPS of a receive queue.
#[derive(Debug, Clone, Serialize)]
pub struct RpsQueue {
    /// The queue.
    pub queue: u32,
    /// CPUs that process what it took in; empty where RPS is off.
    pub cpus: Known<CpuSet>,
    /// Entries of its flow table (RFS).
    pub flow_count: Known<u32>,
}

/// A NAPI instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NapiInstance {
    /// The interface's index.
    pub interface_index: u32,
    /// Its id.
    pub id: u32,
    /// Its interrupt; none where it has none.
    pub irq: Option<u32>,
    /// The thread that polls it; none where NAPI is not threaded.
    pub pid: Option<u32>,
    /// Receive queues it polls.
    #[serde(default)]
    pub receive_queues: Vec<u32>,
    /// Transmit queues it completes.
    #[serde(default)]
    pub transmit_queues: Vec<u32>,
}

impl SoftirqState {
    /// RPS of the queues of an interface, empty where it is unknown.
    #[must_use]
    pub fn rps_queues(&self, interface: &str) -> &[RpsQueue] {
        let found = self.rps.iter().find(|item| item.interface == interface);
        found.and_then(|item| item.queues.value()).map_or(&[], Vec::as_slice)
    }

    /// The CPUs RPS hands the packets of a queue to; empty where RPS is off, none where that is unknown.
    #[must_use]
    pub fn rps_cpus(&self, interface: &str, queue: u32) -> Option<&CpuSet> {
        self.rps_queues(interface).iter().find(|item| item.queue == queue)?.cpus.value()
    }
}
