//! RPS: the CPUs without a queue, and the queue from which each gets packets.

use std::collections::{BTreeMap, BTreeSet};

use super::order::{PacketSpread, RpsTarget};
use crate::CpuSet;
use crate::stage::PacketPath;
use crate::stage::machine::MachineState;

/// With this many other CPUs, distributing packets is enough work for the queue's CPU
/// (Documentation/networking/scaling.rst).
const MANY: usize = 4;

/// The receive queues that get packets: the queues in the indirection table, or all queues without
/// a table. `None` if unknown.
pub(in crate::stage) fn reached_queues(path: &PacketPath, interface: &str) -> Option<BTreeSet<u32>> {
    let rps = path.softirq.rps_queues(interface);
    let table = path.rss_of(interface).and_then(|rss| rss.table.value()).and_then(Option::as_ref);
    let table = table.filter(|table| !table.is_empty());
    let numbers = rps.iter().map(|item| item.queue);
    let queues: BTreeSet<u32> =
        numbers.filter(|queue| table.is_none_or(|table| table.contains(queue))).collect();
    (!queues.is_empty()).then_some(queues)
}

/// The CPU of each queue that gets packets.
pub(super) fn sources(path: &PacketPath, spread: &PacketSpread) -> BTreeMap<u32, u32> {
    let reached_queues = reached_queues(path, &spread.interface);
    let is_reached =
        |queue: &u32| reached_queues.as_ref().is_none_or(|reached_queues| reached_queues.contains(queue));
    spread
        .receive_interrupts
        .iter()
        .filter(|(queue, _)| is_reached(queue))
        .map(|(queue, cpu)| (*queue, *cpu))
        .collect()
}

/// The queue of each CPU without one: among the queues of its node, the queue with the fewest
/// targets, preferably not on its own core.
pub(in crate::stage) fn rps_targets(
    machine: &MachineState,
    sources: &BTreeMap<u32, u32>,
    queueless_cpus: &CpuSet,
    target: RpsTarget,
) -> BTreeMap<u32, BTreeSet<u32>> {
    let mut targets: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for cpu in queueless_cpus.iter().filter(|_| target != RpsTarget::None) {
        let (node, core) = (machine.node_of(cpu), machine.siblings_of(cpu));
        let is_near = |own_cpu: u32| machine.node_of(own_cpu) == node;
        let has_near = sources.values().any(|own_cpu| is_near(*own_cpu));
        if !has_near && target == RpsTarget::OwnNode {
            continue;
        }
        let best_queue = sources.iter().filter(|(_, own_cpu)| !has_near || is_near(**own_cpu)).min_by_key(
            |(queue, own_cpu)| {
                let same_core = core.is_some_and(|core| core.contains(**own_cpu));
                (targets.get(queue).map_or(0, BTreeSet::len), same_core, **queue)
            },
        );
        if let Some((queue, _)) = best_queue {
            targets.entry(*queue).or_default().insert(cpu);
        }
    }
    targets
}

/// Adds the queue's own CPU, unless there are [`MANY`] other CPUs.
pub(in crate::stage) fn add_own_cpu(mut cpus: BTreeSet<u32>, own_cpu: Option<u32>) -> CpuSet {
    if cpus.len() < MANY {
        cpus.extend(own_cpu);
    }
    cpus.into_iter().collect()
}

/// RPS of each queue. Current masks that spread packets as evenly stay unchanged.
pub(super) fn receive(
    path: &PacketPath,
    spread: &PacketSpread,
    cpus: &CpuSet,
    queueless_cpus: &CpuSet,
    target: RpsTarget,
) -> BTreeMap<u32, CpuSet> {
    let queues = path.softirq.rps_queues(&spread.interface);
    let sources = sources(path, spread);
    // The kernel removes isolated CPUs from a mask (`rps_cpumask_housekeeping`,
    // net/core/net-sysfs.c, Linux 6.18), even the queue's own.
    let own_cpu_of = |queue: &u32| sources.get(queue).copied().filter(|own_cpu| cpus.contains(*own_cpu));
    let current_masks: Option<BTreeMap<u32, &CpuSet>> =
        queues.iter().map(|item| Some((item.queue, item.cpus.value()?))).collect();
    let (Some(current_masks), false) = (current_masks, sources.is_empty()) else { return BTreeMap::new() };
    let targets = rps_targets(&path.machine, &sources, queueless_cpus, target);
    let current_targets = targets_of_masks(&current_masks, &sources, own_cpu_of);
    if current_targets
        .as_ref()
        .is_some_and(|current_targets| is_as_even(&path.machine, &sources, current_targets, &targets))
    {
        return current_masks.into_iter().map(|(queue, cpus)| (queue, cpus.clone())).collect();
    }
    let mask_of = |queue: &u32| {
        let targets = targets.get(queue).filter(|targets| !targets.is_empty());
        targets.map_or_else(CpuSet::new, |targets| add_own_cpu(targets.clone(), own_cpu_of(queue)))
    };
    current_masks.keys().map(|queue| (*queue, mask_of(queue))).collect()
}

/// The targets of masks without each queue's own CPU; `None` if the masks do not have the form of
/// [`add_own_cpu`], or belong to queues without packets.
fn targets_of_masks(
    masks: &BTreeMap<u32, &CpuSet>,
    sources: &BTreeMap<u32, u32>,
    own_cpu_of: impl Fn(&u32) -> Option<u32>,
) -> Option<BTreeMap<u32, BTreeSet<u32>>> {
    let active_masks = masks.iter().filter(|(_, cpus)| !cpus.is_empty());
    active_masks
        .map(|(queue, cpus)| {
            let own_cpu = *sources.get(queue)?;
            let targets: BTreeSet<u32> = cpus.iter().filter(|cpu| *cpu != own_cpu).collect();
            let has_form = !targets.is_empty() && add_own_cpu(targets.clone(), own_cpu_of(queue)) == **cpus;
            has_form.then_some((*queue, targets))
        })
        .collect()
}

/// Whether `candidate` is as good as `best`: it reaches the same CPUs, no more of them from another
/// node or from their own core, and no queue has more CPUs.
fn is_as_even(
    machine: &MachineState,
    sources: &BTreeMap<u32, u32>,
    candidate: &BTreeMap<u32, BTreeSet<u32>>,
    best: &BTreeMap<u32, BTreeSet<u32>>,
) -> bool {
    let score = |targets: &BTreeMap<u32, BTreeSet<u32>>| {
        let pairs = || {
            targets.iter().flat_map(|(queue, cpus)| cpus.iter().map(move |cpu| (sources.get(queue), *cpu)))
        };
        let mut cpus: Vec<u32> = pairs().map(|(_, cpu)| cpu).collect();
        cpus.sort_unstable();
        let far_count = pairs()
            .filter(|(own_cpu, cpu)| {
                own_cpu.is_none_or(|own_cpu| machine.node_of(*own_cpu) != machine.node_of(*cpu))
            })
            .count();
        let same_core =
            |own_cpu: &u32, cpu: u32| machine.siblings_of(*own_cpu).is_some_and(|core| core.contains(cpu));
        let same_core_count =
            pairs().filter(|(own_cpu, cpu)| own_cpu.is_some_and(|own_cpu| same_core(own_cpu, *cpu))).count();
        (cpus, [far_count, same_core_count, targets.values().map(BTreeSet::len).max().unwrap_or(0)])
    };
    super::is_as_good(&score(candidate), &score(best))
}
