//! A CPU for the interrupt of each queue.

use std::collections::{BTreeMap, BTreeSet};

use super::order::{PacketSpread, node_of_link, order, usable_cpus, worth};
use crate::CpuSet;
use crate::stage::PacketPath;
use crate::stage::irq::IrqVector;
use crate::stage::machine::MachineState;

/// Vectors by receive queue. Drivers such as mlx5 keep the vectors of queues that `ethtool -L`
/// removed, which are left out.
pub(in crate::stage) fn receive_vectors<'a>(
    path: &'a PacketPath,
    interface: &str,
) -> BTreeMap<u32, &'a IrqVector> {
    let count = path.link_of(interface).and_then(|link| link.receive_queues.value().copied());
    by_queue(path, interface, count, |vector| vector.receive_queue)
}

fn by_queue<'a>(
    path: &'a PacketPath,
    interface: &str,
    count: Option<u32>,
    queue_of: impl Fn(&IrqVector) -> Option<u32>,
) -> BTreeMap<u32, &'a IrqVector> {
    let vectors = path.irq.vectors(interface).iter().filter_map(|vector| Some((queue_of(vector)?, vector)));
    vectors.filter(|(queue, _)| count.is_none_or(|count| *queue < count)).collect()
}

/// The CPU of each receive queue when vectors are well spread: the current CPUs if no CPU has two
/// queues while another has none, otherwise the CPUs of [`plan`]. `None` if unknown.
pub(in crate::stage) fn settled_cpus(path: &PacketPath, interface: &str) -> Option<BTreeMap<u32, u32>> {
    let vectors = receive_vectors(path, interface);
    if vectors.is_empty() {
        return None;
    }
    if let Some(current) = cpus(&vectors, IrqVector::cpu) {
        let distinct_cpus: BTreeSet<u32> = current.values().copied().collect();
        if distinct_cpus.len() == current.len().min(usable_cpus(path)?.len()) {
            return Some(current);
        }
    }
    plan(path, interface)
}

/// A CPU for each receive queue: the driver's hint if it is as good as any other placement,
/// otherwise CPUs in order of preference.
pub(in crate::stage) fn plan(path: &PacketPath, interface: &str) -> Option<BTreeMap<u32, u32>> {
    let usable = usable_cpus(path).filter(|cpus| !cpus.is_empty())?;
    let nic_node = path.link_of(interface).and_then(node_of_link);
    let order = order(&path.machine, &usable, nic_node, &BTreeMap::new());
    let vectors = receive_vectors(path, interface);
    let queues: Vec<u32> = vectors.keys().copied().collect();
    let best = assign_in_turn(&queues, &order);
    let hints = cpus(&vectors, IrqVector::hinted_cpu)
        .filter(|hints| is_as_good(&path.machine, nic_node, &order, hints, &best));
    Some(hints.unwrap_or(best))
}

/// The current or hinted CPUs; `None` if a vector has several, or none that is known.
fn cpus(
    vectors: &BTreeMap<u32, &IrqVector>,
    cpu_of: impl Fn(&IrqVector) -> Option<u32>,
) -> Option<BTreeMap<u32, u32>> {
    vectors.iter().map(|(queue, vector)| Some((*queue, cpu_of(vector)?))).collect()
}

fn assign_in_turn(queues: &[u32], order: &[u32]) -> BTreeMap<u32, u32> {
    queues.iter().copied().zip(order.iter().copied().cycle()).collect()
}

/// Whether a placement uses as many CPUs as another, with the same preference, and no CPU for more
/// queues.
fn is_as_good(
    machine: &MachineState,
    nic_node: Option<u32>,
    order: &[u32],
    candidate: &BTreeMap<u32, u32>,
    best: &BTreeMap<u32, u32>,
) -> bool {
    let cpus: CpuSet = order.iter().copied().collect();
    let score = |placement: &BTreeMap<u32, u32>| {
        let mut queue_counts: BTreeMap<u32, usize> = BTreeMap::new();
        placement.values().for_each(|cpu| *queue_counts.entry(*cpu).or_default() += 1);
        // The second thread of a core is as good as the first if the first has no queue.
        let used_cpus: CpuSet = queue_counts.keys().copied().collect();
        let mut worths: Vec<_> =
            queue_counts.keys().map(|cpu| worth(machine, &used_cpus, nic_node, *cpu)).collect();
        worths.sort_unstable();
        (worths, queue_counts.values().max().copied())
    };
    candidate.values().all(|cpu| cpus.contains(*cpu)) && score(candidate) == score(best)
}

/// The interrupts of an interface on CPUs in this order: the current placement if it is as good as
/// any other, otherwise the driver's hint if it is as good, otherwise in turn. Queues with packets
/// go first. RPS and XPS are not filled in yet.
pub(super) fn place_vectors(
    path: &PacketPath,
    interface: &str,
    order: &[u32],
    keeps_interrupts: bool,
) -> PacketSpread {
    let vectors = receive_vectors(path, interface);
    let transmit_count = path.link_of(interface).and_then(|link| link.transmit_queues.value().copied());
    let by_transmit_queue = by_queue(path, interface, transmit_count, |vector| vector.transmit_queue);
    let mut spread = PacketSpread { interface: interface.to_owned(), ..PacketSpread::default() };
    spread.managed = vectors.values().chain(by_transmit_queue.values()).any(|vector| vector.is_managed());
    if spread.managed || keeps_interrupts {
        let current = |vectors: &BTreeMap<u32, &IrqVector>| {
            vectors.iter().filter_map(|(queue, vector)| Some((*queue, vector.cpu()?))).collect()
        };
        spread.receive_interrupts = current(&vectors);
        spread.transmit_interrupts = current(&by_transmit_queue);
        return spread;
    }
    let reached_queues = super::receive::reached_queues(path, interface);
    let is_reached =
        |queue: &u32| reached_queues.as_ref().is_none_or(|reached_queues| reached_queues.contains(queue));
    let (mut queues, silent_queues): (Vec<u32>, Vec<u32>) = vectors.keys().copied().partition(is_reached);
    queues.extend(silent_queues);
    let best = assign_in_turn(&queues, order);
    let nic_node = path.link_of(interface).and_then(node_of_link);
    spread.receive_interrupts = [cpus(&vectors, IrqVector::cpu), cpus(&vectors, IrqVector::hinted_cpu)]
        .into_iter()
        .flatten()
        .find(|placement| is_as_good(&path.machine, nic_node, order, placement, &best))
        .unwrap_or(best);
    spread.transmit_interrupts = place_transmit_queues(&by_transmit_queue, &spread.receive_interrupts, order);
    spread
}

/// A transmit queue follows the receive queue with the same number. Other transmit queues go to the
/// CPU with the fewest queues.
fn place_transmit_queues(
    vectors: &BTreeMap<u32, &IrqVector>,
    receive: &BTreeMap<u32, u32>,
    order: &[u32],
) -> BTreeMap<u32, u32> {
    let mut queue_counts: BTreeMap<u32, usize> = BTreeMap::new();
    let mut placement = BTreeMap::new();
    for (queue, cpu) in vectors.keys().filter_map(|queue| Some((*queue, *receive.get(queue)?))) {
        placement.insert(queue, cpu);
        *queue_counts.entry(cpu).or_default() += 1;
    }
    for queue in vectors.keys().filter(|queue| !receive.contains_key(queue)) {
        // If several CPUs have equally few queues, the first one.
        let Some(cpu) = order.iter().min_by_key(|cpu| queue_counts.get(cpu).copied().unwrap_or(0)) else {
            continue;
        };
        placement.insert(*queue, *cpu);
        *queue_counts.entry(*cpu).or_default() += 1;
    }
    placement
}
