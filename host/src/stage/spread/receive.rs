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
pub(in crate::stage) fn reached(path: &PacketPath, interface: &str) -> Option<BTreeSet<u32>> {
    let rps = path.softirq.rps_queues(interface);
    let table = path.rss_of(interface).and_then(|rss| rss.table.value()).and_then(Option::as_ref);
    let table = table.filter(|table| !table.is_empty());
    let numbers = rps.iter().map(|item| item.queue);
    let reached: BTreeSet<u32> =
        numbers.filter(|queue| table.is_none_or(|table| table.contains(queue))).collect();
    (!reached.is_empty()).then_some(reached)
}

/// The CPU of each queue that gets packets.
pub(super) fn sources(path: &PacketPath, spread: &PacketSpread) -> BTreeMap<u32, u32> {
    let reached = reached(path, &spread.interface);
    let is_reached = |queue: &u32| reached.as_ref().is_none_or(|reached| reached.contains(queue));
    spread
        .receive_interrupts
        .iter()
        .filter(|(queue, _)| is_reached(queue))
        .map(|(queue, cpu)| (*queue, *cpu))
        .collect()
}

/// The queue of each CPU without one: among the queues of its node, the queue with the fewest
/// targets, preferably not on its own core.
pub(in crate::stage) fn handed_on(
    machine: &MachineState,
    sources: &BTreeMap<u32, u32>,
    without: &CpuSet,
    handing: RpsTarget,
) -> BTreeMap<u32, BTreeSet<u32>> {
    let mut extra: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for cpu in without.iter().filter(|_| handing != RpsTarget::None) {
        let (node, core) = (machine.node_of(cpu), machine.siblings_of(cpu));
        let is_near = |own: u32| machine.node_of(own) == node;
        let has_near = sources.values().any(|own| is_near(*own));
        if !has_near && handing == RpsTarget::OwnNode {
            continue;
        }
        let best =
            sources.iter().filter(|(_, own)| !has_near || is_near(**own)).min_by_key(|(queue, own)| {
                let same_core = core.is_some_and(|core| core.contains(**own));
                (extra.get(queue).map_or(0, BTreeSet::len), same_core, **queue)
            });
        if let Some((queue, _)) = best {
            extra.entry(*queue).or_default().insert(cpu);
        }
    }
    extra
}

/// Adds the queue's own CPU, unless there are [`MANY`] other CPUs.
pub(in crate::stage) fn with_own(mut cpus: BTreeSet<u32>, own: Option<u32>) -> CpuSet {
    if cpus.len() < MANY {
        cpus.extend(own);
    }
    cpus.into_iter().collect()
}

/// RPS of each queue. Current masks that spread packets as evenly stay unchanged.
pub(super) fn receive(
    path: &PacketPath,
    spread: &PacketSpread,
    cpus: &CpuSet,
    without: &CpuSet,
    handing: RpsTarget,
) -> BTreeMap<u32, CpuSet> {
    let queues = path.softirq.rps_queues(&spread.interface);
    let sources = sources(path, spread);
    // The kernel removes isolated CPUs from a mask (`rps_cpumask_housekeeping`,
    // net/core/net-sysfs.c, Linux 6.18), even the queue's own.
    let own_of = |queue: &u32| sources.get(queue).copied().filter(|own| cpus.contains(*own));
    let now: Option<BTreeMap<u32, &CpuSet>> =
        queues.iter().map(|item| Some((item.queue, item.cpus.value()?))).collect();
    let (Some(now), false) = (now, sources.is_empty()) else { return BTreeMap::new() };
    let extra = handed_on(&path.machine, &sources, without, handing);
    let already = extra_of(&now, &sources, own_of);
    if already.as_ref().is_some_and(|now| is_as_even(&path.machine, &sources, now, &extra)) {
        return now.into_iter().map(|(queue, cpus)| (queue, cpus.clone())).collect();
    }
    let of = |queue: &u32| {
        let extra = extra.get(queue).filter(|extra| !extra.is_empty());
        extra.map_or_else(CpuSet::new, |extra| with_own(extra.clone(), own_of(queue)))
    };
    now.keys().map(|queue| (*queue, of(queue))).collect()
}

/// The targets of masks without each queue's own CPU; `None` if the masks do not have the form of
/// [`with_own`], or belong to queues without packets.
fn extra_of(
    now: &BTreeMap<u32, &CpuSet>,
    sources: &BTreeMap<u32, u32>,
    own_of: impl Fn(&u32) -> Option<u32>,
) -> Option<BTreeMap<u32, BTreeSet<u32>>> {
    let set = now.iter().filter(|(_, cpus)| !cpus.is_empty());
    set.map(|(queue, cpus)| {
        let own = *sources.get(queue)?;
        let extra: BTreeSet<u32> = cpus.iter().filter(|cpu| *cpu != own).collect();
        let well = !extra.is_empty() && with_own(extra.clone(), own_of(queue)) == **cpus;
        well.then_some((*queue, extra))
    })
    .collect()
}

/// Whether `one` is as good as `other`: it reaches the same CPUs, no more of them from another node
/// or from their own core, and no queue has more CPUs.
fn is_as_even(
    machine: &MachineState,
    sources: &BTreeMap<u32, u32>,
    one: &BTreeMap<u32, BTreeSet<u32>>,
    other: &BTreeMap<u32, BTreeSet<u32>>,
) -> bool {
    let judge = |extra: &BTreeMap<u32, BTreeSet<u32>>| {
        let pairs =
            || extra.iter().flat_map(|(queue, cpus)| cpus.iter().map(move |cpu| (sources.get(queue), *cpu)));
        let mut cpus: Vec<u32> = pairs().map(|(_, cpu)| cpu).collect();
        cpus.sort_unstable();
        let far = pairs()
            .filter(|(own, cpu)| own.is_none_or(|own| machine.node_of(*own) != machine.node_of(*cpu)))
            .count();
        let same_core =
            |own: &u32, cpu: u32| machine.siblings_of(*own).is_some_and(|core| core.contains(cpu));
        let beside = pairs().filter(|(own, cpu)| own.is_some_and(|own| same_core(own, *cpu))).count();
        (cpus, far, beside, extra.values().map(BTreeSet::len).max())
    };
    let ((cpus, far, beside, most), (best_cpus, best_far, best_beside, best_most)) =
        (judge(one), judge(other));
    cpus == best_cpus && far <= best_far && beside <= best_beside && most <= best_most
}
