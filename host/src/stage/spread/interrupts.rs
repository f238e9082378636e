//! A CPU for the interrupt of each queue.

use std::collections::{BTreeMap, BTreeSet};

use super::order::{near, order, usable_cpus, worth};
use crate::CpuSet;
use crate::stage::PacketPath;
use crate::stage::irq::IrqVector;
use crate::stage::machine::MachineState;

pub(super) struct PlacedVectors {
    pub(super) receive: BTreeMap<u32, u32>,
    pub(super) transmit: BTreeMap<u32, u32>,
    pub(super) managed: bool,
}

/// Vectors by receive queue.
pub(in crate::stage) fn receive_vectors<'a>(
    path: &'a PacketPath,
    interface: &str,
) -> BTreeMap<u32, &'a IrqVector> {
    let vectors = path.irq.vectors(interface).iter();
    vectors.filter_map(|vector| vector.receive_queue.map(|queue| (queue, vector))).collect()
}

/// Vectors by transmit queue.
fn transmit_vectors<'a>(path: &'a PacketPath, interface: &str) -> BTreeMap<u32, &'a IrqVector> {
    let vectors = path.irq.vectors(interface).iter();
    vectors.filter_map(|vector| vector.transmit_queue.map(|queue| (queue, vector))).collect()
}

/// The CPU of each receive queue when vectors are well spread: the current CPUs if no CPU has two
/// queues while another has none, otherwise the CPUs of [`plan`]. `None` if unknown.
pub(in crate::stage) fn settled(path: &PacketPath, interface: &str) -> Option<BTreeMap<u32, u32>> {
    let vectors = receive_vectors(path, interface);
    if vectors.is_empty() {
        return None;
    }
    if let Some(now) = now(&vectors) {
        let distinct: BTreeSet<u32> = now.values().copied().collect();
        if distinct.len() == now.len().min(usable_cpus(path)?.len()) {
            return Some(now);
        }
    }
    plan(path, interface)
}

/// A CPU for each receive queue: the driver's hint if it is as good as any other placement,
/// otherwise CPUs in order of preference.
pub(in crate::stage) fn plan(path: &PacketPath, interface: &str) -> Option<BTreeMap<u32, u32>> {
    let usable = usable_cpus(path).filter(|cpus| !cpus.is_empty())?;
    let near = path.link_of(interface).and_then(near);
    let order = order(&path.machine, &usable, near, &BTreeMap::new());
    let vectors = receive_vectors(path, interface);
    let queues: Vec<u32> = vectors.keys().copied().collect();
    let best = in_turn(&queues, &order);
    let hinted = hinted(&vectors).filter(|hinted| as_good(&path.machine, near, &order, hinted, &best));
    Some(hinted.unwrap_or(best))
}

/// `None` if a vector has several CPUs, or if its CPU is unknown.
fn now(vectors: &BTreeMap<u32, &IrqVector>) -> Option<BTreeMap<u32, u32>> {
    vectors.iter().map(|(queue, vector)| Some((*queue, vector.cpu()?))).collect()
}

/// `None` if the driver hints at no CPU, or at several, for a vector.
fn hinted(vectors: &BTreeMap<u32, &IrqVector>) -> Option<BTreeMap<u32, u32>> {
    vectors.iter().map(|(queue, vector)| Some((*queue, vector.hinted_cpu()?))).collect()
}

fn in_turn(queues: &[u32], order: &[u32]) -> BTreeMap<u32, u32> {
    queues.iter().copied().zip(order.iter().copied().cycle()).collect()
}

/// Whether a placement uses as many CPUs as another, with the same preference, and no CPU for more
/// queues.
fn as_good(
    machine: &MachineState,
    near: Option<u32>,
    order: &[u32],
    one: &BTreeMap<u32, u32>,
    best: &BTreeMap<u32, u32>,
) -> bool {
    let cpus: CpuSet = order.iter().copied().collect();
    let of = |placed: &BTreeMap<u32, u32>| {
        let mut queues_of: BTreeMap<u32, usize> = BTreeMap::new();
        placed.values().for_each(|cpu| *queues_of.entry(*cpu).or_default() += 1);
        // The second thread of a core is as good as the first if the first has no queue.
        let used: CpuSet = queues_of.keys().copied().collect();
        let mut worths: Vec<_> = queues_of.keys().map(|cpu| worth(machine, &used, near, *cpu)).collect();
        worths.sort_unstable();
        (worths, queues_of.values().max().copied())
    };
    one.values().all(|cpu| cpus.contains(*cpu)) && of(one) == of(best)
}

/// The interrupts of an interface on CPUs in this order: the current placement if it is as good as
/// any other, otherwise the driver's hint if it is as good, otherwise in turn. Queues with packets
/// go first.
pub(super) fn placed(path: &PacketPath, interface: &str, order: &[u32], stay: bool) -> PlacedVectors {
    let vectors = receive_vectors(path, interface);
    let of_transmit = transmit_vectors(path, interface);
    let managed = vectors.values().chain(of_transmit.values()).any(|vector| vector.is_managed());
    if managed || stay {
        let now = |vectors: &BTreeMap<u32, &IrqVector>| {
            vectors.iter().filter_map(|(queue, vector)| Some((*queue, vector.cpu()?))).collect()
        };
        return PlacedVectors { receive: now(&vectors), transmit: now(&of_transmit), managed };
    }
    let reached = super::receive::reached(path, interface);
    let is_reached = |queue: &u32| reached.as_ref().is_none_or(|reached| reached.contains(queue));
    let (mut queues, rest): (Vec<u32>, Vec<u32>) = vectors.keys().copied().partition(is_reached);
    queues.extend(rest);
    let best = in_turn(&queues, order);
    let near = path.link_of(interface).and_then(near);
    let receive = [now(&vectors), hinted(&vectors)]
        .into_iter()
        .flatten()
        .find(|placed| as_good(&path.machine, near, order, placed, &best))
        .unwrap_or(best);
    let transmit = of_transmit_queues(&of_transmit, &receive, order);
    PlacedVectors { receive, transmit, managed }
}

/// A transmit queue follows the receive queue with the same number. Other transmit queues go to the
/// CPU with the fewest queues.
fn of_transmit_queues(
    vectors: &BTreeMap<u32, &IrqVector>,
    receive: &BTreeMap<u32, u32>,
    order: &[u32],
) -> BTreeMap<u32, u32> {
    let mut queues_of: BTreeMap<u32, usize> = BTreeMap::new();
    let mut placed = BTreeMap::new();
    for (queue, cpu) in vectors.keys().filter_map(|queue| Some((*queue, *receive.get(queue)?))) {
        placed.insert(queue, cpu);
        *queues_of.entry(cpu).or_default() += 1;
    }
    for queue in vectors.keys().filter(|queue| !receive.contains_key(queue)) {
        // If several CPUs have equally few queues, the first one.
        let Some(cpu) = order.iter().min_by_key(|cpu| queues_of.get(cpu).copied().unwrap_or(0)) else {
            continue;
        };
        placed.insert(*queue, *cpu);
        *queues_of.entry(*cpu).or_default() += 1;
    }
    placed
}
