//! Counters of the host and its devices, read once.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::counter::{CountedUnit, Counter};
use linerate_host::stage::link::LinkState;
use linerate_host::stage::socket::HostSockets;
use linerate_host::{Host, PacketPath, Scope, StageName};

use crate::drops::ledger::{CounterUse, GrownCounter, PacketEvidence, QueuedPackets};
use crate::drops::seen::{PacketCounts, PortSubject};

/// The counters, by place and name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DropsReading {
    counters: BTreeMap<(String, String), ReadCounter>,
    waiting: QueuedPackets,
    chains: Vec<String>,
    unread: Vec<String>,
}

/// What sockets have dropped, and nothing else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SocketDrops(DropsReading);

#[derive(Debug, Clone, PartialEq, Eq)]
struct ReadCounter {
    kind: CounterUse,
    value: u64,
    read_from: String,
}

impl SocketDrops {
    /// Reads it: far quicker than all the counters.
    pub(super) fn of(host: &Host, subject: &PortSubject, interfaces: &[String]) -> Self {
        let mut drops = DropsReading::default();
        drops.waiting.sockets_bytes = Some(0);
        for port in ports(subject) {
            let scope = Scope { interfaces: interfaces.to_vec(), port, pid: None };
            drops.insert_sockets(&HostSockets::observe(host, &scope));
        }
        Self(drops)
    }

    /// What waits in the sockets, bytes.
    pub(super) fn waiting(&self) -> Option<u64> {
        self.0.waiting.sockets_bytes
    }

    /// By how much it grew.
    pub(super) fn since(&self, earlier: &Self) -> Vec<GrownCounter> {
        self.0.grown_since(&earlier.0)
    }
}

/// What to look for, one after the other: a scope has one port at most.
fn ports(subject: &PortSubject) -> Vec<Option<u16>> {
    match subject.ports.as_slice() {
        [] => vec![None],
        ports => ports.iter().copied().map(Some).collect(),
    }
}

impl DropsReading {
    pub(super) fn of(host: &Host, subject: &PortSubject, interfaces: &[String]) -> Self {
        let scope = |port| Scope { interfaces: interfaces.to_vec(), port, pid: None };
        let port = |port: &u16| scope(Some(*port));
        let mut reading =
            Self::from_path(&PacketPath::observe(host, &subject.ports.first().map_or(scope(None), port)));
        // A scope has one port; those of the others are sockets, and nothing else.
        for port in subject.ports.iter().skip(1).map(port) {
            reading.insert_sockets(&HostSockets::observe(host, &port));
        }
        reading
    }

    /// What of a packet path is of use.
    fn from_path(path: &PacketPath) -> Self {
        let mut reading = Self { waiting: waiting(path), chains: chains(path), ..Self::default() };
        for counter in path.counters().iter().filter(|counter| is_of_packets(counter)) {
            reading.insert(counter, kind(counter));
        }
        for name in UDP {
            let file = if name.starts_with("Udp6") { "/proc/net/snmp6" } else { "/proc/net/snmp" };
            if let Some(value) = path.route.snmp(name) {
                reading.put("host", name, CounterUse::Other, value, file);
            }
        }
        path.link.iter().for_each(|link| reading.insert_of_link(link));
        let unread = [path.route.snmp.why(), path.route.netstat.why(), path.softirq.softnet.why()];
        reading.unread = unread.into_iter().flatten().map(str::to_owned).collect();
        reading
    }

    /// What sockets have dropped, of all that was read.
    pub(super) fn drops(&self) -> SocketDrops {
        let these = self.counters.iter().filter(|((_, name), _)| name == "drops");
        let counters = these.map(|(key, counted)| (key.clone(), counted.clone())).collect();
        SocketDrops(Self { counters, ..Self::default() })
    }

    /// Takes more to wait in the sockets, where that was so a little earlier.
    pub(super) fn waits_at_least(&mut self, bytes: Option<u64>) {
        self.waiting.sockets_bytes = self.waiting.sockets_bytes.max(bytes);
    }

    fn insert(&mut self, counter: &Counter, kind: CounterUse) {
        self.put(&counter.place, &counter.name, kind, counter.value, &counter.read_from);
    }

    /// What sockets beyond those of a packet path count.
    fn insert_sockets(&mut self, sockets: &HostSockets) {
        let bytes = self.waiting.sockets_bytes.zip(queued_bytes(sockets));
        self.waiting.sockets_bytes = bytes.map(|(some, more)| some.saturating_add(more));
        for counter in sockets.counters() {
            self.insert(&counter, CounterUse::Other);
        }
    }

    fn put(&mut self, place: &str, name: &str, kind: CounterUse, value: u64, read_from: &str) {
        let counted = ReadCounter { kind, value, read_from: read_from.to_owned() };
        self.counters.insert((place.to_owned(), name.to_owned()), counted);
    }

    /// What XDP programs did with frames, and what could not be sent.
    fn insert_of_link(&mut self, link: &LinkState) {
        let interface = &link.interface;
        for (name, value) in link.statistics.value().into_iter().flatten().flatten() {
            if let Some(kind) = of_xdp(name) {
                self.put(interface, name, kind, *value, &format!("ethtool -S {interface}"));
            }
        }
        let totals = link.totals.value();
        for name in ["tx_dropped", "tx_errors"] {
            if let Some(value) = totals.and_then(|totals| totals.get(name)) {
                let file = format!("/sys/class/net/{interface}/statistics/{name}");
                self.put(interface, name, CounterUse::DeviceUnsent, *value, &file);
            }
        }
    }

    /// Evidence of what came since an earlier reading.
    pub(super) fn since(&self, earlier: &Self, subject: PortSubject, seen: PacketCounts) -> PacketEvidence {
        let mut unread = self.unread.clone();
        unread.extend(earlier.unread.iter().filter(|line| !self.unread.contains(line)).cloned());
        PacketEvidence {
            subject,
            seen,
            grown: self.grown_since(earlier),
            waited: earlier.waiting.clone(),
            waiting: self.waiting.clone(),
            chains: self.chains.clone(),
            unread,
            ..PacketEvidence::default()
        }
    }

    fn grown_since(&self, earlier: &Self) -> Vec<GrownCounter> {
        let grown = self.counters.iter().filter_map(|(key, counted)| {
            let was = earlier.counters.get(key)?.value;
            let packets = grown(was, counted)?;
            let (place, name) = key.clone();
            Some(GrownCounter {
                place,
                name,
                kind: counted.kind,
                packets,
                read_from: counted.read_from.clone(),
            })
        });
        grown.collect()
    }
}

/// By how much it grew; none where it did not. One of 32 bits that is less than it was began anew.
fn grown(was: u64, now: &ReadCounter) -> Option<u64> {
    const SOFTNET: &str = "/proc/net/softnet_stat";
    let packets = match now.value.checked_sub(was) {
        Some(packets) => packets,
        None if now.read_from == SOFTNET => (now.value + (1 << 32)).checked_sub(was)?,
        // Another source with the same name.
        None => return None,
    };
    (packets > 0).then_some(packets)
}

/// Counters of UDP, which no stage of the host has among its own.
const UDP: &[&str] = &[
    "Udp.NoPorts",
    "Udp.RcvbufErrors",
    "Udp.InCsumErrors",
    "Udp.MemErrors",
    "Ip.ReasmReqds",
    "Udp6NoPorts",
    "Udp6RcvbufErrors",
    "Udp6InCsumErrors",
    "Udp6MemErrors",
    "Ip6ReasmReqds",
];

/// Whether a ledger has any use for it.
fn is_of_packets(counter: &Counter) -> bool {
    let counts = !matches!(counter.counts, CountedUnit::BytesIn | CountedUnit::BytesOut | CountedUnit::Ticks);
    counts && !matches!(counter.stage, StageName::Machine | StageName::Irq | StageName::Thread)
}

fn kind(counter: &Counter) -> CounterUse {
    match (counter.stage, counter.counts, counter.name.as_str()) {
        (StageName::Link, CountedUnit::PacketsLost, name) if name.ends_with("allowance_exceeded") => {
            CounterUse::DeviceAllowance
        }
        (StageName::Link, CountedUnit::PacketsLost, name) if is_damage(name) => CounterUse::DeviceDamaged,
        (StageName::Link, CountedUnit::PacketsLost, _) => CounterUse::DeviceLost,
        _ => CounterUse::Other,
    }
}

/// Names of `host`'s tables (stage/link/loss_names.rs) for frames that came damaged.
fn is_damage(name: &str) -> bool {
    ["crc", "fcs", "rx_bad"].iter().any(|part| name.contains(part))
}

/// What a driver's counter says of XDP. Names are those of get_strings in drivers/net (Linux 6.18), of a queue or of all.
fn of_xdp(name: &str) -> Option<CounterUse> {
    let name = name.trim_end_matches(|last: char| last.is_ascii_digit() || matches!(last, '[' | ']'));
    let of_queue = name.contains("xdp");
    let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
    if !of_queue || name.starts_with("tx") {
        None
    } else if ends(&["xdp_drops", "xdp_drop"]) {
        Some(CounterUse::XdpDropped)
    } else if ends(&["xdp_tx_errors", "xdp_redirect_errors", "xdp_aborted", "xdp_invalid", "xdp_exception"]) {
        Some(CounterUse::XdpFailed)
    } else if ends(&["xdp_tx", "xdp_redirect", "xdp_redirects"]) {
        Some(CounterUse::XdpTaken)
    } else {
        None
    }
}

fn waiting(path: &PacketPath) -> QueuedPackets {
    let disciplines = path.transmit.iter().filter_map(|transmit| transmit.root());
    let cpus = path.softirq.softnet.value().into_iter().flatten();
    QueuedPackets {
        sockets_bytes: queued_bytes(&path.socket),
        disciplines_packets: disciplines.map(|root| root.backlog).fold(0, u64::saturating_add),
        backlogs_packets: cpus.filter_map(|cpu| cpu.backlog).fold(0, u64::saturating_add),
    }
}

fn queued_bytes(sockets: &HostSockets) -> Option<u64> {
    let sockets = sockets.services.value()?.iter().flat_map(|service| &service.sockets);
    Some(sockets.map(|socket| socket.queued_bytes).fold(0, u64::saturating_add))
}

/// The chains at netfilter's hooks that somebody made, with their hooks.
fn chains(path: &PacketPath) -> Vec<String> {
    let tables = path.filter.nftables.value().into_iter().flatten().filter(|table| !table.dormant);
    let named: BTreeSet<String> = tables
        .flat_map(|table| {
            let chains = table.base_chains.iter();
            chains.map(|chain| {
                format!("chain {} {} {} hook {}", table.family, table.name, chain.name, chain.hook)
            })
        })
        .collect();
    named.into_iter().collect()
}

#[cfg(test)]
mod tests;
