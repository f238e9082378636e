//! Rates of a packet path in one interval, in the order in which a packet passes. Snapshots can be
//! written as JSON and read again.

use crate::diagnosis::UnknownItem;
use crate::{CpuSet, Known, Severity, StageName};
use serde::{Deserialize, Serialize};

pub const SCHEMA: &str = "linerate.top/2";

/// The packet path in the time between two readings.
///
/// A rate is `None` in the first snapshot, when its counter restarted, and if its source does not
/// report it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Seconds since 1970; `None` for a tree that does not record it.
    pub unix_seconds: Option<f64>,
    /// `None` in the first snapshot.
    pub interval_seconds: Option<f64>,
    pub host: HostLine,
    pub interfaces: Vec<InterfaceSnapshot>,
    pub cpus: Known<Vec<CpuSnapshot>>,
    pub services: Known<Vec<ServiceSnapshot>>,
    pub threads: Known<Vec<ThreadSnapshot>>,
    /// Worst first, as of the last run of the rules.
    pub findings: Vec<LiveFinding>,
    pub totals: PathTotals,
    pub unknown: Vec<UnknownItem>,
    /// The cost of this snapshot.
    pub cost: SnapshotCost,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostLine {
    pub name: Known<String>,
    pub kernel: Known<String>,
    /// NUMA nodes with CPUs; empty if unknown.
    pub nodes: Vec<NodeSnapshot>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeSnapshot {
    pub node: u32,
    /// A list such as `0-31,64-95`.
    pub cpus: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InterfaceSnapshot {
    pub interface: String,
    /// `None` for none or unknown.
    pub driver: Option<String>,
    /// `None` for none or unknown.
    pub node: Option<u32>,
    /// `None` for none or unknown.
    pub speed_bits_per_second: Option<u64>,
    /// Seconds since it was removed; `None` while it exists.
    pub gone_seconds: Option<f64>,
    pub rx_packets_per_second: Option<f64>,
    /// Without preamble and gap.
    pub rx_bits_per_second: Option<f64>,
    /// Lost before the network stack: counted by the driver, by its receive queues, or as
    /// `rx_missed_errors`.
    pub rx_drops_per_second: Option<f64>,
    pub tx_packets_per_second: Option<f64>,
    pub tx_bits_per_second: Option<f64>,
    /// Losses of the interface (`tx_dropped`, `tx_errors`) and of its qdisc.
    pub tx_drops_per_second: Option<f64>,
    pub receive: Known<Vec<ReceiveQueue>>,
    /// The source of the packet counts; `None` without one.
    pub receive_told_by: Option<String>,
    pub transmit: Known<Vec<TransmitQueueSnapshot>>,
    /// The source of the packet counts; `None` without one.
    pub transmit_told_by: Option<String>,
    /// The root qdisc.
    pub discipline: Known<Option<QdiscSnapshot>>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReceiveQueue {
    pub queue: u32,
    pub packets_per_second: Option<f64>,
    pub drops_per_second: Option<f64>,
    /// `None` if it has none.
    pub irq: Option<u32>,
    pub interrupts_per_second: Option<f64>,
    /// The CPU that handled most of the interrupts, or without interrupts the first allowed one.
    pub cpu: Option<u32>,
    /// CPUs the interrupt may go to, as a list.
    pub allowed: Option<String>,
    /// CPUs of RPS as a list; empty if RPS is off.
    pub rps: Option<String>,
    /// Whether the CPU is on another node than the interface.
    pub far_node: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TransmitQueueSnapshot {
    pub queue: u32,
    pub packets_per_second: Option<f64>,
    /// Losses of its qdisc; `None` if it has no qdisc of its own.
    pub drops_per_second: Option<f64>,
    pub backlog_packets: Option<u64>,
    pub irq: Option<u32>,
    /// CPUs whose packets leave by this queue (XPS), as a list; empty if XPS is off.
    pub xps: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct QdiscSnapshot {
    /// `mq`, `fq_codel`, `noqueue`, ...
    pub kind: String,
    pub drops_per_second: Option<f64>,
    /// Packets requeued because the driver was busy.
    pub requeues_per_second: Option<f64>,
    pub backlog_packets: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuSnapshot {
    pub cpu: u32,
    pub node: Option<u32>,
    /// Of the interfaces' vectors.
    pub interrupts_per_second: Option<f64>,
    /// Share of time not idle.
    pub busy_share: Option<f64>,
    pub softirq_share: Option<f64>,
    /// Share of time taken by the hypervisor.
    pub steal_share: Option<f64>,
    pub net_rx_per_second: Option<f64>,
    /// Share of all packets that met the network stack.
    pub packets_share: Option<f64>,
    /// Packets taken from NAPI instances and the backlog.
    pub packets_per_second: Option<f64>,
    /// Times that other CPUs handed packets to this one (RPS).
    pub rps_per_second: Option<f64>,
    /// Packets lost at the backlog.
    pub drops_per_second: Option<f64>,
    /// Times that NET_RX stopped with work left.
    pub squeezes_per_second: Option<f64>,
    /// Packets waiting in the backlog; `None` before Linux 5.10.
    pub backlog_packets: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceSnapshot {
    /// Protocol, address and processes: `udp 10.0.0.1:53 (nsd)`.
    pub name: String,
    pub port: u16,
    pub pids: Vec<u32>,
    /// `hash`, `cpu` or `program`; `None` for a single socket or if unknown.
    pub steering: Option<String>,
    pub sockets: Vec<SocketSnapshot>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SocketSnapshot {
    pub inode: u64,
    /// Index in its group, from 0.
    pub place: u32,
    /// Seconds since it was closed.
    pub gone_seconds: Option<f64>,
    /// SO_INCOMING_CPU.
    pub incoming_cpu: Option<u32>,
    /// Memory charged to waiting packets.
    pub queued_bytes: Option<u64>,
    pub receive_buffer_bytes: Option<u64>,
    /// From 0 to 1.
    pub fill: Option<f64>,
    /// Packets lost because the buffer was full.
    pub drops_per_second: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadSnapshot {
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    /// Names of the services it serves.
    pub services: Vec<String>,
    /// Seconds since it ended.
    pub gone_seconds: Option<f64>,
    /// CPUs' worth of time; the kernel's resolution is 10 ms.
    pub cpu_share: Option<f64>,
    /// The part of that in the kernel.
    pub system_share: Option<f64>,
    pub cpu: Option<u32>,
    /// The CPU of the reading before, if another.
    pub moved_from: Option<u32>,
    /// CPUs it may run on, as a list.
    pub allowed: Option<String>,
    /// Relative to where packets are processed; `None` if it did not run or no packet was
    /// processed.
    pub seat: Option<ThreadLocality>,
}

/// Where a thread runs, relative to the CPUs on which packets meet the network stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadLocality {
    /// On a CPU that processes packets.
    WithPackets,
    /// On another CPU of the node.
    OffQueue,
    /// On a node on which no packets are processed.
    FarNode,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveFinding {
    pub id: String,
    pub stage: StageName,
    pub severity: Severity,
    pub title: String,
    pub remedy: String,
    pub places: Vec<FindingSite>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingSite {
    Interface(String),
    Receive(String, u32),
    Transmit(String, u32),
    Cpu(u32),
    Service(String),
    Thread(u32),
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PathTotals {
    pub rx_packets_per_second: Option<f64>,
    pub rx_drops_per_second: Option<f64>,
    pub interrupts_per_second: Option<f64>,
    /// CPUs' worth of time in softirqs.
    pub softirq_cpus: Option<f64>,
    pub backlog_drops_per_second: Option<f64>,
    /// Memory charged to waiting packets.
    pub queued_bytes: Option<u64>,
    pub socket_drops_per_second: Option<f64>,
    /// CPUs' worth of time.
    pub thread_cpus: Option<f64>,
    pub tx_packets_per_second: Option<f64>,
    /// Packets lost on transmit.
    pub tx_drops_per_second: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SnapshotCost {
    /// Wall-clock time of reading the counters.
    pub read_seconds: f64,
    /// Wall-clock time of the last full reading with its findings.
    pub whole_reading_seconds: f64,
    pub whole_reading_age_seconds: f64,
}

impl HostLine {
    /// At least one.
    pub fn node_count(&self) -> usize {
        self.nodes.len().max(1)
    }

    pub fn cpus_of(&self, node: u32) -> Option<CpuSet> {
        let entry = self.nodes.iter().find(|item| item.node == node)?;
        CpuSet::from_list(&entry.cpus).ok()
    }
}

impl Snapshot {
    pub fn findings_at<'a>(&'a self, place: &'a FindingSite) -> impl Iterator<Item = &'a LiveFinding> {
        self.findings.iter().filter(move |finding| finding.places.contains(place))
    }

    pub fn findings_at_stage<'a>(
        &'a self,
        service: &'a str,
        stage: StageName,
    ) -> impl Iterator<Item = &'a LiveFinding> {
        let is_at_service =
            move |place: &FindingSite| matches!(place, FindingSite::Service(name) if name == service);
        self.findings
            .iter()
            .filter(move |finding| finding.stage == stage && finding.places.iter().any(is_at_service))
    }
}
