//! Bits of each interface with a known speed.

use std::collections::BTreeMap;

use linerate_host::Host;

use super::LinkDemand;

/// Preamble, checksum and gap of an Ethernet frame, bytes; the counters contain none of them.
const FRAME_OVERHEAD: u64 = 24;

/// With a smaller part of the packets, the service's part of the bits is not known well enough.
const LEAST_SHARE: f64 = 0.25;

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

    /// The busier direction of interfaces of whose packets the service has a large part.
    pub(super) fn since(&self, before: &Self, seconds: f64, datagrams: u64) -> Vec<LinkDemand> {
        let link_demand = |(name, (speed, now)): (&String, &(u64, [[u64; 2]; 2]))| {
            let (_, before) = before.0.get(name)?;
            let bits_per_second = *speed as f64 * 1e6;
            let growth = |direction: usize, counter: usize| {
                now[direction][counter].saturating_sub(before[direction][counter])
            };
            if growth(0, 1) < datagrams.max(1) {
                return None;
            }
            let directions = [0, 1].into_iter().filter_map(|direction| {
                let (bytes, packets) = (growth(direction, 0), growth(direction, 1));
                let own_share = (datagrams as f64 / packets.max(1) as f64).min(1.0);
                let used_bits_per_second = (bytes + packets * FRAME_OVERHEAD) as f64 * 8.0 / seconds;
                (own_share >= LEAST_SHARE).then(|| LinkDemand {
                    interface: name.clone(),
                    bits_per_second,
                    used_bits_per_second,
                    own_bits_per_second: used_bits_per_second * own_share,
                })
            });
            directions.min_by(|left, right| left.growth().total_cmp(&right.growth()))
        };
        self.0.iter().filter_map(link_demand).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_traffic_of_a_link_does_not_grow() {
        let counters = |received: [u64; 2], sent: [u64; 2]| {
            LinkCounters([("eth0".to_owned(), (1_000, [received, sent]))].into())
        };
        let before = counters([0; 2], [0; 2]);
        // Packets of 101 bytes, with the overhead 1,000 bits.
        let service = [1_010_000, 10_000];
        let copy = [7_500_000, 5_000];
        let with_copy = [service[0] + copy[0], service[1] + copy[1]];
        for (received, sent, expected) in [
            (service, service, Some((10e6, 10e6))),
            (with_copy, service, Some((70.96e6, 70.96e6 / 1.5))),
            (service, [90 * copy[0], 90 * copy[1]], Some((10e6, 10e6))),
            ([90 * copy[0], 90 * copy[1]], [90 * copy[0], 90 * copy[1]], None),
            ([1_000, 10], service, None),
        ] {
            let links = counters(received, sent).since(&before, 1.0, 10_000);
            let bits = links.first().map(|link| (link.used_bits_per_second, link.own_bits_per_second));
            assert_eq!(bits, expected, "{received:?} {sent:?}");
        }
    }
}
