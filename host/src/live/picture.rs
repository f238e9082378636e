//! What a packet path does in an interval, in the order a packet meets it. It can be written as JSON and read again.

use crate::{CpuSet, Known, StageName};
use serde::{Deserialize, Serialize};

/// The schema of a picture.
pub const SCHEMA: &str = "linerate.top/1";

/// The packet path in the time between two readings.
///
/// A rate is none in the first picture, where its counter began anew, and where its source does not tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When it was made, in seconds since 1970; none of a tree that does not say.
    pub unix_seconds: Option<f64>,
    /// Time between the readings; none in the first picture.
    pub interval_seconds: Option<f64>,
    /// Which host.
    pub host: HostLine,
    /// Interfaces, with their queues.
    pub interfaces: Vec<InterfaceSnapshot>,
    /// CPUs that are online.
    pub cpus: Known<Vec<CpuSnapshot>>,
    /// UDP services, with their sockets.
    pub services: Known<Vec<ServiceSnapshot>>,
    /// Threads that serve those sockets.
    pub threads: Known<Vec<ThreadSnapshot>>,
    /// What is wrong, worst first, as of the last time the rules looked.
    pub findings: Vec<LiveFinding>,
    /// What the whole path does.
    pub totals: PathTotals,
    /// What could not be read.
    pub unknown: Vec<LiveUnknown>,
    /// What making the picture took.
    pub cost: SnapshotCost,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostLine {
    /// Its name.
    pub name: Known<String>,
    /// Its kernel's release.
    pub kernel: Known<String>,
    /// Its NUMA nodes that have CPUs; empty where they are not known.
    pub nodes: Vec<NodeSnapshot>,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeSnapshot {
    /// Its number.
    pub node: u32,
    /// Its CPUs as a list, such as `0-31,64-95`.
    pub cpus: String,
}

/// An interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InterfaceSnapshot {
    /// Its name.
    pub interface: String,
    /// Its driver; none where it has none or that is unknown.
    pub driver: Option<String>,
    /// Its NUMA node; none where it has none or that is unknown.
    pub node: Option<u32>,
    /// Its nominal rate; none where there is none or it is unknown.
    pub speed_bits_per_second: Option<u64>,
    /// Seconds since it went away; none while it is there.
    pub gone_seconds: Option<f64>,
    /// Packets received.
    pub rx_packets_per_second: Option<f64>,
    /// Bits received, without preamble and gap.
    pub rx_bits_per_second: Option<f64>,
    /// Packets lost by the interface: `rx_missed_errors` and `rx_dropped`.
    pub rx_drops_per_second: Option<f64>,
    /// Packets sent.
    pub tx_packets_per_second: Option<f64>,
    /// Bits sent.
    pub tx_bits_per_second: Option<f64>,
    /// Packets lost on the way out: by the interface (`tx_dropped`, `tx_errors`) and by its queueing discipline.
    pub tx_drops_per_second: Option<f64>,
    /// Receive queues.
    pub receive: Known<Vec<ReceiveQueue>>,
    /// What counts the packets of the receive queues; none where nothing does.
    pub receive_told_by: Option<String>,
    /// Transmit queues.
    pub transmit: Known<Vec<TransmitQueueSnapshot>>,
    /// What counts the packets of the transmit queues; none where nothing does.
    pub transmit_told_by: Option<String>,
    /// The queueing discipline at the root.
    pub discipline: Known<Option<QdiscSnapshot>>,
}

/// A receive queue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReceiveQueue {
    /// Its number.
    pub queue: u32,
    /// Packets it took in.
    pub packets_per_second: Option<f64>,
    /// Packets it lost.
    pub drops_per_second: Option<f64>,
    /// Its interrupt's number; none where it has none.
    pub irq: Option<u32>,
    /// How often that was handled.
    pub interrupts_per_second: Option<f64>,
    /// The CPU that handled most of them, or where none came, the first it may go to.
    pub cpu: Option<u32>,
    /// CPUs the interrupt may go to, as a list.
    pub allowed: Option<String>,
    /// CPUs that RPS hands its packets to, as a list; empty where RPS is off.
    pub rps: Option<String>,
    /// Whether its CPU is of another node than the interface.
    pub far_node: bool,
}

/// A transmit queue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TransmitQueueSnapshot {
    /// Its number.
    pub queue: u32,
    /// Packets it sent.
    pub packets_per_second: Option<f64>,
    /// Packets its discipline lost; none where it has none of its own.
    pub drops_per_second: Option<f64>,
    /// Packets that wait in its discipline.
    pub backlog_packets: Option<u64>,
    /// Its interrupt's number.
    pub irq: Option<u32>,
    /// CPUs whose packets leave by it (XPS), as a list; empty where XPS is off.
    pub xps: Option<String>,
}

/// A queueing discipline at the root of an interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct QdiscSnapshot {
    /// `mq`, `fq_codel`, `noqueue`, ...
    pub kind: String,
    /// Packets lost.
    pub drops_per_second: Option<f64>,
    /// Packets queued again since the driver was busy.
    pub requeues_per_second: Option<f64>,
    /// Packets that wait.
    pub backlog_packets: u64,
}

/// A CPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuSnapshot {
    /// Its number.
    pub cpu: u32,
    /// Its NUMA node.
    pub node: Option<u32>,
    /// Interrupts of the interfaces' vectors.
    pub interrupts_per_second: Option<f64>,
    /// Share of time it was not idle.
    pub busy_share: Option<f64>,
    /// Share of time in softirqs.
    pub softirq_share: Option<f64>,
    /// Share of time taken by the hypervisor.
    pub steal_share: Option<f64>,
    /// NET_RX softirqs run.
    pub net_rx_per_second: Option<f64>,
    /// Its part of all packets that met the network stack.
    pub packets_share: Option<f64>,
    /// Packets it took from NAPI instances and its backlog.
    pub packets_per_second: Option<f64>,
    /// Times other CPUs handed it packets (RPS).
    pub rps_per_second: Option<f64>,
    /// Packets its backlog lost.
    pub drops_per_second: Option<f64>,
    /// Times NET_RX stopped with work left.
    pub squeezes_per_second: Option<f64>,
    /// Packets that wait in its backlog; none before Linux 5.10.
    pub backlog_packets: Option<u64>,
}

/// A UDP service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceSnapshot {
    /// Protocol, address and processes, as a person names it: `udp 10.0.0.1:53 (nsd)`.
    pub name: String,
    /// Its port.
    pub port: u16,
    /// The processes that hold its sockets.
    pub pids: Vec<u32>,
    /// How its group chooses a socket: `hash`, `cpu`, `program`; none for one socket, or where unknown.
    pub steering: Option<String>,
    /// Its sockets.
    pub sockets: Vec<SocketSnapshot>,
}

/// A socket.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SocketSnapshot {
    /// Its inode.
    pub inode: u64,
    /// Its place in its group, from 0.
    pub place: u32,
    /// Seconds since it went away.
    pub gone_seconds: Option<f64>,
    /// The CPU whose packets it asks for (SO_INCOMING_CPU).
    pub incoming_cpu: Option<u32>,
    /// Memory charged to what waits in it.
    pub queued_bytes: Option<u64>,
    /// Its receive buffer.
    pub receive_buffer_bytes: Option<u64>,
    /// How full it is, from 0 to 1.
    pub fill: Option<f64>,
    /// Packets lost since it was full.
    pub drops_per_second: Option<f64>,
}

/// A thread that serves sockets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadSnapshot {
    /// Its process.
    pub pid: u32,
    /// Its own id.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// Names of the services it serves.
    pub services: Vec<String>,
    /// Seconds since it ended.
    pub gone_seconds: Option<f64>,
    /// CPUs' worth of time it ran; the kernel tells hundredths of a second.
    pub cpu_share: Option<f64>,
    /// Of that, in the kernel.
    pub system_share: Option<f64>,
    /// The CPU it ran on last.
    pub cpu: Option<u32>,
    /// The CPU it ran on at the reading before, where that was another.
    pub moved_from: Option<u32>,
    /// CPUs it may run on, as a list.
    pub allowed: Option<String>,
    /// Where it is, against where packets are processed; none where it did not run, or no packet was processed.
    pub seat: Option<ThreadLocality>,
}

/// Where a thread runs, against where packets meet the network stack.
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

/// A finding of the rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveFinding {
    /// `stage.name`.
    pub id: String,
    /// The stage it is of.
    pub stage: StageName,
    /// How much it matters.
    pub severity: LiveSeverity,
    /// A sentence with the facts in it.
    pub title: String,
    /// How to fix it.
    pub remedy: String,
    /// Where it sits.
    pub places: Vec<FindingSite>,
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "as in crate::Severity")]
pub enum LiveSeverity {
    Note,
    Low,
    Medium,
    High,
}

/// Where a finding sits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingSite {
    /// An interface as a whole.
    Interface(String),
    /// A receive queue.
    Receive(String, u32),
    /// A transmit queue.
    Transmit(String, u32),
    /// A CPU.
    Cpu(u32),
    /// A service, by name.
    Service(String),
    /// A thread, by its id.
    Thread(u32),
}

/// What the whole path does.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PathTotals {
    /// Packets received by the interfaces.
    pub rx_packets_per_second: Option<f64>,
    /// Packets they lost.
    pub rx_drops_per_second: Option<f64>,
    /// Interrupts of their vectors.
    pub interrupts_per_second: Option<f64>,
    /// CPUs' worth of time in softirqs.
    pub softirq_cpus: Option<f64>,
    /// Packets that backlogs lost.
    pub backlog_drops_per_second: Option<f64>,
    /// Memory charged to what waits in the sockets.
    pub queued_bytes: Option<u64>,
    /// Packets the sockets lost.
    pub socket_drops_per_second: Option<f64>,
    /// CPUs' worth of time of the threads.
    pub thread_cpus: Option<f64>,
    /// Packets sent by the interfaces.
    pub tx_packets_per_second: Option<f64>,
    /// Packets lost on the way out.
    pub tx_drops_per_second: Option<f64>,
}

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveUnknown {
    /// What.
    pub what: String,
    /// What stood in the way.
    pub why: String,
}

/// What making a picture took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SnapshotCost {
    /// Wall-clock time to read what changes each second.
    pub read_seconds: f64,
    /// Wall-clock time of the last whole reading with its findings.
    pub whole_reading_seconds: f64,
    /// Seconds since that was made.
    pub whole_reading_age_seconds: f64,
}

impl From<crate::Severity> for LiveSeverity {
    fn from(severity: crate::Severity) -> Self {
        match severity {
            crate::Severity::Note => Self::Note,
            crate::Severity::Low => Self::Low,
            crate::Severity::Medium => Self::Medium,
            crate::Severity::High => Self::High,
        }
    }
}

impl LiveSeverity {
    /// Its name, as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

impl HostLine {
    /// How many nodes there are, at least one.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len().max(1)
    }

    /// The CPUs of a node.
    #[must_use]
    pub fn cpus_of(&self, node: u32) -> Option<CpuSet> {
        let found = self.nodes.iter().find(|item| item.node == node)?;
        CpuSet::from_list(&found.cpus).ok()
    }
}

impl Snapshot {
    /// The findings that sit at a place.
    pub fn findings_at<'a>(&'a self, place: &'a FindingSite) -> impl Iterator<Item = &'a LiveFinding> {
        self.findings.iter().filter(move |found| found.places.contains(place))
    }

    /// The findings of a stage that sit at a service.
    pub fn findings_at_stage<'a>(
        &'a self,
        service: &'a str,
        stage: StageName,
    ) -> impl Iterator<Item = &'a LiveFinding> {
        let here = move |place: &FindingSite| matches!(place, FindingSite::Service(name) if name == service);
        self.findings.iter().filter(move |found| found.stage == stage && found.places.iter().any(here))
    }
}
