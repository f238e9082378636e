//! Packet tracepoints: packets are counted in the kernel where they pass and where they end.

mod count;
mod overhead;
mod program;

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use linerate_host::bpf::{self, BpfError, BpfFailure, KERNEL_TYPES};
use linerate_host::netlink::addresses;
use linerate_host::{Host, Known};

use super::reason;
use crate::TraceError;
use crate::host_facts::{interface_names, online_cpus, tunnel_ports};
use crate::symbols::KernelSymbols;

use count::DropCounters;
pub use count::{CountedEvent, LossSite, PacketOrigin, PassedCounts, PathPoint};
use overhead::ProgramTiming;
pub use overhead::TraceOverhead;
use program::{ALL_NAMESPACES, AttachedDrops};

const DEVICES: &str = "/sys/class/net";

// Points at which a datagram belongs to a socket, so that its peer is unknown.
pub(super) const AT_SOCKETS: [PathPoint; 6] = [
    PathPoint::Delivered,
    PathPoint::Read,
    PathPoint::Truncated,
    PathPoint::LengthUnknown,
    PathPoint::Sent,
    PathPoint::SendFailed,
];

/// Wait for packets in flight. Softirqs end sooner, including packets they have begun to handle.
const SETTLED: Duration = Duration::from_millis(20);

// Packets that a CPU handles together: a driver's weight (`NAPI_POLL_WEIGHT`,
// include/linux/netdevice.h, Linux 6.18).
const TOGETHER: u64 = 64;

/// The observed packets: UDP over IPv4 and IPv6, of these ports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortSubject {
    /// Server ports: destination of requests, source of replies. Empty for all UDP; then received
    /// packets count as requests and sent ones as replies.
    pub ports: Vec<u16>,
    /// Only packets from or to this address.
    pub peer: Option<IpAddr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum PacketDirection {
    /// To the server's port; without ports: received.
    Request,
    /// From the server's port; without ports: sent.
    Reply,
}

/// Counts since [`DropsTracer::start`] or between two readings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PacketCounts {
    pub seconds: f64,
    pub passed: PassedCounts,
    /// Datagrams per buffer in sockets, rounded up: several with UDP_GRO. Zero if unknown.
    pub buffer_datagrams: u64,
    /// Since the start.
    pub(super) counters: DropCounters,
    /// Dropped datagrams: an aggregate counts as its segments.
    pub lost: BTreeMap<LossSite, u64>,
    pub events: BTreeMap<CountedEvent, u64>,
    /// Packets around the reading, or around both if this is a difference: as many can have been in
    /// flight.
    pub edges: Vec<EdgeCounts>,
    /// Tracepoints that this kernel lacks, with the kernel that has them; their points are not in
    /// `passed`.
    pub lacking: Vec<String>,
    /// Other limits, one line each: hidden addresses, unknown reasons.
    pub notes: Vec<String>,
    /// Names of devices in the namespace, by index.
    pub devices: BTreeMap<u32, String>,
}

/// Packets during the reading, and right after it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EdgeCounts {
    pub meanwhile: PassedCounts,
    /// After it, until all packets in flight were handled.
    pub after: PassedCounts,
    /// Packets that all CPUs can handle at one time.
    pub at_work_packets: u64,
}

impl EdgeCounts {
    fn joined(earlier: Option<&Self>, later: Option<&Self>) -> Self {
        let (earlier, later) = (earlier.cloned().unwrap_or_default(), later.cloned().unwrap_or_default());
        Self {
            meanwhile: count::sum(&earlier.meanwhile, &later.meanwhile),
            after: count::sum(&earlier.after, &later.after),
            at_work_packets: earlier.at_work_packets.saturating_add(later.at_work_packets),
        }
    }

    /// Packets that may have been between two points: zero if none passed. `is_handled` for points
    /// between which packets never wait.
    pub fn between(&self, points: &[PathPoint], is_handled: bool) -> u64 {
        let sum = |passed: &PassedCounts| {
            let matching = passed.iter().filter(|((point, _), _)| points.contains(point));
            matching.map(|(_, packets)| *packets).fold(0, u64::saturating_add)
        };
        let after = sum(&self.after);
        sum(&self.meanwhile).saturating_add(if is_handled { after.min(self.at_work_packets) } else { after })
    }
}

impl PacketCounts {
    /// The difference to an earlier reading of the same [`DropsTracer`].
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            seconds: self.seconds - earlier.seconds,
            passed: self.counters.passed_since(&earlier.counters),
            buffer_datagrams: self.counters.buffer_datagrams_since(&earlier.counters),
            lost: count::growth(&self.lost, &earlier.lost),
            events: count::growth(&self.events, &earlier.events),
            edges: [earlier.edges.clone(), self.edges.clone()].concat(),
            ..self.clone()
        }
    }

    /// The sum of two disjoint times; names and notes are those of the later one.
    pub fn joined(&self, later: &Self) -> Self {
        Self {
            seconds: self.seconds + later.seconds,
            passed: count::sum(&self.passed, &later.passed),
            buffer_datagrams: self.buffer_datagrams.max(later.buffer_datagrams),
            lost: count::sum(&self.lost, &later.lost),
            events: count::sum(&self.events, &later.events),
            edges: vec![
                EdgeCounts::joined(self.edges.first(), later.edges.first()),
                EdgeCounts::joined(self.edges.last(), later.edges.last()),
            ],
            ..later.clone()
        }
    }

    /// Packets in a direction on all devices.
    pub fn packets(&self, point: PathPoint, direction: PacketDirection) -> u64 {
        self.passed.get(&(point, direction)).copied().unwrap_or(0)
    }

    pub fn event_count(&self, event: CountedEvent) -> u64 {
        self.events.get(&event).copied().unwrap_or(0)
    }

    /// Losses in a direction for this reason.
    pub fn lost_for(&self, reason: &str, direction: PacketDirection) -> u64 {
        let is_match =
            |site: &LossSite| site.direction == direction && site.reason.as_deref() == Some(reason);
        self.lost.iter().filter(|(site, _)| is_match(site)).map(|(_, packets)| packets).sum()
    }
}

#[derive(Debug)]
pub struct DropsTracer {
    attached: AttachedDrops,
    timing: ProgramTiming,
    begin: Instant,
    symbols: KernelSymbols,
    reasons: Option<BTreeMap<u32, String>>,
    // Ports that are not counted, although no port was named.
    left_out: Vec<u16>,
    // CPUs of the host, of which this process may be allowed to use only some.
    cpus: u64,
}

impl DropsTracer {
    /// Counts in the calling thread's network namespace. `host` provides the kernel's symbols.
    pub fn start(host: &Host, subject: &PortSubject) -> Result<Self, TraceError> {
        let network = bpf::network_namespace();
        let network = network.map_err(|source| TraceError::Kernel { what: program::WHAT, source })?;
        Self::begin(host, subject, network)
    }

    /// Counts in all network namespaces. A packet on a veth pair is seen in each namespace it passes.
    pub fn start_in_all_namespaces(host: &Host, subject: &PortSubject) -> Result<Self, TraceError> {
        Self::begin(host, subject, ALL_NAMESPACES)
    }

    fn begin(host: &Host, subject: &PortSubject, network: u32) -> Result<Self, TraceError> {
        let symbols = KernelSymbols::kernel(host)?;
        let types = fs::read(KERNEL_TYPES).map_err(|error| BpfError {
            operation: program::WHAT,
            failure: BpfFailure::KernelTypes(error),
        })?;
        let reasons = reason::names(&types);
        let cpus = online_cpus(host)?.len();
        // A tunnel takes packets before they reach a receive buffer, and no program sends its
        // packets.
        let left_out = if subject.ports.is_empty() { tunnel_ports(host) } else { Vec::new() };
        let mut attached =
            AttachedDrops::load(subject, network, &left_out, reasons.is_some(), &own_addresses(host))?;
        let timing = ProgramTiming::start(&mut attached)?;
        attached.attach()?;
        let cpus = u64::try_from(cpus).unwrap_or(u64::MAX);
        Ok(Self { attached, timing, begin: Instant::now(), symbols, reasons, left_out, cpus })
    }

    /// Counts since the start; `host` provides the names of devices. Differences:
    /// [`PacketCounts::since`].
    pub fn read(&self, host: &Host) -> Result<PacketCounts, TraceError> {
        let first_counters = self.attached.counters()?;
        let seconds = self.begin.elapsed().as_secs_f64();
        let lost_counts = self.attached.lost()?;
        let counters = self.attached.counters()?;
        let mut events = counters.events();
        *events.entry(CountedEvent::Missed).or_default() += self.attached.programs.skipped_runs()?;
        let lacking =
            self.attached.programs.lacking.iter().map(|attachment| {
                format!("tracepoint {}, which {}", attachment.tracepoint, attachment.since)
            });
        let edge = EdgeCounts { meanwhile: counters.passed_since(&first_counters), ..EdgeCounts::default() };
        Ok(PacketCounts {
            seconds,
            passed: counters.passed_since(&DropCounters::default()),
            buffer_datagrams: counters.buffer_datagrams_since(&DropCounters::default()),
            counters,
            lost: count::lost(&lost_counts, self.reasons.as_ref(), &self.symbols),
            events,
            edges: vec![edge],
            lacking: lacking.collect(),
            notes: self.notes(),
            devices: interface_names(host),
        })
    }

    /// Waits until packets in flight at a reading have arrived, and adds them to the reading. Waits
    /// up to `longest` until a program has answered `unanswered` requests.
    pub(super) fn settle(
        &self,
        counts: &mut PacketCounts,
        unanswered: u64,
        longest: Duration,
    ) -> Result<(), TraceError> {
        let begin = Instant::now();
        loop {
            std::thread::sleep(SETTLED);
            let after = self.attached.counters()?.passed_since(&counts.counters);
            let sent = after.iter().filter(|((point, _), _)| *point == PathPoint::Sent);
            if sent.map(|(_, packets)| packets).sum::<u64>() < unanswered && begin.elapsed() < longest {
                continue;
            }
            for edge in &mut counts.edges {
                edge.after = after.clone();
                edge.at_work_packets = TOGETHER.saturating_mul(self.cpus);
            }
            return Ok(());
        }
    }

    pub(super) fn overhead(&self) -> Known<TraceOverhead> {
        self.timing.overhead()
    }

    // Times the programs for 10 ms, and returns their share of one CPU: an estimate if the kernel
    // cannot time them.
    pub(super) fn time_now(&mut self) -> Result<f64, TraceError> {
        self.timing.time_now(&self.attached)
    }

    /// Stops counting, without cost, until [`resume`](Self::resume).
    pub(super) fn pause(&mut self) -> Result<(), TraceError> {
        Ok(self.attached.detach()?)
    }

    pub(super) fn resume(&mut self) -> Result<(), TraceError> {
        Ok(self.attached.attach()?)
    }

    fn notes(&self) -> Vec<String> {
        let reasons = self.reasons.is_none().then(|| "the kernel reports no reasons (Linux 5.17)".to_owned());
        let symbols = self
            .symbols
            .why_unknown()
            .map(|why| format!("functions have no names, and parts of aggregates may count twice: {why}"));
        let left_out = self.left_out.iter().map(|port| {
            format!("UDP port {port} of a tunnel in the kernel is not counted, unless it is named")
        });
        reasons.into_iter().chain(symbols).chain(left_out).collect()
    }
}

// All addresses of the host's network namespace; empty if one cannot be read.
fn own_addresses(host: &Host) -> Vec<IpAddr> {
    let names = host.list(DEVICES).unwrap_or_default();
    let known_addresses: Result<Vec<Vec<IpAddr>>, _> =
        names.iter().map(|name| addresses(host, name)).collect();
    let known_addresses = known_addresses.unwrap_or_default().concat();
    // A namespace whose loopback is down is not known completely.
    if known_addresses.iter().any(IpAddr::is_loopback) { known_addresses } else { Vec::new() }
}

#[cfg(test)]
mod tests;
