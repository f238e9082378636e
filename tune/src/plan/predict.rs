//! Predicts a host after some changes, as far as the placement of packets depends on it.

use std::collections::BTreeSet;

use linerate_host::setting::{QueueDirection, table_entries};
use linerate_host::stage::irq::IrqVector;
use linerate_host::stage::softirq::RpsQueue;
use linerate_host::stage::transmit::TransmitQueueState;
use linerate_host::{CpuSet, Known, PacketPath, Setting, SettingValue};

const NOT_YET: &str = "it is to be made";

/// The host after changes of channels, tables and CPUs of queues. Other changes do not matter here.
pub(super) fn after<'a>(
    path: &PacketPath,
    changes: impl Iterator<Item = (&'a Setting, &'a SettingValue)>,
) -> PacketPath {
    let mut path = path.clone();
    for (setting, to) in changes {
        match setting {
            Setting::Channels { interface } => set_channels(&mut path, interface, to),
            Setting::RssTable { interface } => set_table(&mut path, interface, to),
            Setting::IrqAffinity { irq, .. } => set_affinity(&mut path, *irq, to),
            Setting::QueueCpus { interface, direction, queue } => {
                set_queue_cpus(&mut path, interface, *direction, *queue, to);
            }
            _ => {}
        }
    }
    path
}

/// Numbers of receive and transmit queues after the change.
fn queue_counts(path: &PacketPath, interface: &str, to: &SettingValue) -> Option<(u32, u32)> {
    let mut channels = path.link_of(interface)?.channels.value().copied()??;
    let mut words = to.as_str().split_whitespace();
    while let (Some(name), Some(count)) = (words.next(), words.next()) {
        let count = count.parse().ok()?;
        match name {
            "rx" => channels.rx = count,
            "tx" => channels.tx = count,
            "combined" => channels.combined = count,
            _ => return None,
        }
    }
    Some((channels.rx.saturating_add(channels.combined), channels.tx.saturating_add(channels.combined)))
}

/// New queues have vectors of unknown state, and no other settings. The table is then the default
/// of drivers, which names all queues.
fn set_channels(path: &mut PacketPath, interface: &str, to: &SettingValue) {
    let Some((receive, transmit)) = queue_counts(path, interface, to) else { return };
    if let Some(link) = path.link.iter_mut().find(|link| link.interface == interface) {
        link.receive_queues = Known::Value(receive);
        link.transmit_queues = Known::Value(transmit);
    }
    if let Some(rss) = path.rss.iter_mut().find(|rss| rss.interface == interface) {
        rss.table = Known::Value(None);
    }
    if let Some(item) = path.irq.interfaces.iter_mut().find(|item| item.interface == interface) {
        let vector = |queue: u32| IrqVector {
            irq: 0,
            name: String::new(),
            receive_queue: (queue < receive).then_some(queue),
            transmit_queue: (queue < transmit).then_some(queue),
            affinity: Known::unknown(NOT_YET),
            effective: Known::unknown(NOT_YET),
            hint: Known::unknown(NOT_YET),
            handled: Vec::new(),
            managed: Known::unknown(NOT_YET),
        };
        item.vectors = Known::Value((0..receive.max(transmit)).map(vector).collect());
    }
    if let Some(rps) = path.softirq.rps.iter_mut().find(|rps| rps.interface == interface) {
        let queue = |queue| RpsQueue {
            queue,
            cpus: Known::Value(CpuSet::new()),
            flow_count: Known::unknown(NOT_YET),
        };
        rps.queues = Known::Value((0..receive).map(queue).collect());
    }
    if let Some(item) = path.transmit.iter_mut().find(|item| item.interface == interface) {
        let queue = |queue| TransmitQueueState {
            queue,
            xps_cpus: Known::Value(Some(CpuSet::new())),
            xps_receive_queues: Known::Value(None),
            timeouts: Known::unknown(NOT_YET),
            limit_bytes: Known::unknown(NOT_YET),
            packets: Known::unknown(NOT_YET),
            packets_read_from: None,
        };
        item.queues = Known::Value((0..transmit).map(queue).collect());
    }
}

fn set_table(path: &mut PacketPath, interface: &str, to: &SettingValue) {
    let Some(rss) = path.rss.iter_mut().find(|rss| rss.interface == interface) else { return };
    if let Known::Value(Some(current)) = &rss.table
        && let Some(entries) = table_entries(to, current.len())
    {
        rss.table = Known::Value(Some(entries));
    }
}

fn set_affinity(path: &mut PacketPath, irq: u32, to: &SettingValue) {
    let Some(cpus) = mask(to) else { return };
    for item in &mut path.irq.interfaces {
        let Known::Value(vectors) = &mut item.vectors else { continue };
        for vector in vectors.iter_mut().filter(|vector| vector.irq == irq) {
            vector.affinity = Known::Value(cpus.clone());
            if matches!(vector.effective, Known::Value(Some(_))) {
                vector.effective = Known::Value(Some(cpus.iter().take(1).collect()));
            }
        }
    }
}

fn set_queue_cpus(
    path: &mut PacketPath,
    interface: &str,
    direction: QueueDirection,
    queue: u32,
    to: &SettingValue,
) {
    let Some(cpus) = mask(to) else { return };
    match direction {
        QueueDirection::Receive => {
            for rps in path.softirq.rps.iter_mut().filter(|rps| rps.interface == interface) {
                let Known::Value(queues) = &mut rps.queues else { continue };
                for item in queues.iter_mut().filter(|item| item.queue == queue) {
                    item.cpus = Known::Value(cpus.clone());
                }
            }
        }
        QueueDirection::Transmit => {
            for transmit in path.transmit.iter_mut().filter(|transmit| transmit.interface == interface) {
                let Known::Value(queues) = &mut transmit.queues else { continue };
                for item in queues.iter_mut().filter(|item| item.queue == queue) {
                    item.xps_cpus = Known::Value(Some(cpus.clone()));
                }
            }
        }
    }
}

fn mask(value: &SettingValue) -> Option<CpuSet> {
    CpuSet::from_mask(value.as_str().split_whitespace().next()?).ok()
}

/// Interfaces whose channels will change, so that the current settings of their queues do not
/// count.
pub(super) fn reshaped<'a>(settings: impl Iterator<Item = &'a Setting>) -> BTreeSet<&'a str> {
    let channels = settings.filter_map(|setting| match setting {
        Setting::Channels { interface } => Some(interface.as_str()),
        _ => None,
    });
    channels.collect()
}
