//! The stages of a packet. Each has a file with its state and its rules.

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

mod counters;
mod list;
pub mod name;
mod view;

use serde::Serialize;

use crate::netlink::qstats::QueueStatistics;
use crate::scope::Scope;
use crate::{Host, Known};

pub use list::{STAGES, StageInfo};
pub use name::StageName;
pub use view::HostView;

#[derive(Debug, Clone, Serialize)]
pub struct PacketPath {
    /// Seconds since boot when the reading began (`/proc/uptime`).
    pub uptime_seconds: Known<f64>,
    pub machine: machine::MachineState,
    pub link: Vec<link::LinkState>,
    pub virtual_network: link::virtual_network::VirtualNetwork,
    pub rss: Vec<rss::RssState>,
    pub irq: irq::IrqState,
    pub softirq: softirq::SoftirqState,
    pub filter: filter::FilterState,
    pub route: route::RouteState,
    pub socket: socket::HostSockets,
    pub thread: thread::ThreadState,
    pub transmit: Vec<transmit::TransmitState>,
}

impl PacketPath {
    /// Values that cannot be read are unknown.
    pub fn observe(host: &Host, scope: &Scope) -> Self {
        Self::observe_ports(host, scope, scope.port.as_slice())
    }

    /// The path of a host with these files only.
    #[cfg(test)]
    pub(crate) fn scripted<P: Into<String>, C: Into<Vec<u8>>>(
        files: impl IntoIterator<Item = (P, C)>,
    ) -> Self {
        Self::observe(&Host::scripted(files), &Scope::default())
    }

    /// As [`PacketPath::observe`], with several ports instead of the port of the scope.
    pub fn observe_ports(host: &Host, scope: &Scope, ports: &[u16]) -> Self {
        let uptime_seconds = uptime(host);
        let machine = machine::MachineState::observe(host);
        let link = link::observe(host, scope);
        let names: Vec<&str> = link.iter().map(|link| link.interface.as_str()).collect();
        let statistics: Vec<_> =
            link.iter().map(|link| QueueStatistics::observe(host, &link.interface, &link.index)).collect();
        let links_with_statistics = || link.iter().zip(&statistics);
        let socket = socket::HostSockets::observe_ports(host, scope, ports);
        Self {
            uptime_seconds,
            rss: links_with_statistics()
                .map(|(link, counts)| rss::RssState::observe(host, link, counts))
                .collect(),
            irq: irq::IrqState::observe(host, &names),
            softirq: softirq::SoftirqState::observe(host, &link),
            filter: filter::FilterState::observe(host, &link),
            route: route::RouteState::observe(host, &names),
            thread: thread::ThreadState::observe(host, &socket),
            transmit: links_with_statistics()
                .map(|(link, counts)| transmit::TransmitState::observe(host, link, counts))
                .collect(),
            virtual_network: link::virtual_network::VirtualNetwork::observe(
                host,
                &link,
                machine.nodes.value().map_or(&[], Vec::as_slice),
            ),
            machine,
            link,
            socket,
        }
    }
}

pub(crate) fn uptime(host: &Host) -> Known<f64> {
    host.read_known("/proc/uptime", |text| {
        let first = text.split_whitespace().next().and_then(|first| first.parse().ok());
        first.filter(|seconds: &f64| seconds.is_finite()).ok_or("no seconds in it")
    })
}
