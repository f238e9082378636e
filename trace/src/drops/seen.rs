//! What is seen of single packets: counted in the kernel where they pass, and where they end.

mod count;
mod program;

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::time::Instant;

use linerate_host::Host;
use serde::{Deserialize, Serialize};

use super::reason;
use crate::TraceError;
use crate::symbols::Symbols;

pub use count::{Lost, Passed, Point};
use program::Attached;

/// The kernel's type information.
const TYPES: &str = "/sys/kernel/btf/vmlinux";

const DEVICES: &str = "/sys/class/net";

/// Points where a datagram is one of a socket, and has no peer.
const AT_SOCKETS: [Point; 7] = [
    Point::Delivered,
    Point::Refused,
    Point::Read,
    Point::Truncated,
    Point::LengthUnknown,
    Point::Sent,
    Point::SendFailed,
];

/// Whose packets are looked at: UDP over IPv4 and IPv6, of these ports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// In which network namespaces.
    pub network: Network,
    /// A server's ports: requests have one as destination, replies as source. None: all UDP, received counts as request and
    /// sent as reply.
    pub ports: Vec<u16>,
    /// Only what comes from this address or goes to it.
    pub peer: Option<IpAddr>,
}

/// Network namespaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// That of the thread that starts to look.
    #[default]
    Here,
    /// The one with this inode (`/proc/PID/ns/net`).
    Inode(u32),
    /// All of the host. A packet on a veth pair is seen in each that it passes.
    All,
}

/// Which way a packet travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// To the server's port; with no ports asked for: received.
    Request,
    /// From the server's port; with no ports asked for: sent.
    Reply,
}

/// What was counted, since [`Look::start`] or between two readings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// For how long, s.
    pub seconds: f64,
    /// Packets by the points that they passed.
    pub passed: Vec<Passed>,
    /// Packets that the kernel threw away.
    pub lost: Vec<Lost>,
    /// Points that are not seen here, so that a count of none says nothing: the kernel lacks the tracepoint, or whose a
    /// datagram is cannot be told there.
    pub unseen: Vec<Point>,
    /// Fragments received other than the first, which have no ports: of whom is not known. They are in no other number.
    pub fragments_packets: u64,
    /// IP packets received whose ports could not be read: extension headers of IPv6, headers not in the linear part. They
    /// are in no other number.
    pub unparsed_packets: u64,
    /// The same of those that were thrown away: fragments.
    pub lost_fragments_packets: u64,
    /// The same of those that were thrown away: ports that could not be read.
    pub lost_unparsed_packets: u64,
    /// Events that were not counted: a program was already running on the same CPU, or a table was full.
    pub missed: u64,
    /// Tracepoints that this kernel does not have, with the kernel that has them; their points are not in `passed`.
    pub lacking: Vec<String>,
    /// What else limits this, a line each: hidden addresses, reasons unknown.
    pub notes: Vec<String>,
    /// Names of devices of the namespace looked at, by index.
    pub devices: BTreeMap<u32, String>,
}

impl Seen {
    /// What came since an earlier reading of the same [`Look`].
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            seconds: self.seconds - earlier.seconds,
            passed: count::passed_since(&self.passed, &earlier.passed),
            lost: count::lost_since(&self.lost, &earlier.lost),
            fragments_packets: self.fragments_packets.saturating_sub(earlier.fragments_packets),
            unparsed_packets: self.unparsed_packets.saturating_sub(earlier.unparsed_packets),
            lost_fragments_packets: self
                .lost_fragments_packets
                .saturating_sub(earlier.lost_fragments_packets),
            lost_unparsed_packets: self.lost_unparsed_packets.saturating_sub(earlier.lost_unparsed_packets),
            unseen: self.unseen.clone(),
            missed: self.missed.saturating_sub(earlier.missed),
            lacking: self.lacking.clone(),
            notes: self.notes.clone(),
            devices: self.devices.clone(),
        }
    }

    /// Packets that passed a point in a direction, on all devices.
    #[must_use]
    pub fn packets(&self, point: Point, direction: Direction) -> u64 {
        let here = self.passed.iter().filter(|passed| passed.point == point && passed.direction == direction);
        here.map(|passed| passed.packets).sum()
    }

    /// Packets lost in a direction for a reason of this name.
    #[must_use]
    pub fn lost_for(&self, reason: &str, direction: Direction) -> u64 {
        let these = self
            .lost
            .iter()
            .filter(|lost| lost.direction == direction && lost.reason.as_deref() == Some(reason));
        these.map(|lost| lost.packets).sum()
    }
}

/// Programs that look. They go with this, or with the process.
#[derive(Debug)]
pub struct Look {
    attached: Attached,
    begin: Instant,
    symbols: Symbols,
    reasons: Option<BTreeMap<u32, String>>,
    unseen: Vec<Point>,
}

impl Look {
    /// Begins to look. `host` is asked for the kernel's symbols.
    ///
    /// # Errors
    /// [`TraceError`] when the kernel's symbols cannot be read or the programs cannot be loaded.
    pub fn start(host: &Host, subject: &Subject) -> Result<Self, TraceError> {
        let symbols = Symbols::kernel(host)?;
        let types = fs::read(TYPES).map_err(|source| TraceError::Kernel { what: program::WHAT, source })?;
        let reasons = reason::names(&types);
        let attached = Attached::start(subject, reasons.is_some())?;
        let mut unseen: Vec<Point> =
            attached.lacking().iter().flat_map(|at| points(at.program)).copied().collect();
        if subject.peer.is_some() {
            unseen.extend(AT_SOCKETS);
        }
        unseen.sort_unstable();
        unseen.dedup();
        Ok(Self { attached, begin: Instant::now(), symbols, reasons, unseen })
    }

    /// What was seen since it began; `host` is asked for the names of devices. Differences: [`Seen::since`].
    ///
    /// # Errors
    /// [`TraceError::Kernel`] when the tables cannot be read.
    pub fn read(&self, host: &Host) -> Result<Seen, TraceError> {
        let seconds = self.begin.elapsed().as_secs_f64();
        let counted = self.attached.read()?;
        let lacking = self
            .attached
            .lacking()
            .iter()
            .map(|at| format!("tracepoint {}, which {}", at.tracepoint, at.since));
        Ok(Seen {
            seconds,
            passed: count::passed(&counted.passed),
            lost: count::lost(&counted.lost, self.reasons.as_ref(), &self.symbols),
            unseen: self.unseen.clone(),
            fragments_packets: counted.notes.fragments,
            unparsed_packets: counted.notes.unparsed,
            lost_fragments_packets: counted.notes.lost_fragments,
            lost_unparsed_packets: counted.notes.lost_unparsed,
            missed: counted.notes.missed,
            lacking: lacking.collect(),
            notes: self.notes(),
            devices: devices(host),
        })
    }

    fn notes(&self) -> Vec<String> {
        let reasons = self
            .reasons
            .is_none()
            .then(|| "the kernel tells no reasons, which came with Linux 5.17".to_owned());
        let symbols = self
            .symbols
            .why_unknown()
            .map(|why| format!("functions have no names, and parts of aggregates may count twice: {why}"));
        reasons.into_iter().chain(symbols).collect()
    }
}

/// The points that a program counts.
fn points(program: &str) -> &'static [Point] {
    match program {
        "busy" => &[Point::Busy, Point::Transmitted],
        "started" => &[Point::Started, Point::Transmitted],
        "sends" => &[Point::Sent, Point::SendFailed],
        "reads" => &[Point::Read, Point::Truncated, Point::LengthUnknown],
        "refused" => &[Point::Refused],
        // Lengths are learned there too.
        "delivered" => &[Point::Delivered, Point::Truncated, Point::LengthUnknown],
        // Of what drivers may call, each is an old part of the kernel: if one is lacking, arrivals may be.
        "arrives_rx" | "arrives_list" | "arrives_one" | "arrives_frags" | "arrives_gro" => &[Point::Arrived],
        _ => &[],
    }
}

/// Names of the devices of the host's network namespace; none of those that cannot be read.
fn devices(host: &Host) -> BTreeMap<u32, String> {
    let names = host.list(DEVICES).unwrap_or_default();
    let pairs = names.into_iter().filter_map(|name| {
        let index = host.read(&format!("{DEVICES}/{name}/ifindex")).ok()?;
        Some((index.trim().parse().ok()?, name))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests;
