//! Counters of the host and its devices, read once.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::counter::{CountedUnit, Counter};
use linerate_host::stage::link::LinkState;
use linerate_host::stage::link::virtual_network::{PortKind, VirtualPort};
use linerate_host::stage::socket::HostSockets;
use linerate_host::{Host, PacketPath, Scope, StageName};

use crate::drops::ledger::{CounterUse, GrownCounter, PacketEvidence, QueuedPackets};
use crate::drops::packet_counts::{PacketCounts, PortSubject};

/// Place and name.
type CounterKey = (String, String);

#[derive(Debug, Clone, Default)]
pub(super) struct DropsReading {
    counters: BTreeMap<CounterKey, ReadCounter>,
    waiting: QueuedPackets,
    chains: Vec<String>,
    ports: BTreeMap<String, String>,
    unread: Vec<String>,
    links: Vec<LinkState>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct SocketDrops(DropsReading);

#[derive(Debug, Clone, PartialEq, Eq)]
struct ReadCounter {
    kind: CounterUse,
    value: u64,
    read_from: String,
}

impl SocketDrops {
    /// Much faster than reading all counters.
    pub(super) fn observe(host: &Host, subject: &PortSubject, interfaces: &[String]) -> Self {
        let mut drops = DropsReading::default();
        drops.waiting.sockets_bytes = Some(0);
        for port in ports(subject) {
            let scope = Scope { interfaces: interfaces.to_vec(), port, pid: None };
            drops.insert_sockets(&HostSockets::observe(host, &scope));
        }
        Self(drops)
    }

    pub(super) fn waiting(&self) -> Option<u64> {
        self.0.waiting.sockets_bytes
    }

    /// The drops of a socket count from zero if it is new. It is the same socket if its inode is,
    /// although other processes may hold it now.
    pub(super) fn since(&self, earlier: &Self) -> Vec<GrownCounter> {
        let inode = |place: &str| place.rsplit(' ').next().map(str::to_owned);
        let earlier_drops: BTreeMap<Option<String>, u64> =
            earlier.0.counters.iter().map(|((place, _), drops)| (inode(place), drops.value)).collect();
        let is_unknown = earlier.waiting().is_none();
        let previous = |(place, _): &CounterKey| {
            earlier_drops.get(&inode(place)).copied().or((!is_unknown).then_some(0))
        };
        self.0.grown_since(previous)
    }
}

/// One scope per port.
fn ports(subject: &PortSubject) -> Vec<Option<u16>> {
    match subject.ports.as_slice() {
        [] => vec![None],
        ports => ports.iter().copied().map(Some).collect(),
    }
}

impl DropsReading {
    pub(super) fn observe(host: &Host, subject: &PortSubject, interfaces: &[String]) -> Self {
        let scope = |port| Scope { interfaces: interfaces.to_vec(), port, pid: None };
        let port = |port: &u16| scope(Some(*port));
        let mut reading =
            Self::from_path(&PacketPath::observe(host, &subject.ports.first().map_or(scope(None), port)));
        // The scopes of further ports only add sockets.
        for port in subject.ports.iter().skip(1).map(port) {
            reading.insert_sockets(&HostSockets::observe(host, &port));
        }
        reading
    }

    fn from_path(path: &PacketPath) -> Self {
        let mut reading = Self { waiting: waiting(path), chains: chains(path), ..Self::default() };
        path.virtual_network.ports.iter().for_each(|port| reading.insert_port(port));
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
        reading.links.clone_from(&path.link);
        let unread = [path.route.snmp.why(), path.route.netstat.why(), path.softirq.softnet.why()];
        reading.unread = unread.into_iter().flatten().map(str::to_owned).collect();
        reading
    }

    /// Only the counters of devices, read again. Much faster than reading all counters.
    pub(super) fn devices(&self, host: &Host) -> Self {
        let mut devices = Self::default();
        for mut link in self.links.iter().cloned() {
            link.update_counters(host);
            devices.insert_of_link(&link);
        }
        devices
    }

    pub(super) fn replace_devices(&mut self, devices: Self) {
        let counters = devices.counters.into_iter();
        self.counters.extend(counters.filter(|(_, counter)| counter.kind != CounterUse::Other));
    }

    pub(super) fn drops(&self) -> SocketDrops {
        let drop_counters = self.counters.iter().filter(|((_, name), _)| name == "drops");
        let counters = drop_counters.map(|(key, counter)| (key.clone(), counter.clone())).collect();
        SocketDrops(Self { counters, waiting: self.waiting.clone(), ..Self::default() })
    }

    /// Sets a lower bound from an earlier reading.
    pub(super) fn waits_at_least(&mut self, bytes: Option<u64>) {
        self.waiting.sockets_bytes = self.waiting.sockets_bytes.max(bytes);
    }

    fn insert(&mut self, counter: &Counter, kind: CounterUse) {
        self.put(&counter.place, &counter.name, kind, counter.value, &counter.read_from);
    }

    fn insert_port(&mut self, port: &VirtualPort) {
        let interface = &port.interface;
        let owner = port.owner.as_ref().map(|owner| format!(" of {owner}")).unwrap_or_default();
        self.ports.insert(interface.clone(), format!("{} {interface}{owner}", port.kind));
        // A macvtap counts drops by its full queue in both (macvlan_count_rx of
        // macvlan_handle_frame, and tap_handle_frame, Linux 6.18).
        if port.kind == PortKind::Macvtap
            && let Some((received, dropped)) = port.total("rx_packets").zip(port.total("rx_dropped"))
        {
            let files = format!("/sys/class/net/{interface}/statistics/rx_packets less rx_dropped");
            self.put(
                interface,
                "rx_taken",
                CounterUse::MacvtapTaken,
                received.saturating_sub(dropped),
                &files,
            );
        }
    }

    /// Counters of sockets beyond those of a packet path.
    fn insert_sockets(&mut self, sockets: &HostSockets) {
        let bytes = self.waiting.sockets_bytes.zip(queued_bytes(sockets));
        self.waiting.sockets_bytes = bytes.map(|(known, queued)| known.saturating_add(queued));
        for counter in sockets.counters() {
            self.insert(&counter, CounterUse::Other);
        }
    }

    fn put(&mut self, place: &str, name: &str, kind: CounterUse, value: u64, read_from: &str) {
        let counter = ReadCounter { kind, value, read_from: read_from.to_owned() };
        self.counters.insert((place.to_owned(), name.to_owned()), counter);
    }

    /// Losses, XDP counters, and transmit errors.
    fn insert_of_link(&mut self, link: &LinkState) {
        let interface = &link.interface;
        for counter in link.counters().iter().filter(|counter| is_of_packets(counter)) {
            self.insert(counter, kind(counter));
        }
        let statistics = link.statistics.value().and_then(Option::as_ref);
        for (name, value) in statistics.into_iter().flatten() {
            // Drivers such as virtio_net and mlx5 have a total next to the counters per queue.
            let total: String = name.chars().filter(|character| !character.is_ascii_digit()).collect();
            let is_in_total = total != *name && statistics.is_some_and(|all| all.contains_key(&total));
            if let Some(kind) = xdp_use(name).filter(|_| !is_in_total) {
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

    pub(super) fn since(&self, earlier: &Self, subject: PortSubject, seen: PacketCounts) -> PacketEvidence {
        let mut unread = self.unread.clone();
        unread.extend(earlier.unread.iter().filter(|line| !self.unread.contains(line)).cloned());
        PacketEvidence {
            subject,
            seen,
            grown: self.grown_since(|key| Some(earlier.counters.get(key)?.value)),
            waited: earlier.waiting.clone(),
            waiting: self.waiting.clone(),
            chains: self.chains.clone(),
            ports: self.ports.clone(),
            unread,
            resets: self.resets_since(earlier),
            ..PacketEvidence::default()
        }
    }

    // After a reset of a device or with fewer queues (`ethtool -L`), counters are smaller or missing.
    // The counter of a macvtap can also go back without a reset, because it is the difference of two
    // files that are read one after the other.
    fn resets_since(&self, earlier: &Self) -> Vec<String> {
        let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (key, counter) in &earlier.counters {
            let is_of_device = !matches!(counter.kind, CounterUse::Other | CounterUse::MacvtapTaken);
            if is_of_device && self.counters.get(key).is_none_or(|now| now.value < counter.value) {
                names.entry(&key.0).or_default().push(&key.1);
            }
        }
        let note = |(place, names): (&str, Vec<&str>)| {
            let more = if names.len() > 1 { format!(" and {} more", names.len() - 1) } else { String::new() };
            let name = names[0];
            format!(
                "counters of {place} went back or vanished ({name}{more}): losses after that are not known"
            )
        };
        names.into_iter().map(note).collect()
    }

    // `previous`: the earlier value of a counter; `None` if it cannot be compared.
    fn grown_since(&self, previous: impl Fn(&CounterKey) -> Option<u64>) -> Vec<GrownCounter> {
        let grown_counters = self.counters.iter().filter_map(|(key, counter)| {
            let packets = counter_growth(previous(key)?, counter)?;
            let (place, name) = key.clone();
            Some(GrownCounter {
                place,
                name,
                kind: counter.kind,
                packets,
                read_from: counter.read_from.clone(),
            })
        });
        grown_counters.collect()
    }
}

// `None` if it did not grow. A 32-bit counter that shrank has wrapped.
fn counter_growth(previous: u64, now: &ReadCounter) -> Option<u64> {
    const SOFTNET: &str = "/proc/net/softnet_stat";
    let packets = match now.value.checked_sub(previous) {
        Some(packets) => packets,
        None if now.read_from == SOFTNET => (now.value + (1 << 32)).checked_sub(previous)?,
        // Another source with the same name.
        None => return None,
    };
    (packets > 0).then_some(packets)
}

/// UDP counters, which no stage of the host reports.
const UDP: &[&str] = &[
    "Udp.NoPorts",
    "Udp.RcvbufErrors",
    "Udp.InCsumErrors",
    "Udp.MemErrors",
    "Udp.IgnoredMulti",
    "Ip.ReasmReqds",
    "Udp6NoPorts",
    "Udp6RcvbufErrors",
    "Udp6InCsumErrors",
    "Udp6MemErrors",
    "Udp6IgnoredMulti",
    "Ip6ReasmReqds",
];

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

/// Names for damaged frames in stage/link/loss_names.rs of `host`.
fn is_damage(name: &str) -> bool {
    ["crc", "fcs", "rx_bad"].iter().any(|part| name.contains(part))
}

// XDP counters of drivers, per queue or in total. Names are those of get_strings in drivers/net
// (Linux 6.18).
fn xdp_use(name: &str) -> Option<CounterUse> {
    const USES: [(CounterUse, &[&str]); 3] = [
        (CounterUse::XdpDropped, &["xdp_drops", "xdp_drop"]),
        (
            CounterUse::XdpFailed,
            &["xdp_tx_errors", "xdp_redirect_errors", "xdp_aborted", "xdp_invalid", "xdp_exception"],
        ),
        (CounterUse::XdpTaken, &["xdp_tx", "xdp_redirect", "xdp_redirects"]),
    ];
    let name =
        name.trim_end_matches(|character: char| character.is_ascii_digit() || matches!(character, '[' | ']'));
    let has_suffix =
        |(_, suffixes): &&(CounterUse, &[&str])| suffixes.iter().any(|suffix| name.ends_with(suffix));
    let found = USES.iter().find(has_suffix).map(|(kind, _)| *kind);
    found.filter(|_| !name.starts_with("tx"))
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

/// User chains at netfilter's hooks.
fn chains(path: &PacketPath) -> Vec<String> {
    let tables = path.filter.nftables.value().into_iter().flatten().filter(|table| !table.dormant);
    let chain_names: BTreeSet<String> = tables
        .flat_map(|table| {
            let chains = table.base_chains.iter();
            chains.map(|chain| {
                format!("chain {} {} {} hook {}", table.family, table.name, chain.name, chain.hook)
            })
        })
        .collect();
    chain_names.into_iter().collect()
}

#[cfg(test)]
mod tests;
