//! The path of packets through a host for a drawing: queue, interrupt, RPS, socket, thread,
//! transmit queue.

use std::collections::BTreeMap;

use linerate_host::stage::link::{DeviceKind, LinkState};
use linerate_host::{CpuSet, HostView};
use serde::{Deserialize, Serialize};

use super::service::{self, PathService};
use crate::render::format;

/// The packet paths of a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PacketPaths {
    /// Interfaces of which at least one path is known.
    pub(crate) interfaces: Vec<InterfacePaths>,
    /// The service that the paths lead to; `None` if there are several to choose from.
    pub(crate) service: Option<PathService>,
    /// The other services.
    pub(crate) other_services: Vec<PathService>,
}

/// The paths of an interface.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct InterfacePaths {
    pub(crate) interface: String,
    /// Driver, speed, node, in words.
    pub(crate) facts: Vec<String>,
    pub(crate) home: Option<u32>,
    /// Packets in and out per second, with two readings.
    pub(crate) rates: Option<(f64, f64)>,
    /// Receive queues in order.
    pub(crate) queues: Vec<QueueFlow>,
    pub(crate) transmit: TransmitChoice,
    /// Packets per second of each transmit queue, with two readings and if a source has them.
    pub(crate) sent: BTreeMap<u32, f64>,
    /// The host's NUMA nodes and their CPUs; one without a number if they are unknown.
    pub(crate) nodes: Vec<(Option<u32>, CpuSet)>,
    pub(crate) online: CpuSet,
}

/// A receive queue and the CPUs of its packets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct QueueFlow {
    pub(crate) queue: u32,
    /// CPUs that handle its interrupt; `None` if unknown, empty if it has none, as with veth.
    pub(crate) napi: Option<CpuSet>,
    /// RPS CPUs: `None` if unknown, empty if RPS is off.
    pub(crate) rps: Option<CpuSet>,
    /// Packets per second, with two readings.
    pub(crate) rate: Option<f64>,
    /// Whether it receives most of the interface's packets, and there are other queues.
    pub(crate) hot: bool,
}

/// How the transmit queue of a CPU's packets is chosen.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TransmitChoice {
    Unknown,
    /// By the flow hash among this number of queues.
    Hash(u32),
    /// XPS: the queues of each CPU.
    ByCpu(BTreeMap<u32, CpuSet>),
    /// XPS by the flow's receive queue.
    ByReceiveQueue(u32),
}

impl PacketPaths {
    pub(crate) fn from_view(view: &HostView<'_>) -> Self {
        let (service, other_services) = service::choose_service(view.now);
        let is_shown = |link: &&LinkState| link.up.value() != Some(&false);
        let paths =
            view.now.link.iter().filter(is_shown).filter_map(|link| InterfacePaths::from_view(view, link));
        Self { interfaces: paths.collect(), service, other_services }
    }
}

impl InterfacePaths {
    /// `None` if no CPU of a queue is known.
    fn from_view(view: &HostView<'_>, link: &LinkState) -> Option<Self> {
        let path = view.now;
        let count = *link.receive_queues.value()?;
        let name = link.interface.as_str();
        let total = |key: &str| view.rate(|path| path.link_of(name)?.totals.value()?.get(key).copied());
        let online = path.machine.online.value().cloned().unwrap_or_default();
        let nodes = match path.machine.nodes.value() {
            Some(nodes) if !nodes.is_empty() => {
                nodes.iter().map(|node| (Some(node.node), node.cpus.clone())).collect()
            }
            _ => vec![(None, online.clone())],
        };
        let mut paths = Self {
            interface: name.to_owned(),
            facts: facts(link),
            home: link.node.value().copied().flatten(),
            rates: total("rx_packets").zip(total("tx_packets")),
            queues: (0..count).map(|queue| QueueFlow::from_view(view, name, queue)).collect(),
            transmit: TransmitChoice::from_view(view, name),
            sent: transmit_rates(view, name),
            nodes,
            online,
        };
        paths.mark_hot();
        let has_cpus = paths.queues.iter().any(|queue| queue.napi.is_some() || queue.rps.is_some());
        has_cpus.then_some(paths)
    }

    fn mark_hot(&mut self) {
        let total_rate: f64 = self.queues.iter().filter_map(|queue| queue.rate).sum();
        let has_several = self.queues.len() > 1;
        for queue in &mut self.queues {
            queue.hot = has_several
                && queue.rate.is_some_and(|rate| rate >= HOT_PER_SECOND && rate > total_rate / 2.0);
        }
    }

    /// Packets per second of a transmit queue; `None` if unknown. Zero if the interface sends nothing.
    pub(crate) fn transmit_rate(&self, queue: u32) -> Option<f64> {
        let zero_rate = self.rates.filter(|(_, sent_rate)| *sent_rate <= 0.0).map(|_| 0.0);
        self.sent.get(&queue).copied().or(zero_rate)
    }

    /// The node of the CPUs; `None` if they are on several.
    pub(crate) fn node_of(&self, cpus: &CpuSet) -> Option<u32> {
        let first_cpu = cpus.iter().next()?;
        let (node, node_cpus) = self.nodes.iter().find(|(_, node_cpus)| node_cpus.contains(first_cpu))?;
        cpus.iter().all(|cpu| node_cpus.contains(cpu)).then_some(*node).flatten()
    }
}

/// Packets per second that each transmit queue sent between the readings.
fn transmit_rates(view: &HostView<'_>, interface: &str) -> BTreeMap<u32, f64> {
    let queues = view.now.transmit_of(interface).and_then(|item| item.queues.value());
    let rate = |queue: u32| {
        view.rate(|path| {
            let queues = path.transmit_of(interface)?.queues.value()?;
            queues.iter().find(|item| item.queue == queue)?.packets.value().copied().flatten()
        })
    };
    queues.into_iter().flatten().filter_map(|item| Some((item.queue, rate(item.queue)?))).collect()
}

/// A queue with fewer packets per second is not marked.
const HOT_PER_SECOND: f64 = 1_000.0;

impl QueueFlow {
    fn from_view(view: &HostView<'_>, interface: &str, queue: u32) -> Self {
        let path = view.now;
        let vectors = path.irq.interfaces.iter().find(|item| item.interface == interface);
        let has_no_vectors = vectors.and_then(|item| item.vectors.value()).is_some_and(Vec::is_empty);
        // A device without vectors uses those of its bus, such as USB.
        let is_device = |link: &LinkState| link.device.value().is_some_and(|it| *it != DeviceKind::Software);
        let on_sender_cpu = has_no_vectors && !path.link_of(interface).is_some_and(is_device);
        let rate = view.rate(|path| {
            let counts = path.rss_of(interface)?.queues.value()?.as_ref()?;
            counts.iter().find(|item| item.queue == queue).map(|item| item.packets)
        });
        Self {
            queue,
            napi: if on_sender_cpu { Some(CpuSet::new()) } else { path.napi_cpus(interface, queue) },
            rps: path.softirq.rps_cpus(interface, queue).cloned(),
            rate,
            hot: false,
        }
    }

    /// CPUs on which its packets enter the stack: `None` if unknown, empty for the CPUs of the senders.
    pub(crate) fn stack(&self) -> Option<&CpuSet> {
        self.rps.as_ref().filter(|cpus| !cpus.is_empty()).or(self.napi.as_ref())
    }
}

impl TransmitChoice {
    fn from_view(view: &HostView<'_>, interface: &str) -> Self {
        let Some(queues) = view.now.transmit_of(interface).and_then(|item| item.queues.value()) else {
            return TransmitChoice::Unknown;
        };
        let count = u32::try_from(queues.len()).unwrap_or(u32::MAX);
        let mut by_cpu: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut uses_receive_queues = false;
        for queue in queues {
            let Some(cpus) = queue.xps_cpus.value() else { return TransmitChoice::Unknown };
            for cpu in cpus.iter().flat_map(CpuSet::iter) {
                by_cpu.entry(cpu).or_default().push(queue.queue);
            }
            let receive_queues = queue.xps_receive_queues.value().and_then(Option::as_ref);
            uses_receive_queues |= receive_queues.is_some_and(|queues| !queues.is_empty());
        }
        if uses_receive_queues {
            // The kernel tries the receive queue first (net/core/dev.c, __netdev_pick_tx, Linux
            // 4.18).
            return TransmitChoice::ByReceiveQueue(count);
        }
        if by_cpu.is_empty() {
            return TransmitChoice::Hash(count);
        }
        TransmitChoice::ByCpu(
            by_cpu.into_iter().map(|(cpu, queues)| (cpu, queues.into_iter().collect())).collect(),
        )
    }

    /// The transmit queues of packets from these CPUs, in words.
    pub(crate) fn words(&self, cpus: &CpuSet) -> String {
        let queue_range =
            |count: u32| if count > 1 { format!("tx 0-{}", count - 1) } else { "tx 0".to_owned() };
        match self {
            TransmitChoice::Unknown => "tx ?".to_owned(),
            TransmitChoice::Hash(count) if *count > 1 => format!("{} by flow hash", queue_range(*count)),
            TransmitChoice::Hash(count) => queue_range(*count),
            TransmitChoice::ByReceiveQueue(count) => format!("{} by receive queue", queue_range(*count)),
            TransmitChoice::ByCpu(map) => {
                let queues: CpuSet =
                    cpus.iter().filter_map(|cpu| map.get(&cpu)).flat_map(CpuSet::iter).collect();
                if queues.is_empty() { "tx by flow hash".to_owned() } else { format!("tx {queues} by XPS") }
            }
        }
    }
}

fn facts(link: &LinkState) -> Vec<String> {
    let driver = link.driver.value().and_then(Option::as_ref).map(|driver| driver.name.clone());
    let speed = link.speed_bits_per_second.value().copied().flatten().map(format::link);
    let node = link.node.value().copied().flatten().map(|node| format!("on node {node}"));
    let queue_count = |count: u32, kind: &str| match count {
        1 => format!("one {kind} queue"),
        count => format!("{count} {kind} queues"),
    };
    let receive = link.receive_queues.value().map(|queues| queue_count(*queues, "receive"));
    let transmit = link.transmit_queues.value().map(|queues| queue_count(*queues, "transmit"));
    [driver, speed, node, receive, transmit].into_iter().flatten().collect()
}

/// Packets per second with a prefix: `412 kpps`.
pub(super) fn packets_per_second(rate: f64) -> String {
    let text = format::rate(rate.round());
    if text.ends_with(|last: char| last.is_ascii_digit()) {
        format!("{text} pps")
    } else {
        format!("{text}pps")
    }
}
