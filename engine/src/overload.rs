//! What a server does above its capacity.

mod advice;
mod credit;
mod gate;
mod guard;
mod napi;
mod place;
mod shares;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use advice::HostAdvice;
pub(crate) use advice::{ServingThreads, find_advice as advice};
pub(crate) use credit::{AdmissionCredit, WorkerCredit};
pub(crate) use gate::{AdmissionControl, AdmissionPolicy, Unlimited};
pub(crate) use guard::{AttachedGuard, receive_buffer};
pub use guard::{GuardCounts, GuardMode, GuardReport, GuardedInterface};

/// What a server does with more requests than it can answer.
///
/// Without a policy the kernel goes on taking packets from the device, at the expense of the threads that would answer them
/// (receive livelock): the more arrive, the fewer are answered. The default is no policy; [`protect`](Self::protect) is all
/// of it. What it does not touch are settings of the device: those are for the host's administrator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", default)]
pub struct OverloadPolicy {
    /// Which requests are given up when more wait than can be answered.
    pub shed: ShedPolicy,
    /// How long a request may have waited, for [`ShedPolicy::Oldest`]. Default: 250 ms.
    #[serde(rename = "shed_after_seconds", with = "seconds")]
    pub shed_after: Duration,
    /// Polling by the worker goes before the device's interrupts (`SO_PREFER_BUSY_POLL` and `SO_BUSY_POLL_BUDGET`, Linux
    /// 5.11), so many packets a poll. Takes [`Builder::busy_poll`](crate::Builder::busy_poll), an interface whose interrupts
    /// are deferred (`napi_defer_hard_irqs` and `gro_flush_timeout`), and `CAP_NET_ADMIN`; without that the server runs
    /// without and says so in [`Server::fallbacks`](crate::Server::fallbacks). Default: none.
    pub prefer_busy_poll: Option<u16>,
    /// Refuses requests where they arrive, once enough of them wait. Default: none.
    pub guard: Option<XdpGuard>,
    /// Under overload, no source gets more than its share. Default: none.
    pub fairness: Option<SourceGrouping>,
}

impl Default for OverloadPolicy {
    fn default() -> Self {
        Self {
            shed: ShedPolicy::default(),
            shed_after: Duration::from_millis(250),
            prefer_busy_poll: None,
            guard: None,
            fairness: None,
        }
    }
}

impl OverloadPolicy {
    /// Everything that keeps goodput up under a flood: old requests are shed, a guard refuses early, and sources are treated
    /// fairly.
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

/// Which requests are given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShedPolicy {
    /// Those that come when the receive buffer is full: what the kernel does.
    #[default]
    Newest,
    /// Those that wait longest, whose clients have likely given up: the service does not see them, and they are counted in
    /// [`Counts::shed`](crate::Counts::shed). The kernel notes when each packet arrives from then on, for every socket of
    /// the host (`SIOCGSTAMPNS`, some 20 ns a packet). The wait of a batch is that of its youngest request.
    Oldest,
}

/// An XDP program that refuses requests for the server's port where packets arrive, before the network stack spends time on
/// them. Whatever is for another port or address, no UDP, tagged, or a fragment passes.
///
/// It admits so many requests more than the workers took. If they take none any more it lets everything through. It is
/// attached by a BPF link that only this process holds (Linux 5.9): it goes with the process, however that ends. Takes
/// `CAP_BPF` and `CAP_NET_ADMIN`. Where it cannot be attached, or another XDP program is there (which stays), the server
/// runs without and says so in [`Server::fallbacks`](crate::Server::fallbacks).
///
/// Attaching an XDP program makes many drivers set up their queues anew, which takes the link down for a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", default)]
pub struct XdpGuard {
    /// The interfaces that requests arrive on. Default: those that have the address served, on a wildcard address all that
    /// are up and no loopback.
    pub interfaces: Vec<String>,
    /// How long an admitted request may take until its reply leaves, as an estimate: the guard admits as many requests as
    /// the workers answer in this time, at the rate at which each of them took requests while it was busy (over its last
    /// 10 to 20 ms of work), and at least one. A worker starts with 64. The receive buffer limits the number, too;
    /// unless [`Builder::receive_buffer`](crate::Builder::receive_buffer) is set, it has room for 500,000 requests per
    /// second. Above capacity this is the latency. Below it, a burst or a pause of the worker that brings more work than
    /// this is refused in part, so a worker that shares its CPU with other programs needs more. Default: 5 ms.
    #[serde(rename = "wait_seconds", with = "seconds")]
    pub wait: Duration,
    /// How long no worker may have taken a request before everything is let through. Default: 100 ms.
    #[serde(rename = "open_after_seconds", with = "seconds")]
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

/// What counts as one source, for a share of its own.
///
/// A source that took a quarter more than the mean of those seen lately, and more than 1/32 of all, is heavy. It may fill
/// only half of what may wait at the [`XdpGuard`]. Without a guard the receive buffer is whose who fills it first, and a
/// worker sheds what it takes of a heavy source while more requests wait: that helps as far as taking a request costs less
/// than answering it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", default)]
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
    /// What of an IPv4 address, and of the upper half of an IPv6 one, makes the source.
    fn masks(&self) -> (u64, u64) {
        let v4 = u32::MAX << (32 - u32::from(self.v4_prefix.clamp(1, 32)));
        let v6 = u64::MAX << (64 - u32::from(self.v6_prefix.clamp(1, 64)));
        (v4.into(), v6)
    }

    /// The source that an address belongs to, as one number. Addresses of both families do not meet.
    #[inline]
    pub(crate) fn source(&self, address: std::net::IpAddr) -> u64 {
        let (v4_mask, v6_mask) = self.masks();
        match address {
            std::net::IpAddr::V4(v4) => u64::from(v4.to_bits()) & v4_mask,
            // No address in use begins with zeros, as an IPv4 one does here.
            std::net::IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64 & v6_mask,
        }
    }
}

/// A duration in JSON: seconds.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(duration.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(D::Error::custom)
    }
}
