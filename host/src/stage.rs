//! The stages of a packet. Each has a file with its state, its counters and its rules.

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

/// The part of a host to read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scope {
    /// If empty: interfaces with a device, or without any, all that are up except the loopback.
    pub interfaces: Vec<String>,
    /// Only services on this port.
    pub port: Option<u16>,
    /// Only services of this process.
    pub pid: Option<u32>,
}

#[derive(Debug, Clone, Serialize)]
pub struct PacketPath {
    /// Seconds since boot when the reading began (`/proc/uptime`).
    pub uptime_seconds: Known<f64>,
    pub machine: machine::MachineState,
    pub link: Vec<link::LinkState>,
    pub rss: Vec<rss::RssState>,
    pub irq: irq::IrqState,
    pub softirq: softirq::SoftirqState,
    pub filter: filter::FilterState,
    pub route: route::RouteState,
    pub socket: socket::HostSockets,
    pub thread: thread::ThreadState,
    pub transmit: Vec<transmit::TransmitState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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

#[derive(Debug)]
pub struct StageInfo {
    pub name: StageName,
    /// What happens to a packet here, one paragraph.
    pub explain: &'static str,
    pub rules: &'static [Rule],
    pub counters: fn(&PacketPath) -> Vec<Counter>,
}

/// In packet order.
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
    /// Values that cannot be read are unknown.
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
    pub fn from_name(name: &str) -> Option<Self> {
        STAGES.iter().map(|stage| stage.name).find(|stage| stage.name() == name)
    }

    /// As in JSON and in the ids of findings.
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
