//! Where the vectors of an interface would best go.

use std::collections::{BTreeMap, BTreeSet};

use super::Vector;
use crate::CpuSet;
use crate::finding::Sighting;
use crate::setting::{Setting, Value};
use crate::stage::PacketPath;

/// CPUs that may take packets: those online, without those kept from everything. None where they are not known.
pub(in crate::stage) fn usable_cpus(path: &PacketPath) -> Option<CpuSet> {
    let online = path.machine.online.value()?;
    let isolated = path.irq.isolated.value().and_then(Option::as_ref);
    Some(online.iter().filter(|cpu| !isolated.is_some_and(|set| set.contains(*cpu))).collect())
}

/// The vectors that serve receive queues, by queue.
pub(in crate::stage) fn receive_vectors<'a>(
    path: &'a PacketPath,
    interface: &str,
) -> BTreeMap<u32, &'a Vector> {
    let vectors = path.irq.vectors(interface).iter();
    vectors.filter_map(|vector| vector.receive_queue.map(|queue| (queue, vector))).collect()
}

/// The one CPU of each receive queue, as it would be with the vectors well spread: where they are now if no CPU has two
/// while another has none, else where [`plan`] puts them. None where that is not known.
pub(in crate::stage) fn settled(path: &PacketPath, interface: &str) -> Option<BTreeMap<u32, u32>> {
    let vectors = receive_vectors(path, interface);
    if vectors.is_empty() {
        return None;
    }
    let now: Option<BTreeMap<u32, u32>> =
        vectors.iter().map(|(queue, vector)| vector.cpu().map(|cpu| (*queue, cpu))).collect();
    if let Some(now) = now {
        let distinct: BTreeSet<u32> = now.values().copied().collect();
        if distinct.len() == now.len().min(usable_cpus(path)?.len()) {
            return Some(now);
        }
    }
    plan(path, interface)
}

/// A CPU for each receive queue: what the driver hints if that gives each queue its own, else the CPUs in order of
/// worth: cores of the NIC's node, cores of other nodes, then the second threads of cores.
pub(super) fn plan(path: &PacketPath, interface: &str) -> Option<BTreeMap<u32, u32>> {
    let usable = usable_cpus(path).filter(|cpus| !cpus.is_empty())?;
    let vectors = receive_vectors(path, interface);
    if let Some(hinted) = hinted(&vectors, &usable) {
        return Some(hinted);
    }
    let node = path.link_of(interface).and_then(|link| link.node.value().copied().flatten());
    let mut order: Vec<u32> = usable.iter().collect();
    order.sort_by_key(|cpu| {
        let second = path.machine.siblings_of(*cpu).is_some_and(|core| core.iter().next() != Some(*cpu));
        let far = node.is_some() && path.machine.node_of(*cpu) != node;
        (second, far, *cpu)
    });
    Some(vectors.keys().copied().zip(order.iter().copied().cycle()).collect())
}

/// What the driver hints, if it hints one CPU for each queue and no two queues share one while there are enough.
fn hinted(vectors: &BTreeMap<u32, &Vector>, usable: &CpuSet) -> Option<BTreeMap<u32, u32>> {
    let hinted: BTreeMap<u32, u32> = vectors
        .iter()
        .map(|(queue, vector)| {
            vector.hinted_cpu().filter(|cpu| usable.contains(*cpu)).map(|cpu| (*queue, cpu))
        })
        .collect::<Option<_>>()?;
    let distinct: BTreeSet<u32> = hinted.values().copied().collect();
    (distinct.len() == vectors.len().min(usable.len())).then_some(hinted)
}

/// Adds to a sighting the changes that put each vector where `plan` has its queue, and says first who else sets them.
pub(super) fn mend(
    mut sighting: Sighting,
    path: &PacketPath,
    interface: &str,
    plan: &BTreeMap<u32, u32>,
) -> Sighting {
    let moved: Vec<(&Vector, u32)> = path
        .irq
        .vectors(interface)
        .iter()
        .filter(|vector| vector.managed.value().copied().flatten() != Some(true))
        .filter_map(|vector| {
            let queue = vector.receive_queue.or(vector.transmit_queue)?;
            let cpu = *plan.get(&queue)?;
            (vector.cpu() != Some(cpu)).then_some((vector, cpu))
        })
        .collect();
    sighting =
        super::owner::told(sighting, path, &moved.iter().map(|(vector, _)| vector.irq).collect::<Vec<_>>());
    for (vector, cpu) in moved {
        let from = vector.affinity.value().map(|cpus| Value::new(cpus.to_mask()));
        let to = Value::new(CpuSet::from_iter([cpu]).to_mask());
        sighting = sighting.change(Setting::IrqAffinity { irq: vector.irq }, from, to);
    }
    sighting
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::irq::sample::{Machine, path};

    fn shown(plan: Option<BTreeMap<u32, u32>>) -> Vec<u32> {
        plan.map_or_else(Vec::new, |plan| plan.into_values().collect())
    }

    #[test]
    fn hints_are_followed_where_each_queue_has_its_own_cpu() {
        let path =
            path(&Machine { hints: Some(&[3, 2, 1, 0]), vectors: &[0, 0, 0, 0], ..Machine::default() });
        assert_eq!(shown(plan(&path, "eth0")), [3, 2, 1, 0]);
        let path_of_one_hint = crate::stage::irq::sample::path(&Machine {
            hints: Some(&[0, 0, 0, 0]),
            vectors: &[0, 0, 0, 0],
            ..Machine::default()
        });
        assert_eq!(shown(plan(&path_of_one_hint, "eth0")), [0, 1, 2, 3]);
    }

    #[test]
    fn cores_of_the_nics_node_come_first_and_second_threads_last() {
        let machine = Machine {
            nodes: &["0-1,4-5", "2-3,6-7"],
            cores: &["0,4", "1,5", "2,6", "3,7"],
            nic_node: Some(1),
            vectors: &[0; 8],
            ..Machine::default()
        };
        assert_eq!(shown(plan(&path(&machine), "eth0")), [2, 3, 0, 1, 6, 7, 4, 5]);
    }

    #[test]
    fn isolated_cpus_get_none_and_more_queues_than_cpus_go_round() {
        let machine = Machine { isolated: "2-3", vectors: &[0; 5], ..Machine::default() };
        assert_eq!(shown(plan(&path(&machine), "eth0")), [0, 1, 0, 1, 0]);
    }

    #[test]
    fn what_is_spread_stays_where_it_is() {
        let machine = Machine { vectors: &[2, 0], hints: Some(&[0, 1]), ..Machine::default() };
        assert_eq!(shown(settled(&path(&machine), "eth0")), [2, 0]);
        let machine = Machine { vectors: &[2, 2], hints: Some(&[0, 1]), ..Machine::default() };
        assert_eq!(shown(settled(&path(&machine), "eth0")), [0, 1]);
        assert_eq!(settled(&path(&machine), "eth9"), None);
    }
}
