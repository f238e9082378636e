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

pub(in crate::stage) use interrupts::{plan, receive_vectors, settled_cpus};
use order::node_of_link;
pub use order::{PacketSpread, RpsTarget, SecondThreads, SpreadPolicy, order, usable_cpus};
pub(in crate::stage) use receive::{add_own_cpu, reached_queues, rps_targets};
pub(in crate::stage) use transmit::{cpus_by_transmit_queue, effective_xps};

impl PacketSpread {
    /// The best spread of the packets of all interfaces with a device. A current placement that is
    /// as good stays unchanged. `None` if the CPUs are unknown, or no CPU may process packets.
    pub fn of(path: &PacketPath, policy: &SpreadPolicy) -> Option<Vec<Self>> {
        let cpus = policy.cpus(path).filter(|cpus| !cpus.is_empty())?;
        let mut queue_counts: BTreeMap<u32, usize> = BTreeMap::new();
        let mut spreads: Vec<Self> = Vec::new();
        for link in path.link.iter().filter(|link| has_own_queues(path, link)) {
            let order = order(&path.machine, &cpus, node_of_link(link), &queue_counts);
            let keeps_interrupts = policy.interrupts_stay || policy.stays.contains(&link.interface);
            let spread = interrupts::place_vectors(path, &link.interface, &order, keeps_interrupts);
            for cpu in spread.receive_interrupts.values() {
                *queue_counts.entry(*cpu).or_default() += 1;
            }
            spreads.push(spread);
        }
        let queueless_cpus: CpuSet =
            cpus.iter().filter(|cpu| !receives_packets(path, &spreads, *cpu)).collect();
        for spread in &mut spreads {
            spread.receive = receive::receive(path, spread, &cpus, &queueless_cpus, policy.handing);
            spread.transmit = transmit::transmit(path, &spread.interface, &spread.transmit_interrupts);
        }
        Some(spreads)
    }

    /// Whether the spread uses more CPUs for packets than now, or the current number is unknown.
    pub fn uses_more_cpus(&self, path: &PacketPath) -> bool {
        let current_sets = || {
            let queues = receive::reached_queues(path, &self.interface)?;
            let sets = queues.iter().map(|queue| path.stack_cpus(&self.interface, *queue));
            sets.collect::<Option<Vec<CpuSet>>>()
        };
        let target_cpus = |queue: u32, own_cpu: u32| match self.receive.get(&queue) {
            Some(cpus) if !cpus.is_empty() => cpus.clone(),
            _ => CpuSet::from_iter([own_cpu]),
        };
        let planned_sets =
            receive::sources(path, self).into_iter().map(|(queue, own_cpu)| target_cpus(queue, own_cpu));
        let planned_cpus: CpuSet = planned_sets.flatten().collect();
        let current_cpus: Option<CpuSet> = current_sets().map(|sets| sets.into_iter().flatten().collect());
        current_cpus.is_none_or(|current_cpus| planned_cpus.len() > current_cpus.len())
    }
}

/// What tells a placement from another one: its CPUs, and counts that are better if they are lower.
type Score = (Vec<u32>, [usize; 3]);

/// Whether a placement has the same CPUs as the best one, and no higher count.
fn is_as_good((cpus, counts): &Score, (best_cpus, best_counts): &Score) -> bool {
    cpus == best_cpus && counts.iter().zip(best_counts).all(|(count, best)| count <= best)
}

/// Packets of veth, tun and similar interfaces are processed on the sender's CPU, those of a virtual
/// function by its queues.
pub(in crate::stage) fn has_own_queues(path: &PacketPath, link: &LinkState) -> bool {
    match link.device.value() {
        Some(device) => *device != DeviceKind::Software && !link.receives_by_vf(),
        None => !path.irq.vectors(&link.interface).is_empty(),
    }
}

/// Whether a queue with packets interrupts this CPU.
fn receives_packets(path: &PacketPath, spreads: &[PacketSpread], cpu: u32) -> bool {
    spreads.iter().any(|spread| receive::sources(path, spread).values().any(|own_cpu| *own_cpu == cpu))
}
