//! Interfaces.

use linerate_host::PacketPath;
use linerate_host::stage::link::{DeviceKind, LinkState};

use super::{CounterReset, GatheredSamples, source_id};
use crate::metrics::families::{
    LINK_INFO, LINK_QUEUES, LINK_RECEIVE_BYTES, LINK_RECEIVE_PACKETS, LINK_RING, LINK_SPEED,
    LINK_TRANSMIT_BYTES, LINK_TRANSMIT_PACKETS, LINK_UP,
};
use crate::metrics::family::MetricFamily;

/// The kernel's counters of an interface, and whose they are here.
static TOTALS: [(&str, &MetricFamily); 4] = [
    ("rx_packets", &LINK_RECEIVE_PACKETS),
    ("rx_bytes", &LINK_RECEIVE_BYTES),
    ("tx_packets", &LINK_TRANSMIT_PACKETS),
    ("tx_bytes", &LINK_TRANSMIT_BYTES),
];

pub(super) fn gather(path: &PacketPath, all: &mut GatheredSamples) {
    path.link.iter().for_each(|link| of_link(link, all));
}

/// What tells an interface from an earlier one of its name.
pub(super) fn interface_identity(path: &PacketPath, interface: &str) -> (u64, CounterReset) {
    let index = path.link_of(interface).and_then(|link| link.index.value());
    (source_id(index), CounterReset::Anew)
}

fn of_link(link: &LinkState, all: &mut GatheredSamples) {
    let name = link.interface.as_str();
    if let Some(up) = link.up.value() {
        all.add_gauge(&LINK_UP, &[name], f64::from(u8::from(*up)));
    }
    let device = link.device.value().map(|device| match device {
        DeviceKind::Hardware => "hardware",
        DeviceKind::Virtio => "virtio",
        DeviceKind::Software => "software",
    });
    if let (Some(device), Some(driver)) = (device, link.driver.value()) {
        let driver = driver.as_ref().map_or("none", |driver| driver.name.as_str());
        all.add_gauge(&LINK_INFO, &[name, driver, device], 1.0);
    }
    if let Some(Some(speed)) = link.speed_bits_per_second.value() {
        all.add_integer_gauge(&LINK_SPEED, &[name], *speed);
    }
    for (direction, queues) in [("receive", &link.receive_queues), ("transmit", &link.transmit_queues)] {
        if let Some(queues) = queues.value() {
            all.add_gauge(&LINK_QUEUES, &[name, direction], f64::from(*queues));
        }
    }
    if let Some(Some(rings)) = link.rings.value() {
        all.add_gauge(&LINK_RING, &[name, "receive"], f64::from(rings.rx));
        all.add_gauge(&LINK_RING, &[name, "transmit"], f64::from(rings.tx));
    }
    for (counter, family) in &TOTALS {
        if let Some(value) = link.totals.value().and_then(|totals| totals.get(*counter)) {
            all.add_source_counter(
                family,
                &[name],
                (source_id(link.index.value()), CounterReset::Anew),
                *value,
            );
        }
    }
}
