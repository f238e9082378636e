//! The softirq: NAPI polls queues, RPS distributes packets to CPUs, the backlog holds them.

mod load;
mod observe;
pub(super) mod rules;
pub(crate) mod softirqs;
pub(crate) mod softnet;
pub(in crate::stage) mod traffic;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{CpuSet, Known};

#[derive(Debug, Clone, Serialize)]
pub struct SoftirqState {
    /// `/proc/net/softnet_stat`, one line per CPU.
    pub softnet: Known<Vec<SoftnetCpu>>,
    /// NET_RX softirqs by CPU (`/proc/softirqs`).
    pub net_rx: Known<BTreeMap<u32, u64>>,
    pub rps: Vec<InterfaceRps>,
    /// netdev netlink, Linux 6.8; `None` if the kernel does not report them.
    pub napi: Known<Option<Vec<NapiInstance>>>,
    /// `net.core` by name: `netdev_budget`, `netdev_budget_usecs`, `netdev_max_backlog`,
    /// `rps_sock_flow_entries`, `dev_weight`, `flow_limit_table_len`, `skb_defer_max`, as far as this
    /// kernel has them.
    pub sysctls: BTreeMap<String, Known<u64>>,
}

/// A line of `/proc/net/softnet_stat`. Counters are 32 bits wide and wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SoftnetCpu {
    pub cpu: u32,
    /// Packets taken from a backlog or a NAPI instance.
    pub processed: u64,
    /// Packets lost because the CPU's backlog was full.
    pub dropped: u64,
    /// Times NET_RX stopped with work left because its budget or time was used up.
    pub time_squeeze: u64,
    /// Times another CPU handed this one packets (RPS).
    pub received_rps: Option<u64>,
    /// Packets lost to the flow limit; included in `dropped`.
    pub flow_limit: Option<u64>,
    /// Packets waiting in the backlog (Linux 5.10).
    pub backlog: Option<u64>,
}

#[derive(Debug, Clone, Serialize)]
pub struct InterfaceRps {
    pub interface: String,
    pub queues: Known<Vec<RpsQueue>>,
    /// `None` if the kernel does not have it.
    pub gro_flush_timeout_ns: Known<Option<u64>>,
    /// Since Linux 5.11.
    pub napi_defer_hard_irqs: Known<Option<u32>>,
    /// Since Linux 5.12.
    pub threaded: Known<Option<bool>>,
}

#[derive(Debug, Clone, Serialize)]
pub struct RpsQueue {
    pub queue: u32,
    /// CPUs that process its packets; empty if RPS is off.
    pub cpus: Known<CpuSet>,
    /// Entries of its flow table (RFS).
    pub flow_count: Known<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NapiInstance {
    pub interface_index: u32,
    pub id: u32,
    pub irq: Option<u32>,
    /// The thread that polls it; `None` without threaded NAPI.
    pub pid: Option<u32>,
    /// Receive queues it polls.
    #[serde(default)]
    pub receive_queues: Vec<u32>,
    /// Transmit queues it completes.
    #[serde(default)]
    pub transmit_queues: Vec<u32>,
    #[serde(flatten)]
    pub polling: NapiPolling,
}

/// How one NAPI instance polls, where that may differ from its interface. `None` if the kernel does
/// not report it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NapiPolling {
    /// Empty polls until interrupts are enabled again (Linux 6.13).
    pub defer_hard_irqs: Option<u32>,
    /// Nanoseconds (Linux 6.13).
    pub gro_flush_timeout_ns: Option<u64>,
    /// Nanoseconds for which interrupts stay suspended while an application polls (Linux 6.13).
    pub irq_suspend_timeout_ns: Option<u64>,
    /// 0: softirqs poll. 1: a kernel thread (Linux 6.17). 2: a kernel thread that never sleeps (6.19).
    pub threaded: Option<u32>,
}

impl SoftirqState {
    /// Empty if unknown.
    pub fn rps_queues(&self, interface: &str) -> &[RpsQueue] {
        let found = self.rps.iter().find(|item| item.interface == interface);
        found.and_then(|item| item.queues.value()).map_or(&[], Vec::as_slice)
    }

    /// CPUs of RPS; empty if RPS is off, `None` if unknown.
    pub fn rps_cpus(&self, interface: &str, queue: u32) -> Option<&CpuSet> {
        self.rps_queues(interface).iter().find(|item| item.queue == queue)?.cpus.value()
    }
}
