//! The best placement of packets: the CPU of each queue, the RPS targets, and the transmit queue of
//! each CPU. One order of CPUs decides all three, so that they agree.
//!
//! Rules use the parts to propose fixes; [`PacketSpread::of`] is the whole, for a plan.

mod interrupts;
#[cfg(test)]
mod properties;
mod receive;
#[cfg(test)]
mod tests;
mod transmit;

use std::collections::{BTreeMap, BTreeSet};

use crate::CpuSet;
use crate::stage::PacketPath;
use crate::stage::link::{DeviceKind, LinkState};
use crate::stage::machine::MachineState;

pub(in crate::stage) use interrupts::{plan, receive_vectors, settled};
pub(in crate::stage) use receive::{handed_on, reached, with_own};
pub(in crate::stage) use transmit::{heeds_xps, queue_of_each_cpu};

/// Options of a spread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpreadPolicy {
    pub second_threads: SecondThreads,
    pub handing: RpsTarget,
    /// CPUs without packets, in addition to isolated ones.
    pub free: CpuSet,
    pub interrupts_stay: bool,
    /// Interfaces whose interrupts stay although others' move.
    pub stays: BTreeSet<String>,
}

/// Whether second hardware threads of cores process packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SecondThreads {
    /// After all first ones.
    #[default]
    Last,
    Never,
}

/// RPS targets if there are fewer queues than CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RpsTarget {
    None,
    /// CPUs without a queue on nodes that have one.
    #[default]
    OwnNode,
    /// Also CPUs on nodes without any queue.
    EveryNode,
}

/// The placement of an interface's packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketSpread {
    pub interface: String,
    /// The CPU of each receive queue's interrupt, if it can be determined.
    pub receive_interrupts: BTreeMap<u32, u32>,
    pub transmit_interrupts: BTreeMap<u32, u32>,
    /// Whether the kernel manages the affinities, so that they stay.
    pub managed: bool,
    /// RPS of each receive queue, empty for none. Queues are missing if unknown, or without an
    /// interrupt to start from.
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

/// The preference of a CPU for a NIC, lowest first: number of hardware threads before it in its
/// core, and whether it is on another node than the NIC.
type Worth = (usize, bool);

/// CPUs in order of preference for a NIC on this node: cores of the node, cores of other nodes,
/// then second threads in the same order; those with fewer queues first.
pub fn order(
    machine: &MachineState,
    cpus: &CpuSet,
    near: Option<u32>,
    queues_of: &BTreeMap<u32, usize>,
) -> Vec<u32> {
    let mut order: Vec<u32> = cpus.iter().collect();
    order.sort_by_cached_key(|cpu| {
        (worth(machine, cpus, near, *cpu), queues_of.get(cpu).copied().unwrap_or(0), *cpu)
    });
    order
}

fn worth(machine: &MachineState, cpus: &CpuSet, near: Option<u32>, cpu: u32) -> Worth {
    let core = machine.siblings_of(cpu);
    let before =
        core.map_or(0, |core| core.iter().filter(|other| *other < cpu && cpus.contains(*other)).count());
    (before, near.is_some() && machine.node_of(cpu) != near)
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

impl PacketSpread {
    /// The best spread of the packets of all interfaces with a device. A placement as good as the
    /// best stays as it is. `None` if the CPUs are unknown, or no CPU may process packets.
    pub fn of(path: &PacketPath, policy: &SpreadPolicy) -> Option<Vec<Self>> {
        let cpus = policy.cpus(path).filter(|cpus| !cpus.is_empty())?;
        let mut queues_of: BTreeMap<u32, usize> = BTreeMap::new();
        let mut all: Vec<Self> = Vec::new();
        for link in path.link.iter().filter(|link| has_queues_of_its_own(path, link)) {
            let order = order(&path.machine, &cpus, near(link), &queues_of);
            let spread = Self::with_interrupts(path, link, &order, policy);
            for cpu in spread.receive_interrupts.values() {
                *queues_of.entry(*cpu).or_default() += 1;
            }
            all.push(spread);
        }
        let without: CpuSet = cpus.iter().filter(|cpu| !takes_packets(path, &all, *cpu)).collect();
        for spread in &mut all {
            spread.receive = receive::receive(path, spread, &cpus, &without, policy.handing);
            spread.transmit = transmit::transmit(path, &spread.interface, &spread.transmit_interrupts);
        }
        Some(all)
    }

    fn with_interrupts(path: &PacketPath, link: &LinkState, order: &[u32], policy: &SpreadPolicy) -> Self {
        let interface = link.interface.clone();
        let stay = policy.interrupts_stay || policy.stays.contains(&interface);
        let placed = interrupts::placed(path, &interface, order, stay);
        Self {
            interface,
            receive_interrupts: placed.receive,
            transmit_interrupts: placed.transmit,
            managed: placed.managed,
            receive: BTreeMap::new(),
            transmit: BTreeMap::new(),
        }
    }
}

impl PacketSpread {
    /// Whether it uses more CPUs for packets than now, or if that is unknown.
    pub fn takes_more_cpus(&self, path: &PacketPath) -> bool {
        let now = || {
            let queues = receive::reached(path, &self.interface)?;
            let all = queues.iter().map(|queue| path.stack_cpus(&self.interface, *queue));
            all.collect::<Option<Vec<CpuSet>>>()
        };
        let handed = |queue: u32, own: u32| match self.receive.get(&queue) {
            Some(cpus) if !cpus.is_empty() => cpus.clone(),
            _ => CpuSet::from_iter([own]),
        };
        let then = receive::sources(path, self).into_iter().map(|(queue, own)| handed(queue, own));
        let then: CpuSet = then.flatten().collect();
        let now: Option<CpuSet> = now().map(|cpus| cpus.into_iter().flatten().collect());
        now.is_none_or(|now| then.len() > now.len())
    }
}

/// Packets of veth, tun and similar interfaces are processed on the sender's CPU.
fn has_queues_of_its_own(path: &PacketPath, link: &LinkState) -> bool {
    match link.device.value() {
        Some(device) => *device != DeviceKind::Software,
        None => !path.irq.vectors(&link.interface).is_empty(),
    }
}

/// Whether a queue with packets interrupts this CPU.
fn takes_packets(path: &PacketPath, spreads: &[PacketSpread], cpu: u32) -> bool {
    spreads.iter().any(|spread| receive::sources(path, spread).values().any(|own| *own == cpu))
}

fn near(link: &LinkState) -> Option<u32> {
    link.node.value().copied().flatten()
}
