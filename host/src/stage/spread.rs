//! The best placement of packets: the CPU of each queue, the RPS targets, and the transmit queue of
//! each CPU. One order of CPUs decides all three, so that they agree.
//!
//! Rules use parts of a placement to propose fixes; [`PacketSpread::of`] computes all of it for a
//! plan.

mod interrupts;
mod order;
#[cfg(test)]
mod properties;
mod receive;
#[cfg(test)]
mod tests;
mod transmit;

use std::collections::BTreeMap;

use crate::CpuSet;
use crate::stage::PacketPath;
use crate::stage::link::{DeviceKind, LinkState};

pub(in crate::stage) use interrupts::{plan, receive_vectors, settled};
use order::near;
pub use order::{PacketSpread, RpsTarget, SecondThreads, SpreadPolicy, order, usable_cpus};
pub(in crate::stage) use receive::{handed_on, reached, with_own};
pub(in crate::stage) use transmit::{heeds_xps, queue_of_each_cpu};

impl PacketSpread {
    /// The best spread of the packets of all interfaces with a device. A current placement that is
    /// as good stays unchanged. `None` if the CPUs are unknown, or no CPU may process packets.
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
    /// Whether the spread uses more CPUs for packets than now, or the current number is unknown.
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
