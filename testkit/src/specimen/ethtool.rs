//! What the kernel answers when asked about an interface by ethtool, netdev and rtnetlink messages.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The host has no such thing.
pub const EOPNOTSUPP: i32 = 95;
/// There is no such family of generic netlink, or no such system call.
pub const ENOENT: i32 = 2;

/// Fields of a packet that go into the hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hashed {
    /// None: virtio says so of all packets where the device has no RSS.
    Nothing,
    Addresses,
    Ports,
}

/// What a driver tells of its interface.
#[derive(Debug, Clone)]
pub struct Ethtool {
    /// Name, version, firmware and place on the bus.
    pub driver: [&'static str; 4],
    /// Receive-only, transmit-only and combined channels in use, and how many of each there can be; none where the driver
    /// does not tell.
    pub channels: Option<[u32; 6]>,
    /// Lengths of the rings for receiving and sending, and how long they can be; none where the driver does not tell.
    pub rings: Option<[u32; 4]>,
    /// Microseconds until an interrupt after a packet; none where the driver does not tell.
    pub interrupt_after: Option<u32>,
    /// Whether generic receive offload is on.
    pub gro: bool,
    /// The indirection table; none where the driver cannot have one, empty where its device has none.
    pub table: Option<Vec<u32>>,
    /// What of a UDP packet goes into the hash; none where the driver does not tell.
    pub udp_hash: Option<Hashed>,
    /// Queues RSS can use, as the driver tells.
    pub table_queues: Option<u32>,
    pub statistics: BTreeMap<String, u64>,
    /// Packets of each receive and each transmit queue as the netdev family tells them; none where the kernel does not.
    pub queue_packets: Option<(Vec<u64>, Vec<u64>)>,
    /// The discipline of each transmit queue, below `mq` where there are several.
    pub discipline: &'static str,
}

fn refused(errno: i32) -> Value {
    json!({ "errno": errno })
}

fn offered<T>(value: Option<&T>, answer: impl FnOnce(&T) -> Value) -> Value {
    value.map_or_else(|| refused(EOPNOTSUPP), answer)
}

fn indirection(table: &[u32]) -> Value {
    if table.is_empty() {
        return json!({ "table": [] });
    }
    json!({ "table": table, "hash": { "function": "toeplitz", "key": "6d5a56da255b0ec24167253d43a38fb0" } })
}

fn fields(hashed: Hashed) -> Value {
    let (addresses, ports) = (hashed != Hashed::Nothing, hashed == Hashed::Ports);
    json!({
        "source_address": addresses,
        "destination_address": addresses,
        "source_port": ports,
        "destination_port": ports,
    })
}

impl Ethtool {
    /// Its answers by key.
    pub(crate) fn answers(&self, interface: &str, transmit_queues: usize, sent: u64) -> Vec<(String, Value)> {
        let [name, version, firmware, bus] = self.driver;
        let mut answers = vec![
            ("driver", json!({ "name": name, "version": version, "firmware": firmware, "bus": bus })),
            (
                "channels",
                offered(
                    self.channels.as_ref(),
                    |[rx, tx, combined, rx_max, tx_max, combined_max]| json!({ "rx": rx, "tx": tx, "combined": combined, "rx_max": rx_max, "tx_max": tx_max, "combined_max": combined_max }),
                ),
            ),
            (
                "rings",
                offered(
                    self.rings.as_ref(),
                    |[rx, tx, rx_max, tx_max]| json!({ "rx": rx, "tx": tx, "rx_max": rx_max, "tx_max": tx_max }),
                ),
            ),
            (
                "coalesce",
                offered(
                    self.interrupt_after.as_ref(),
                    |usecs| json!({ "rx_usecs": usecs, "tx_usecs": usecs }),
                ),
            ),
            ("features", self.features()),
            ("statistics", json!(self.statistics)),
            ("rss", offered(self.table.as_ref(), |table| indirection(table))),
            ("table-queues", offered(self.table_queues.as_ref(), |queues| json!(queues))),
            ("ntuple", offered(self.table.as_ref().filter(|table| !table.is_empty()), |_| json!([]))),
        ];
        let of_tcp =
            self.udp_hash.map(|of_udp| if of_udp == Hashed::Nothing { of_udp } else { Hashed::Ports });
        for (item, hashed) in [
            ("flow-hash/udp4", self.udp_hash),
            ("flow-hash/udp6", self.udp_hash),
            ("flow-hash/tcp4", of_tcp),
            ("flow-hash/tcp6", of_tcp),
        ] {
            let fields = offered(hashed.as_ref(), |hashed| fields(*hashed));
            answers.push((item, fields));
        }
        let mut all: Vec<(String, Value)> = answers
            .into_iter()
            .map(|(item, answer)| (format!("ethtool/{interface}/{item}"), answer))
            .collect();
        all.push((format!("netdev/{interface}/qstats"), self.qstats()));
        all.push((format!("qdisc/{interface}"), self.disciplines(transmit_queues, sent)));
        all
    }

    fn features(&self) -> Value {
        json!({
            "generic-receive-offload": self.gro,
            "generic-segmentation-offload": true,
            "large-receive-offload": false,
            "ntuple-filters": false,
            "receive-hashing": self.table.as_ref().is_some_and(|table| !table.is_empty()),
            "rx-checksumming": true,
            "scatter-gather": true,
            "tx-checksumming": true,
        })
    }

    fn qstats(&self) -> Value {
        let Some((receive, transmit)) = &self.queue_packets else { return refused(ENOENT) };
        let queues = |packets: &[u64]| -> Vec<Value> {
            packets
                .iter()
                .enumerate()
                .map(|(queue, packets)| json!({ "queue": queue, "packets": packets }))
                .collect()
        };
        json!({ "rx": queues(receive), "tx": queues(transmit) })
    }

    /// The kernel makes `mq` for several queues, and numbers the parents of those below it from 1 in hexadecimal.
    fn disciplines(&self, transmit_queues: usize, packets: u64) -> Value {
        let discipline = |kind: &str, parent: String, packets: u64| {
            json!({
                "kind": kind, "handle": "0:", "parent": parent,
                "packets": packets, "drops": 0, "requeues": 0, "backlog": 0,
            })
        };
        if transmit_queues <= 1 {
            return json!([discipline(self.discipline, "root".into(), packets)]);
        }
        let share = packets / transmit_queues as u64;
        let children =
            (1..=transmit_queues).map(|queue| discipline(self.discipline, format!(":{queue:x}"), share));
        std::iter::once(discipline("mq", "root".into(), packets)).chain(children).collect()
    }
}
