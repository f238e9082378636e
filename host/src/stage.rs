//! The stages a packet travels. Each has its own file: what it is set to, what it counts, what can be wrong.

pub mod filter;
pub mod irq;
pub mod link;
pub mod machine;
pub mod route;
pub mod rss;
pub mod socket;
pub mod softirq;
pub mod spread;
pub mod thread;
pub mod transmit;

mod view;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::counter::Counter;
use crate::finding::Rule;
use crate::netlink::qstats::QueueStatistics;
use crate::{Host, Known};

pub use view::HostView;

/// What to look at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scope {
    /// Interfaces by name; none: those with a device behind them, or where there is none, all that are up but loopback.
    pub interfaces: Vec<String>,
    /// Services on this port only.
    pub port: Option<u16>,
    /// Services of this process only.
    pub pid: Option<u32>,
}

/// The state of all stages of a host, read once.
#[derive(Debug, Clone, Serialize)]
pub struct PacketPath {
    /// Seconds since boot at which the reading began (`/proc/uptime`).
    pub uptime_seconds: Known<f64>,
    /// CPUs, nodes, kernel.
    pub machine: machine::MachineState,
    /// The interfaces looked at.
    pub link: Vec<link::LinkState>,
    /// Receive-side scaling, an item an interface.
    pub rss: Vec<rss::RssState>,
    /// Interrupts and who owns their affinity.
    pub irq: irq::IrqState,
    /// NAPI, RPS, backlog.
    pub softirq: softirq::SoftirqState,
    /// XDP, tc, netfilter, conntrack.
    pub filter: filter::FilterState,
    /// Reverse-path filter, early demux.
    pub route: route::RouteState,
    /// Who listens.
    pub socket: socket::HostSockets,
    /// Threads that serve the sockets.
    pub thread: thread::ThreadState,
    /// Transmit queues, an item an interface.
    pub transmit: Vec<transmit::TransmitState>,
}

/// A stage's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "each is explained where its Stage is")]
pub enum StageName {
    Machine,
    Link,
    Rss,
    Irq,
    Softirq,
    Filter,
    Route,
    Socket,
    Thread,
    Transmit,
}

/// What a stage offers beside its state.
#[derive(Debug)]
pub struct StageInfo {
    /// Its name.
    pub name: StageName,
    /// What a packet meets here: one paragraph for a person.
    pub explain: &'static str,
    /// What it looks for.
    pub rules: &'static [Rule],
    /// What it counts.
    pub counters: fn(&PacketPath) -> Vec<Counter>,
}

/// All stages, in the order a packet meets them.
pub const STAGES: [StageInfo; 10] = [
    machine::STAGE,
    link::STAGE,
    rss::STAGE,
    irq::STAGE,
    softirq::STAGE,
    filter::STAGE,
    route::STAGE,
    socket::STAGE,
    thread::STAGE,
    transmit::STAGE,
];

impl PacketPath {
    /// Reads all stages. What cannot be read is unknown in its place.
    #[must_use]
    pub fn observe(host: &Host, scope: &Scope) -> Self {
        let uptime_seconds = uptime(host);
        let machine = machine::MachineState::observe(host);
        let link = link::observe(host, scope);
        let names: Vec<&str> = link.iter().map(|link| link.interface.as_str()).collect();
        let statistics: Vec<_> = link.iter().map(|link| QueueStatistics::observe(host, link)).collect();
        let counted = || link.iter().zip(&statistics);
        let socket = socket::HostSockets::observe(host, scope);
        Self {
            uptime_seconds,
            rss: counted().map(|(link, counts)| rss::RssState::observe(host, link, counts)).collect(),
            irq: irq::IrqState::observe(host, &names),
            softirq: softirq::SoftirqState::observe(host, &link),
            filter: filter::FilterState::observe(host, &link),
            route: route::RouteState::observe(host, &names),
            thread: thread::ThreadState::observe(host, &socket),
            transmit: counted()
                .map(|(link, counts)| transmit::TransmitState::observe(host, link, counts))
                .collect(),
            machine,
            link,
            socket,
        }
    }

    /// What all stages count.
    #[must_use]
    pub fn counters(&self) -> Vec<Counter> {
        STAGES.iter().flat_map(|stage| (stage.counters)(self)).collect()
    }
}

pub(crate) fn uptime(host: &Host) -> Known<f64> {
    const PATH: &str = "/proc/uptime";
    match host.read(PATH) {
        Ok(text) => text
            .split_whitespace()
            .next()
            .and_then(|first| first.parse().ok())
            .filter(|seconds: &f64| seconds.is_finite())
            .map_or_else(|| Known::unknown(format!("{PATH}: no seconds in it")), Known::Value),
        Err(error) => Known::unknown(error.to_string()),
    }
}

impl StageName {
    /// The stage with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        STAGES.iter().map(|stage| stage.name).find(|stage| stage.name() == name)
    }

    /// Its name, as in JSON and in the ids of findings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            StageName::Machine => "machine",
            StageName::Link => "link",
            StageName::Rss => "rss",
            StageName::Irq => "irq",
            StageName::Softirq => "softirq",
            StageName::Filter => "filter",
            StageName::Route => "route",
            StageName::Socket => "socket",
            StageName::Thread => "thread",
            StageName::Transmit => "transmit",
        }
    }
}

impl fmt::Display for StageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
