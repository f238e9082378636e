//! XPS: the transmit queue of each CPU.

use std::collections::BTreeMap;

use crate::CpuSet;
use crate::stage::PacketPath;
use crate::stage::link::LinkState;
use crate::stage::machine::MachineState;
use crate::stage::transmit::TransmitQueueState;

/// Drivers that choose the transmit queue themselves and ignore XPS. This one uses a table from the
/// hypervisor (`netvsc_select_queue`, drivers/net/hyperv/netvsc_drv.c, Linux 6.18).
const CHOOSE_THEMSELVES: [&str; 1] = ["hv_netvsc"];

/// XPS of each transmit queue; `None` if the XPS of a queue is unknown, with a single queue,
/// without XPS, if the driver ignores XPS, or if queues are chosen by receive queue.
pub(in crate::stage) fn effective_xps<'a>(
    path: &'a PacketPath,
    link: &LinkState,
) -> Option<Vec<(u32, &'a CpuSet)>> {
    let driver = link.driver.value().and_then(Option::as_ref);
    if driver.is_some_and(|driver| CHOOSE_THEMSELVES.contains(&driver.name.as_str())) {
        return None;
    }
    let by_receive_queue = |queue: &TransmitQueueState| match queue.xps_receive_queues.value() {
        Some(Some(queues)) => !queues.is_empty(),
        _ => false,
    };
    let queues = path.transmit_of(&link.interface)?.queues();
    if queues.len() < 2 || queues.iter().any(by_receive_queue) {
        return None;
    }
    queues.iter().map(|queue| Some((queue.queue, queue.xps_cpus.value()?.as_ref()?))).collect()
}

/// The CPUs of each transmit queue. Each CPU gets the queue that interrupts it. Other CPUs get the
/// queue with the fewest CPUs among the queues that interrupt their node, or if there are none,
/// among all.
pub(in crate::stage) fn cpus_by_transmit_queue(
    machine: &MachineState,
    queues: &[u32],
    interrupts: &BTreeMap<u32, u32>,
    cpus: &CpuSet,
) -> BTreeMap<u32, CpuSet> {
    let mut cpus_of_queue: BTreeMap<u32, Vec<u32>> =
        queues.iter().map(|queue| (*queue, Vec::new())).collect();
    let mut unassigned: Vec<u32> = cpus.iter().collect();
    for (queue, queue_cpus) in &mut cpus_of_queue {
        if let Some(cpu) = interrupts.get(queue).filter(|cpu| unassigned.contains(cpu)) {
            queue_cpus.push(*cpu);
            unassigned.retain(|other| other != cpu);
        }
    }
    for cpu in unassigned {
        let node = machine.node_of(cpu);
        let is_far = |queue: u32, queue_cpus: &[u32]| match interrupts.get(&queue) {
            Some(interrupt) => machine.node_of(*interrupt) != node,
            None => queue_cpus.iter().any(|other| machine.node_of(*other) != node),
        };
        let best_queue = cpus_of_queue
            .iter_mut()
            .min_by_key(|(queue, queue_cpus)| (is_far(**queue, queue_cpus), queue_cpus.len(), **queue));
        if let Some((_, queue_cpus)) = best_queue {
            queue_cpus.push(cpu);
        }
    }
    cpus_of_queue.into_iter().map(|(queue, queue_cpus)| (queue, queue_cpus.into_iter().collect())).collect()
}

/// XPS of each queue of an interface. Current masks that are as good stay unchanged.
pub(super) fn transmit(
    path: &PacketPath,
    interface: &str,
    interrupts: &BTreeMap<u32, u32>,
) -> BTreeMap<u32, CpuSet> {
    let (Some(cpus), Some(current_masks)) =
        (path.machine.online.value(), path.link_of(interface).and_then(|link| effective_xps(path, link)))
    else {
        return BTreeMap::new();
    };
    let queues: Vec<u32> = current_masks.iter().map(|(queue, _)| *queue).collect();
    let best = cpus_by_transmit_queue(&path.machine, &queues, interrupts, cpus);
    // Masks may contain offline CPUs, which do no harm.
    let without_offline = |set: &CpuSet| set.iter().filter(|cpu| cpus.contains(*cpu)).collect();
    let online_masks = current_masks.iter().map(|(queue, set)| (*queue, without_offline(set))).collect();
    if is_as_good(&path.machine, interrupts, &online_masks, &best) {
        current_masks.into_iter().map(|(queue, set)| (queue, set.clone())).collect()
    } else {
        best
    }
}

/// Whether `candidate` is as good as `best`: it has the same CPUs, as many of them have the queue
/// of their interrupt and a queue of their node, and no queue has more CPUs.
fn is_as_good(
    machine: &MachineState,
    interrupts: &BTreeMap<u32, u32>,
    candidate: &BTreeMap<u32, CpuSet>,
    best: &BTreeMap<u32, CpuSet>,
) -> bool {
    let score = |masks: &BTreeMap<u32, CpuSet>| {
        let pairs = || masks.iter().flat_map(|(queue, set)| set.iter().map(move |cpu| (*queue, cpu)));
        let mut cpus: Vec<u32> = pairs().map(|(_, cpu)| cpu).collect();
        cpus.sort_unstable();
        let other_count = pairs().filter(|(queue, cpu)| interrupts.get(queue) != Some(cpu)).count();
        let is_far = |queue: u32, cpu: u32| {
            interrupts.get(&queue).is_none_or(|own_cpu| machine.node_of(*own_cpu) != machine.node_of(cpu))
        };
        let far_count = pairs().filter(|(queue, cpu)| is_far(*queue, *cpu)).count();
        (cpus, [other_count, far_count, masks.values().map(CpuSet::len).max().unwrap_or(0)])
    };
    super::is_as_good(&score(candidate), &score(best))
}
