//! Load above the capacity of a server.

mod admission;
mod credit;
mod guard;
mod interfaces;
mod shares;

use std::time::Duration;

pub(crate) use admission::{AdmissionControl, AdmissionPolicy, Unlimited};
pub(crate) use credit::{AdmissionCredit, WorkerCredit};
pub(crate) use guard::{AttachedGuard, receive_buffer};
pub use guard::{GuardCounts, GuardReport, GuardedInterface};

/// Handling of more requests than the server can answer.
///
/// Without a policy, the kernel takes CPU time from the workers to receive packets (receive livelock): the more packets
/// arrive, the fewer are answered. The default is no policy; [`protect`](Self::protect) enables everything. A policy does not
/// change settings of the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverloadPolicy {
    /// The requests that are dropped if too many wait.
    pub shed: ShedPolicy,
    /// Longest wait of a request with [`ShedPolicy::Oldest`]. Default: 250 ms.
    pub shed_after: Duration,
    /// Refuses requests at the interface while enough requests wait. Default: `None`.
    pub guard: Option<XdpGuard>,
    /// Limits each source to its share under overload. Default: `None`.
    pub fairness: Option<SourceGrouping>,
}

impl Default for OverloadPolicy {
    fn default() -> Self {
        Self {
            shed: ShedPolicy::default(),
            shed_after: Duration::from_millis(250),
            guard: None,
            fairness: None,
        }
    }
}

impl OverloadPolicy {
    /// Keeps goodput up under a flood: sheds old requests, refuses early at a guard, and limits each source to its share.
    #[must_use]
    pub fn protect() -> Self {
        Self {
            shed: ShedPolicy::Oldest,
            guard: Some(XdpGuard::default()),
            fairness: Some(SourceGrouping::default()),
            ..Self::default()
        }
    }
}

/// The requests that are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShedPolicy {
    /// Requests that arrive while the receive buffer is full, as the kernel does.
    #[default]
    Newest,
    /// Requests that waited longest, because their clients have probably given up. The service does not see them; they are
    /// counted in [`Counts::shed`](crate::Counts::shed). The kernel then takes the time of every packet of the host
    /// (`SIOCGSTAMPNS`, about 20 ns per packet). The wait of a batch is that of its youngest request.
    Oldest,
}

/// An XDP program that refuses requests for the server's port at the interface, before the network stack spends time on
/// them. Packets for other ports or addresses, other protocols and fragments pass.
///
/// It admits a limited number of requests more than the workers took. If the workers stop taking
/// requests, it passes everything. It is attached by a BPF link of this process, so it is detached
/// when the process ends. Requires Linux 5.11, `CAP_BPF` and `CAP_NET_ADMIN`. If it cannot be
/// attached, or the interface has another XDP program (which stays),
/// [`Server::fallbacks`](crate::Server::fallbacks) has the reason.
///
/// With many drivers, attaching an XDP program resets the queues, which takes the link down for a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XdpGuard {
    /// The interfaces on which requests arrive. Default: all interfaces that are up and have an
    /// address of the server, except loopback, ports of a bridge or bond that is guarded itself,
    /// and VLANs, macvlans and ipvlans whose lower interface is guarded. A wildcard address leaves
    /// out veths that have a link-local address only. If the server has a wildcard address and only
    /// the loopback interface has addresses: all interfaces that are up, with the same exceptions.
    pub interfaces: Vec<String>,
    /// How long an admitted request may take until its reply leaves, as an estimate: the guard admits as many requests as
    /// the workers answer in this time, at the rate at which each of them took requests while it was busy (over its last
    /// 10 to 20 ms of work), and at least one. A worker starts with 64. The receive buffer limits the number, too;
    /// unless [`Builder::receive_buffer`](crate::Builder::receive_buffer) is set, it has room for 500,000 requests per
    /// second. Above capacity this is the latency. Below it, a burst or a pause of the worker that brings more work than
    /// this is refused in part, so a worker that shares its CPU with other programs needs more. Default: 5 ms.
    pub wait: Duration,
    /// Time without a request taken by any worker after which everything passes. Default: 100 ms.
    pub open_after: Duration,
}

impl Default for XdpGuard {
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            wait: Duration::from_millis(5),
            open_after: Duration::from_millis(100),
        }
    }
}

/// The addresses that count as one source.
///
/// A source that took a quarter more than the mean of those seen lately, and more than 1/32 of all,
/// is heavy. It may use only half of the places at the [`XdpGuard`]. Without a guard, the fastest
/// source fills the receive buffer, and a worker sheds the requests of a heavy source while more
/// requests wait. That helps if receiving a request costs less than answering it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceGrouping {
    /// Bits of an IPv4 address, 1 to 32. Default: 24.
    pub v4_prefix: u8,
    /// Bits of an IPv6 address, 1 to 64. Default: 56.
    pub v6_prefix: u8,
}

impl Default for SourceGrouping {
    fn default() -> Self {
        Self { v4_prefix: 24, v6_prefix: 56 }
    }
}

impl SourceGrouping {
    /// Masks of the source in an IPv4 address, and in the upper half of an IPv6 address.
    fn masks(&self) -> (u64, u64) {
        let v4 = u32::MAX << (32 - u32::from(self.v4_prefix.clamp(1, 32)));
        let v6 = u64::MAX << (64 - u32::from(self.v6_prefix.clamp(1, 64)));
        (v4.into(), v6)
    }

    /// The source of an address as a number, different for the two families.
    #[inline]
    pub(crate) fn source(&self, address: std::net::IpAddr) -> u64 {
        let (v4_mask, v6_mask) = self.masks();
        match address {
            std::net::IpAddr::V4(v4) => u64::from(v4.to_bits()) & v4_mask,
            // No IPv6 address in use begins with zeros, as an IPv4 address does here.
            std::net::IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64 & v6_mask,
        }
    }
}
