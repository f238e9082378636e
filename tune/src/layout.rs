//! The CPUs of the queues of interfaces, and the changes that place the queues on them.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::setting::QueueDirection;
use linerate_host::stage::irq::IrqVector;
use linerate_host::stage::spread::{PacketSpread, RpsTarget};
use linerate_host::{CpuSet, PacketPath, Setting, SettingValue};

use crate::plan::{InterfaceLayout, QueueLayout};
use crate::profile::CpuPolicy;

/// The mechanism that places packets on CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PlacementOwner {
    Interrupts,
    Receive,
    Transmit,
}

/// A setting that places packets on CPUs.
#[derive(Debug, Clone)]
pub(crate) struct PlacementSetting {
    pub(crate) setting: Setting,
    // The current value; `None` if unknown.
    pub(crate) from: Option<SettingValue>,
    pub(crate) to: SettingValue,
}

impl PlacementOwner {
    // The mechanism of a setting. `None` for a setting that does not place packets.
    pub(crate) fn of(setting: &Setting) -> Option<Self> {
        match setting {
            Setting::IrqAffinity { .. } => Some(PlacementOwner::Interrupts),
            Setting::QueueCpus { direction: QueueDirection::Receive, .. } => Some(PlacementOwner::Receive),
            Setting::QueueCpus { direction: QueueDirection::Transmit, .. } => Some(PlacementOwner::Transmit),
            _ => None,
        }
    }
}

/// The values that a spread requires of the settings of one kind.
pub(crate) fn placements(
    path: &PacketPath,
    spread: &PacketSpread,
    owner: PlacementOwner,
    cpus: &CpuPolicy,
) -> Vec<PlacementSetting> {
    match owner {
        PlacementOwner::Interrupts if spread.managed || cpus.policy.interrupts_stay => Vec::new(),
        PlacementOwner::Interrupts => interrupts(path, spread),
        PlacementOwner::Receive if cpus.policy.handing == RpsTarget::None => Vec::new(),
        PlacementOwner::Receive => queue_cpus(path, spread, QueueDirection::Receive, &spread.receive),
        PlacementOwner::Transmit if cpus.xps => {
            queue_cpus(path, spread, QueueDirection::Transmit, &spread.transmit)
        }
        PlacementOwner::Transmit => Vec::new(),
    }
}

/// The known CPUs of RPS or XPS, by queue.
pub(crate) fn current_cpus(
    path: &PacketPath,
    interface: &str,
    direction: QueueDirection,
) -> BTreeMap<u32, CpuSet> {
    match direction {
        QueueDirection::Receive => {
            let queues = path.softirq.rps_queues(interface).iter();
            queues.filter_map(|item| Some((item.queue, item.cpus.value()?.clone()))).collect()
        }
        QueueDirection::Transmit => {
            let queues = path.transmit_of(interface).into_iter().flat_map(|transmit| transmit.queues());
            queues.filter_map(|item| Some((item.queue, item.xps_cpus.value()?.as_ref()?.clone()))).collect()
        }
    }
}

fn interrupts(path: &PacketPath, spread: &PacketSpread) -> Vec<PlacementSetting> {
    let vectors = path.irq.vectors(&spread.interface).iter();
    let placements = vectors.filter_map(|vector| {
        let receive = vector.receive_queue.and_then(|queue| spread.receive_interrupts.get(&queue));
        let transmit = vector.transmit_queue.and_then(|queue| spread.transmit_interrupts.get(&queue));
        let to = CpuSet::from_iter([*receive.or(transmit)?]);
        Some(interrupt(vector, vector.affinity.value(), &to))
    });
    placements.collect()
}

fn interrupt(vector: &IrqVector, current: Option<&CpuSet>, to: &CpuSet) -> PlacementSetting {
    let setting = Setting::IrqAffinity { irq: vector.irq, action: vector.name.clone() };
    PlacementSetting { setting, from: current.map(mask), to: mask(to) }
}

// The CPUs of the interrupts of an interface's queues. `None` if the kernel manages them.
pub(crate) fn current_interrupts(path: &PacketPath, spread: &PacketSpread) -> Vec<PlacementSetting> {
    let vectors = path.irq.vectors(&spread.interface).iter().filter(|_| !spread.managed);
    let queue_vectors =
        vectors.filter(|vector| vector.receive_queue.is_some() || vector.transmit_queue.is_some());
    let placements = queue_vectors.filter_map(|vector| {
        let current = vector.affinity.value()?;
        Some(interrupt(vector, Some(current), current))
    });
    placements.collect()
}

fn queue_cpus(
    path: &PacketPath,
    spread: &PacketSpread,
    direction: QueueDirection,
    targets: &BTreeMap<u32, CpuSet>,
) -> Vec<PlacementSetting> {
    let current = current_cpus(path, &spread.interface, direction);
    let placement = |(queue, to): (&u32, &CpuSet)| {
        let setting = Setting::QueueCpus { interface: spread.interface.clone(), direction, queue: *queue };
        PlacementSetting { setting, from: current.get(queue).map(mask), to: mask(to) }
    };
    targets.iter().map(placement).collect()
}

fn mask(cpus: &CpuSet) -> SettingValue {
    SettingValue::new(cpus.to_mask())
}

pub(crate) fn interface_layout(spread: &PacketSpread, cpus: &CpuPolicy) -> InterfaceLayout {
    let interrupts = [&spread.receive_interrupts, &spread.transmit_interrupts];
    let cpu_sets = [&spread.receive, &spread.transmit];
    let numbers: BTreeSet<&u32> = interrupts
        .iter()
        .flat_map(|by_queue| by_queue.keys())
        .chain(cpu_sets.iter().flat_map(|by_queue| by_queue.keys()))
        .collect();
    let cpu_list = |masks: &BTreeMap<u32, CpuSet>, queue: u32, is_set: bool| {
        masks.get(&queue).filter(|_| is_set).map_or_else(String::new, ToString::to_string)
    };
    let queue = |queue: u32| QueueLayout {
        queue,
        interrupt: interrupts.iter().find_map(|by_queue| by_queue.get(&queue)).copied(),
        receive: cpu_list(&spread.receive, queue, cpus.policy.handing != RpsTarget::None),
        transmit: cpu_list(&spread.transmit, queue, cpus.xps),
    };
    let queues = numbers.into_iter().copied().map(queue).collect();
    InterfaceLayout { interface: spread.interface.clone(), queues }
}

/// The CPUs that process packets with these spreads, in the order of use.
pub(crate) fn cpus(path: &PacketPath, spreads: &[PacketSpread], cpus: &CpuPolicy) -> Vec<u32> {
    let Some(permitted) = cpus.policy.cpus(path) else { return Vec::new() };
    let node = spreads.first().and_then(|spread| path.link_of(&spread.interface)?.node.value().copied()?);
    let order = linerate_host::stage::spread::order(&path.machine, &permitted, node, &BTreeMap::new());
    let used_cpus: BTreeSet<u32> = spreads
        .iter()
        .flat_map(|spread| {
            let rps_cpus = spread.receive.values().flat_map(CpuSet::iter);
            spread.receive_interrupts.values().copied().chain(rps_cpus)
        })
        .collect();
    order.into_iter().filter(|cpu| used_cpus.is_empty() || used_cpus.contains(cpu)).collect()
}
