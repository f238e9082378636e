//! Where the packets of interfaces best go: which CPU takes each queue, to which others RPS hands its packets, and by
//! which queue each CPU sends. One order of CPUs decides all three, so that they agree.
//!
//! Rules use the parts to tell what would fix a finding; [`PacketSpread::of`] is the whole, for a plan.

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

/// What a spread may do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpreadPolicy {
    /// Whether second hardware threads of cores take packets: after all first ones, or never.
    pub second_threads: SecondThreads,
    /// To which CPUs RPS hands packets.
    pub handing: RpsTarget,
    /// CPUs that take no packets, beside those that are isolated.
    pub free: CpuSet,
    /// Whether interrupts stay where they are.
    pub interrupts_stay: bool,
    /// Interfaces whose interrupts stay where they are though others' do not.
    pub stays: BTreeSet<String>,
}

/// Whether second hardware threads of cores take packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SecondThreads {
    /// After all first ones.
    #[default]
    Last,
    /// Never.
    Never,
}

/// To which CPUs RPS hands packets, where queues are fewer than CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RpsTarget {
    /// To none.
    None,
    /// To those without a queue on nodes that have one.
    #[default]
    OwnNode,
    /// To those on nodes without any queue too.
    EveryNode,
}

/// Where the packets of an interface go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketSpread {
    /// The interface.
    pub interface: String,
    /// The CPU of each receive queue's interrupt; without those of which it cannot be told.
    pub receive_interrupts: BTreeMap<u32, u32>,
    /// The CPU of each transmit queue's interrupt.
    pub transmit_interrupts: BTreeMap<u32, u32>,
    /// Whether the kernel manages the interrupts' affinities, so that they stay where they are.
    pub managed: bool,
    /// The CPUs that RPS hands each receive queue's packets to, empty where they stay. No queue is in it where that is not
    /// known, or where there is no interrupt to begin from.
    pub receive: BTreeMap<u32, CpuSet>,
    /// The CPUs that send by each transmit queue. No queue is in it where CPUs do not choose queues.
    pub transmit: BTreeMap<u32, CpuSet>,
}

/// CPUs that may take packets: those online, without those kept from everything. None where they are not known.
#[must_use]
pub fn usable_cpus(path: &PacketPath) -> Option<CpuSet> {
    let online = path.machine.online.value()?;
    let isolated = path.irq.isolated.value().and_then(Option::as_ref);
    Some(online.iter().filter(|cpu| !isolated.is_some_and(|set| set.contains(*cpu))).collect())
}

/// What a CPU is worth to a NIC, best first: how many hardware threads of its core come before it, and whether it is on
/// another node than the NIC.
type Worth = (usize, bool);

/// CPUs in order of worth to a NIC on this node: cores of its node, cores of other nodes, then the second threads of
/// cores in the same order; those with fewer queues before others.
#[must_use]
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
    /// The CPUs that it gives packets.
    #[must_use]
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
    /// The best spread of the packets of all interfaces that are looked at and have a device. What is as good as the
    /// best stays as it is. None where the CPUs are not known, or where none is to take packets.
    #[must_use]
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
    /// Whether packets are processed on more CPUs by it than they are now; also where that is not
    /// known.
    #[must_use]
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

/// Whether it is no software: packets of veth, tun and the like are processed where they were sent from.
fn has_queues_of_its_own(path: &PacketPath, link: &LinkState) -> bool {
    match link.device.value() {
        Some(device) => *device != DeviceKind::Software,
        None => !path.irq.vectors(&link.interface).is_empty(),
    }
}

/// Whether a queue that packets come into interrupts this CPU.
fn takes_packets(path: &PacketPath, spreads: &[PacketSpread], cpu: u32) -> bool {
    spreads.iter().any(|spread| receive::sources(path, spread).values().any(|own| *own == cpu))
}

/// The node of a NIC.
fn near(link: &LinkState) -> Option<u32> {
    link.node.value().copied().flatten()
}
