//! Bits of each interface with a known speed.

use std::collections::BTreeMap;

use linerate_host::Host;

use super::LinkDemand;

/// Preamble, checksum and gap of an Ethernet frame, bytes; the counters contain none of them.
const FRAME_OVERHEAD: u64 = 24;

/// Counters of interfaces with a device, by name: speed in Mbit/s, then bytes and packets of both directions.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct LinkCounters(BTreeMap<String, (u64, [[u64; 2]; 2])>);

impl LinkCounters {
    pub(super) fn observe(host: &Host) -> Self {
        let names = host.list("/sys/class/net").unwrap_or_default();
        let read = |name: &str, file: &str| -> Option<u64> {
            host.read(&format!("/sys/class/net/{name}/{file}")).ok()?.trim().parse().ok()
        };
        let link_counters = |name: &String| {
            // The speed of a virtual interface limits nothing.
            host.list(&format!("/sys/class/net/{name}/device")).ok()?;
            let speed = read(name, "speed").filter(|speed| *speed > 0)?;
            let count = |counter: &str| read(name, &format!("statistics/{counter}"));
            let rx = [count("rx_bytes")?, count("rx_packets")?];
            Some((name.clone(), (speed, [rx, [count("tx_bytes")?, count("tx_packets")?]])))
        };
        Self(names.iter().filter_map(link_counters).collect())
    }

    /// Interfaces with at least `datagrams` packets since `before`.
    pub(super) fn since(&self, before: &Self, seconds: f64, datagrams: u64) -> Vec<LinkDemand> {
        let link_demand = |(name, (speed, now)): (&String, &(u64, [[u64; 2]; 2]))| {
            let (_, before) = before.0.get(name)?;
            let growth = [0, 1].map(|direction: usize| {
                [0, 1]
                    .map(|counter: usize| now[direction][counter].saturating_sub(before[direction][counter]))
            });
            let bits =
                growth.map(|[bytes, packets]| (bytes + packets * FRAME_OVERHEAD) as f64 * 8.0 / seconds);
            (growth[0][1] >= datagrams.max(1)).then(|| LinkDemand {
                interface: name.clone(),
                bits_per_second: *speed as f64 * 1e6,
                used_bits_per_second: bits[0].max(bits[1]),
            })
        };
        self.0.iter().filter_map(link_demand).collect()
    }
}
