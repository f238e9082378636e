//! The order in which CPUs get packets, and the options of a placement.

use std::collections::{BTreeMap, BTreeSet};

use crate::CpuSet;
use crate::stage::PacketPath;
use crate::stage::link::LinkState;
use crate::stage::machine::MachineState;

/// Options of a placement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpreadPolicy {
    pub second_threads: SecondThreads,
    pub handing: RpsTarget,
    /// CPUs without packets, in addition to isolated ones.
    pub free: CpuSet,
    pub interrupts_stay: bool,
    /// Interfaces whose interrupts stay although the interrupts of other interfaces move.
    pub stays: BTreeSet<String>,
}

/// Whether second hardware threads of cores process packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecondThreads {
    /// After the first threads of all cores.
    #[default]
    Last,
    Never,
}

/// RPS targets if there are fewer queues than CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RpsTarget {
    None,
    /// CPUs without a queue, on nodes that have a queue.
    #[default]
    OwnNode,
    /// Also CPUs on nodes without any queue.
    EveryNode,
}

/// The placement of an interface's packets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PacketSpread {
    pub interface: String,
    /// The CPU of each receive queue's interrupt, if it can be determined.
    pub receive_interrupts: BTreeMap<u32, u32>,
    pub transmit_interrupts: BTreeMap<u32, u32>,
    /// Whether the kernel manages the affinities, so that they stay.
    pub managed: bool,
    /// RPS of each receive queue, empty if off. Queues without an interrupt, or with an unknown
    /// one, are missing.
    pub receive: BTreeMap<u32, CpuSet>,
    /// XPS of each transmit queue. Empty if CPUs do not choose queues.
    pub transmit: BTreeMap<u32, CpuSet>,
}

/// Online CPUs that are not isolated. `None` if unknown.
pub fn usable_cpus(path: &PacketPath) -> Option<CpuSet> {
    let online = path.machine.online.value()?;
    let isolated = path.irq.isolated.value().and_then(Option::as_ref);
    Some(online.iter().filter(|cpu| !isolated.is_some_and(|set| set.contains(*cpu))).collect())
}

/// The preference of a CPU for a NIC, lowest first: the number of earlier hardware threads in its
/// core, and whether it is on another node than the NIC.
pub(super) type Worth = (usize, bool);

/// CPUs in order of preference for a NIC on this node: cores of the node, cores of other nodes,
/// then second threads in the same order. CPUs with fewer queues come first.
pub fn order(
    machine: &MachineState,
    cpus: &CpuSet,
    nic_node: Option<u32>,
    queue_counts: &BTreeMap<u32, usize>,
) -> Vec<u32> {
    let mut order: Vec<u32> = cpus.iter().collect();
    order.sort_by_cached_key(|cpu| {
        (worth(machine, cpus, nic_node, *cpu), queue_counts.get(cpu).copied().unwrap_or(0), *cpu)
    });
    order
}

pub(super) fn worth(machine: &MachineState, cpus: &CpuSet, nic_node: Option<u32>, cpu: u32) -> Worth {
    let core = machine.siblings_of(cpu);
    let earlier_threads =
        core.map_or(0, |core| core.iter().filter(|other| *other < cpu && cpus.contains(*other)).count());
    (earlier_threads, nic_node.is_some() && machine.node_of(cpu) != nic_node)
}

impl SpreadPolicy {
    pub fn cpus(&self, path: &PacketPath) -> Option<CpuSet> {
        let usable: CpuSet = usable_cpus(path)?.iter().filter(|cpu| !self.free.contains(*cpu)).collect();
        Some(match self.second_threads {
            SecondThreads::Last => usable,
            SecondThreads::Never => {
                usable.iter().filter(|cpu| worth(&path.machine, &usable, None, *cpu).0 == 0).collect()
            }
        })
    }
}

pub(super) fn node_of_link(link: &LinkState) -> Option<u32> {
    link.node.value().copied().flatten()
}
