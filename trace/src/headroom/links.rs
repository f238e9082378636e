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
        let of = |name: &String| {
            // The speed of a virtual interface limits nothing.
            host.list(&format!("/sys/class/net/{name}/device")).ok()?;
            let speed = read(name, "speed").filter(|speed| *speed > 0)?;
            let count = |what: &str| read(name, &format!("statistics/{what}"));
            let rx = [count("rx_bytes")?, count("rx_packets")?];
            Some((name.clone(), (speed, [rx, [count("tx_bytes")?, count("tx_packets")?]])))
        };
        Self(names.iter().filter_map(of).collect())
    }

    /// Interfaces with at least `datagrams` packets since `before`.
    pub(super) fn since(&self, before: &Self, seconds: f64, datagrams: u64) -> Vec<LinkDemand> {
        let of = |(name, (speed, now)): (&String, &(u64, [[u64; 2]; 2]))| {
            let (_, before) = before.0.get(name)?;
            let grown = [0, 1]
                .map(|way: usize| [0, 1].map(|what: usize| now[way][what].saturating_sub(before[way][what])));
            let bits =
                grown.map(|[bytes, packets]| (bytes + packets * FRAME_OVERHEAD) as f64 * 8.0 / seconds);
            (grown[0][1] >= datagrams.max(1)).then(|| LinkDemand {
                interface: name.clone(),
                bits_per_second: *speed as f64 * 1e6,
                used_bits_per_second: bits[0].max(bits[1]),
            })
        };
        self.0.iter().filter_map(of).collect()
    }
}
