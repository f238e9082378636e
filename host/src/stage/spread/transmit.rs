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
pub(in crate::stage) fn heeds_xps<'a>(
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
pub(in crate::stage) fn queue_of_each_cpu(
    machine: &MachineState,
    queues: &[u32],
    interrupts: &BTreeMap<u32, u32>,
    cpus: &CpuSet,
) -> BTreeMap<u32, CpuSet> {
    let mut of: BTreeMap<u32, Vec<u32>> = queues.iter().map(|queue| (*queue, Vec::new())).collect();
    let mut left: Vec<u32> = cpus.iter().collect();
    for (queue, own) in &mut of {
        if let Some(cpu) = interrupts.get(queue).filter(|cpu| left.contains(cpu)) {
            own.push(*cpu);
            left.retain(|other| other != cpu);
        }
    }
    for cpu in left {
        let node = machine.node_of(cpu);
        let is_far = |queue: u32, own: &[u32]| match interrupts.get(&queue) {
            Some(interrupt) => machine.node_of(*interrupt) != node,
            None => own.iter().any(|other| machine.node_of(*other) != node),
        };
        let best = of.iter_mut().min_by_key(|(queue, own)| (is_far(**queue, own), own.len(), **queue));
        if let Some((_, own)) = best {
            own.push(cpu);
        }
    }
    of.into_iter().map(|(queue, own)| (queue, own.into_iter().collect())).collect()
}

/// XPS of each queue of an interface. Current masks that are as good stay unchanged.
pub(super) fn transmit(
    path: &PacketPath,
    interface: &str,
    interrupts: &BTreeMap<u32, u32>,
) -> BTreeMap<u32, CpuSet> {
    let (Some(cpus), Some(now)) =
        (path.machine.online.value(), path.link_of(interface).and_then(|link| heeds_xps(path, link)))
    else {
        return BTreeMap::new();
    };
    let queues: Vec<u32> = now.iter().map(|(queue, _)| *queue).collect();
    let best = queue_of_each_cpu(&path.machine, &queues, interrupts, cpus);
    // Masks may contain offline CPUs, which do no harm.
    let online = |set: &CpuSet| set.iter().filter(|cpu| cpus.contains(*cpu)).collect();
    let judged = now.iter().map(|(queue, set)| (*queue, online(set))).collect();
    if is_as_good(&path.machine, interrupts, &judged, &best) {
        now.into_iter().map(|(queue, set)| (queue, set.clone())).collect()
    } else {
        best
    }
}

/// Whether `one` is as good as `best`: it has the same CPUs, as many of them have the queue of
/// their interrupt and a queue of their node, and no queue has more CPUs.
fn is_as_good(
    machine: &MachineState,
    interrupts: &BTreeMap<u32, u32>,
    one: &BTreeMap<u32, CpuSet>,
    best: &BTreeMap<u32, CpuSet>,
) -> bool {
    let judge = |masks: &BTreeMap<u32, CpuSet>| {
        let pairs = || masks.iter().flat_map(|(queue, set)| set.iter().map(move |cpu| (*queue, cpu)));
        let mut cpus: Vec<u32> = pairs().map(|(_, cpu)| cpu).collect();
        cpus.sort_unstable();
        let own = pairs().filter(|(queue, cpu)| interrupts.get(queue) == Some(cpu)).count();
        let near = |queue: u32, cpu: u32| {
            interrupts.get(&queue).is_some_and(|own| machine.node_of(*own) == machine.node_of(cpu))
        };
        let near = pairs().filter(|(queue, cpu)| near(*queue, *cpu)).count();
        (cpus, own, near, masks.values().map(CpuSet::len).max())
    };
    let ((cpus, own, near, most), (best_cpus, best_own, best_near, best_most)) = (judge(one), judge(best));
    cpus == best_cpus && own >= best_own && near >= best_near && most <= best_most
}
