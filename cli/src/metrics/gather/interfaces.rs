//! Interfaces and their queues.

use linerate_host::PacketPath;
use linerate_host::stage::link::{DeviceKind, LinkState};

use super::{CounterReset, GatheredSamples, source_id};
use crate::metrics::families::{
    IRQ_CPU, IRQ_HANDLED, LINK_INFO, LINK_QUEUES, LINK_RECEIVE_BYTES, LINK_RECEIVE_PACKETS, LINK_RING,
    LINK_SPEED, LINK_TRANSMIT_BYTES, LINK_TRANSMIT_PACKETS, LINK_UP, LOST_PACKETS, QDISC_BACKLOG,
    QDISC_PACKETS, QDISC_REQUEUES, RSS_DROPPED_PACKETS, RSS_RECEIVE_BYTES, RSS_RECEIVE_PACKETS,
    TRANSMIT_PACKETS, TRANSMIT_TIMEOUTS,
};
use crate::metrics::family::MetricFamily;

// The kernel's counters of an interface, and their families.
static TOTALS: [(&str, &MetricFamily); 4] = [
    ("rx_packets", &LINK_RECEIVE_PACKETS),
    ("rx_bytes", &LINK_RECEIVE_BYTES),
    ("tx_packets", &LINK_TRANSMIT_PACKETS),
    ("tx_bytes", &LINK_TRANSMIT_BYTES),
];

pub(super) fn link(path: &PacketPath, samples: &mut GatheredSamples) {
    path.link.iter().for_each(|link| link_counters(link, samples));
}

// Distinguishes an interface from an earlier one of the same name.
pub(super) fn interface_identity(path: &PacketPath, interface: &str) -> (u64, CounterReset) {
    let index = path.link_of(interface).and_then(|link| link.index.value());
    (source_id(index), CounterReset::Restarted)
}

fn link_counters(link: &LinkState, samples: &mut GatheredSamples) {
    let name = link.interface.as_str();
    samples.add_gauge(&LINK_UP, &[name], link.up.value().map(|is_up| f64::from(u8::from(*is_up))));
    let device = link.device.value().map(|device| match device {
        DeviceKind::Hardware => "hardware",
        DeviceKind::Virtio => "virtio",
        DeviceKind::Software => "software",
    });
    if let (Some(device), Some(driver)) = (device, link.driver.value()) {
        let driver = driver.as_ref().map_or("none", |driver| driver.name.as_str());
        samples.add_gauge(&LINK_INFO, &[name, driver, device], 1.0);
    }
    samples.add_integer_gauge(&LINK_SPEED, &[name], link.speed_bits_per_second.value().copied().flatten());
    for (direction, queues) in [("receive", &link.receive_queues), ("transmit", &link.transmit_queues)] {
        samples.add_gauge(&LINK_QUEUES, &[name, direction], queues.value().copied().map(f64::from));
    }
    if let Some(Some(rings)) = link.rings.value() {
        samples.add_gauge(&LINK_RING, &[name, "receive"], f64::from(rings.rx));
        samples.add_gauge(&LINK_RING, &[name, "transmit"], f64::from(rings.tx));
    }
    let source = (source_id(link.index.value()), CounterReset::Restarted);
    for (counter, family) in &TOTALS {
        let count = link.totals.value().and_then(|totals| totals.get(*counter));
        samples.add_source_counter(family, &[name], source, count.copied());
    }
}

pub(super) fn rss(path: &PacketPath, samples: &mut GatheredSamples) {
    for rss in &path.rss {
        let source = interface_identity(path, &rss.interface);
        for counts in rss.counts().unwrap_or_default() {
            let queue = counts.queue.to_string();
            let labels = [rss.interface.as_str(), &queue];
            samples.add_source_counter(&RSS_RECEIVE_PACKETS, &labels, source, counts.packets);
            samples.add_source_counter(&RSS_RECEIVE_BYTES, &labels, source, counts.bytes);
            samples.add_source_counter(&RSS_DROPPED_PACKETS, &labels, source, counts.drops);
        }
    }
}

pub(super) fn irq(path: &PacketPath, samples: &mut GatheredSamples) {
    for item in &path.irq.interfaces {
        for vector in item.vectors.value().into_iter().flatten() {
            let queue = vector.receive_queue.or(vector.transmit_queue);
            let queue = queue.map_or_else(|| "none".to_owned(), |queue| queue.to_string());
            let labels = [item.interface.as_str(), &queue];
            // /proc/interrupts has 32-bit counts, of the CPUs that are online (show_interrupts in
            // kernel/irq/proc.c, Linux 6.18). A queue's transmit side may have a vector of its own.
            for (cpu, interrupts) in &vector.handled {
                let source = (source_id((vector.irq, cpu)), CounterReset::At32Bits);
                samples.add_source_counter(&IRQ_HANDLED, &labels, source, *interrupts);
            }
            if let (Some(_), Some(cpu)) = (vector.receive_queue, vector.cpu()) {
                samples.add_gauge(&IRQ_CPU, &labels, f64::from(cpu));
            }
        }
    }
}

pub(super) fn transmit(path: &PacketPath, samples: &mut GatheredSamples) {
    for transmit in &path.transmit {
        let interface = transmit.interface.as_str();
        let source = interface_identity(path, interface);
        if let Some(root) = transmit.root() {
            // struct gnet_stats_queue has 32-bit counts (include/uapi/linux/gen_stats.h, Linux
            // 6.18).
            let source_32 = (source.0, CounterReset::At32Bits);
            let packets_source = (source.0, qdisc_packets_reset(path));
            samples.add_source_counter(&QDISC_PACKETS, &[interface], packets_source, root.packets);
            samples.add_source_counter(&QDISC_REQUEUES, &[interface], source_32, root.requeues);
            samples.add_integer_gauge(&QDISC_BACKLOG, &[interface], root.backlog);
            let lost_labels = ["transmit", "qdisc", interface, ""];
            samples.add_source_counter(&LOST_PACKETS, &lost_labels, source_32, root.drops);
        }
        for queue in transmit.queues() {
            let number = queue.queue.to_string();
            let labels = [interface, &number];
            let packets = queue.packets.value().copied().flatten();
            samples.add_source_counter(&TRANSMIT_PACKETS, &labels, source, packets);
            samples.add_source_counter(&TRANSMIT_TIMEOUTS, &labels, source, queue.timeouts.value().copied());
        }
    }
}

/// Before Linux 5.5 (`TCA_STATS_PKT64`) the packets of a qdisc are counted with 32 bits.
fn qdisc_packets_reset(path: &PacketPath) -> CounterReset {
    let release = path.machine.kernel.value().map_or("", String::as_str);
    let mut numbers = release.split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < (5, 5) => CounterReset::At32Bits,
        _ => CounterReset::Restarted,
    }
}
