//! Counters of the host and its devices, read once.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::counter::{Counter, Counts};
use linerate_host::stage::link::Link;
use linerate_host::stage::socket::Sockets;
use linerate_host::{Host, PacketPath, Scope, StageName};

use crate::drops::ledger::{Evidence, Grown, Kind, Waiting};
use crate::drops::seen::{Seen, Subject};

/// The counters, by place and name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Reading {
    counters: BTreeMap<(String, String), Counted>,
    waiting: Waiting,
    chains: Vec<String>,
    unread: Vec<String>,
}

/// What sockets have dropped, and nothing else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Drops(Reading);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Counted {
    kind: Kind,
    value: u64,
    read_from: String,
}

impl Drops {
    /// Reads it: far quicker than all the counters.
    pub(super) fn of(host: &Host, subject: &Subject, interfaces: &[String]) -> Self {
        let mut drops = Reading::default();
        drops.waiting.sockets_bytes = Some(0);
        for port in ports(subject) {
            let scope = Scope { interfaces: interfaces.to_vec(), port, pid: None };
            drops.insert_sockets(&Sockets::observe(host, &scope));
        }
        Self(drops)
    }

    /// What waits in the sockets, bytes.
    pub(super) fn waiting(&self) -> Option<u64> {
        self.0.waiting.sockets_bytes
    }

    /// By how much it grew.
    pub(super) fn since(&self, earlier: &Self) -> Vec<Grown> {
        self.0.grown_since(&earlier.0)
    }
}

/// What to look for, one after the other: a scope has one port at most.
fn ports(subject: &Subject) -> Vec<Option<u16>> {
    match subject.ports.as_slice() {
        [] => vec![None],
        ports => ports.iter().copied().map(Some).collect(),
    }
}

impl Reading {
    /// Reads them.
    pub(super) fn of(host: &Host, subject: &Subject, interfaces: &[String]) -> Self {
        let scope = |port| Scope { interfaces: interfaces.to_vec(), port, pid: None };
        let port = |port: &u16| scope(Some(*port));
        let mut reading =
            Self::from_path(&PacketPath::observe(host, &subject.ports.first().map_or(scope(None), port)));
        // A scope has one port; those of the others are sockets, and nothing else.
        for port in subject.ports.iter().skip(1).map(port) {
            reading.insert_sockets(&Sockets::observe(host, &port));
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
                reading.put("host", name, Kind::Other, value, file);
            }
        }
        path.link.iter().for_each(|link| reading.insert_of_link(link));
        let unread = [path.route.snmp.why(), path.route.netstat.why(), path.softirq.softnet.why()];
        reading.unread = unread.into_iter().flatten().map(str::to_owned).collect();
        reading
    }

    /// What sockets have dropped, of all that was read.
    pub(super) fn drops(&self) -> Drops {
        let these = self.counters.iter().filter(|((_, name), _)| name == "drops");
        let counters = these.map(|(key, counted)| (key.clone(), counted.clone())).collect();
        Drops(Self { counters, ..Self::default() })
    }

    /// Takes more to wait in the sockets, where that was so a little earlier.
    pub(super) fn waits_at_least(&mut self, bytes: Option<u64>) {
        self.waiting.sockets_bytes = self.waiting.sockets_bytes.max(bytes);
    }

    fn insert(&mut self, counter: &Counter, kind: Kind) {
        self.put(&counter.place, &counter.name, kind, counter.value, &counter.read_from);
    }

    /// What sockets beyond those of a packet path count.
    fn insert_sockets(&mut self, sockets: &Sockets) {
        let bytes = self.waiting.sockets_bytes.zip(queued_bytes(sockets));
        self.waiting.sockets_bytes = bytes.map(|(some, more)| some.saturating_add(more));
        for counter in sockets.counters() {
            self.insert(&counter, Kind::Other);
        }
    }

    fn put(&mut self, place: &str, name: &str, kind: Kind, value: u64, read_from: &str) {
        let counted = Counted { kind, value, read_from: read_from.to_owned() };
        self.counters.insert((place.to_owned(), name.to_owned()), counted);
    }

    /// What XDP programs did with frames, and what could not be sent.
    fn insert_of_link(&mut self, link: &Link) {
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
                self.put(interface, name, Kind::DeviceUnsent, *value, &file);
            }
        }
    }

    /// Evidence of what came since an earlier reading.
    pub(super) fn since(&self, earlier: &Self, subject: Subject, seen: Seen) -> Evidence {
        let mut unread = self.unread.clone();
        unread.extend(earlier.unread.iter().filter(|line| !self.unread.contains(line)).cloned());
        Evidence {
            subject,
            seen,
            grown: self.grown_since(earlier),
            waited: earlier.waiting.clone(),
            waiting: self.waiting.clone(),
            chains: self.chains.clone(),
            unread,
            ..Evidence::default()
        }
    }

    fn grown_since(&self, earlier: &Self) -> Vec<Grown> {
        let grown = self.counters.iter().filter_map(|(key, counted)| {
            let was = earlier.counters.get(key)?.value;
            let packets = grown(was, counted)?;
            let (place, name) = key.clone();
            Some(Grown { place, name, kind: counted.kind, packets, read_from: counted.read_from.clone() })
        });
        grown.collect()
    }
}

/// By how much it grew; none where it did not. One of 32 bits that is less than it was began anew.
fn grown(was: u64, now: &Counted) -> Option<u64> {
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
    let counts = !matches!(counter.counts, Counts::BytesIn | Counts::BytesOut | Counts::Ticks);
    counts && !matches!(counter.stage, StageName::Machine | StageName::Irq | StageName::Thread)
}

fn kind(counter: &Counter) -> Kind {
    match (counter.stage, counter.counts, counter.name.as_str()) {
        (StageName::Link, Counts::PacketsLost, name) if name.ends_with("allowance_exceeded") => {
            Kind::DeviceAllowance
        }
        (StageName::Link, Counts::PacketsLost, name) if is_damage(name) => Kind::DeviceDamaged,
        (StageName::Link, Counts::PacketsLost, _) => Kind::DeviceLost,
        _ => Kind::Other,
    }
}

/// Names of `host`'s tables (stage/link/loss_names.rs) for frames that came damaged.
fn is_damage(name: &str) -> bool {
    ["crc", "fcs", "rx_bad"].iter().any(|part| name.contains(part))
}

/// What a driver's counter says of XDP. Names are those of get_strings in drivers/net (Linux 6.18), of a queue or of all.
fn of_xdp(name: &str) -> Option<Kind> {
    let name = name.trim_end_matches(|last: char| last.is_ascii_digit() || matches!(last, '[' | ']'));
    let of_queue = name.contains("xdp");
    let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
    if !of_queue || name.starts_with("tx") {
        None
    } else if ends(&["xdp_drops", "xdp_drop"]) {
        Some(Kind::XdpDropped)
    } else if ends(&["xdp_tx_errors", "xdp_redirect_errors", "xdp_aborted", "xdp_invalid", "xdp_exception"]) {
        Some(Kind::XdpFailed)
    } else if ends(&["xdp_tx", "xdp_redirect", "xdp_redirects"]) {
        Some(Kind::XdpTaken)
    } else {
        None
    }
}

fn waiting(path: &PacketPath) -> Waiting {
    let disciplines = path.transmit.iter().filter_map(|transmit| transmit.root());
    let cpus = path.softirq.softnet.value().into_iter().flatten();
    Waiting {
        sockets_bytes: queued_bytes(&path.socket),
        disciplines_packets: disciplines.map(|root| root.backlog).fold(0, u64::saturating_add),
        backlogs_packets: cpus.filter_map(|cpu| cpu.backlog).fold(0, u64::saturating_add),
    }
}

fn queued_bytes(sockets: &Sockets) -> Option<u64> {
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
