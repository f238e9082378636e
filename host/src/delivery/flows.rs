//! Counts clients that got replies before a change and after it.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use aya::maps::{Array, HashMap, MapData};
use serde::Serialize;

use super::SINCE;
use super::waits::WaitCounts;
use crate::background::pause_after_burst;
use crate::bpf::{self, BpfPrograms, ProgramAttachment};
use crate::{Host, HostError};

static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/flows.bpf.o"));

const PROGRAMS: [ProgramAttachment; 2] = [
    ProgramAttachment::new("comes", "netif_receive_skb").since(SINCE),
    ProgramAttachment::new("goes", "net_dev_queue").since(SINCE),
];

const WHAT: &str = "counting replies per client (BPF; requires CAP_BPF and CAP_PERFMON)";

/// A client counts as answered with this many replies if it got replies to 90 % of its requests.
const KNOWN: u32 = 3;

/// With this many requests after the change, missing replies are no longer chance.
const MANY: u32 = 10;

/// Counts requests and replies per client until it is dropped. Live host only.
#[derive(Debug)]
pub struct FlowWatch {
    programs: BpfPrograms,
}

/// Clients (address and port) of a server by the state of their requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct FlowCounts {
    /// Clients that got replies before, and now wait for one and get none.
    pub silenced: u64,
    /// Clients that got replies before, and now get replies to fewer than 70 % of their requests. A
    /// rate limit of the server can also cause this in some seconds.
    pub curtailed: u64,
    /// Clients that got replies before and still do.
    pub answered: u64,
    /// All clients that wait for a reply and got none since the change.
    pub waiting: u64,
    /// All clients that got a reply since the change.
    pub served: u64,
}

/// Requests and replies of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientCounts {
    pub requests: u64,
    pub replies: u64,
    /// Replies whose time was measured, each from the oldest request without a reply, and the
    /// replies that took longer than the limit.
    pub timed: u64,
    pub slow: u64,
}

impl FlowWatch {
    /// Starts to count the UDP packets of these ports in the calling thread's network namespace, as
    /// before the change. A reply is slow if it leaves later than `slow` (us to 71 minutes) after
    /// its request arrived. Without a limit, reply times are not measured.
    ///
    /// # Errors
    /// [`HostError::Call`] with the kernel's reason, [`HostError::NotLive`] for a capture.
    pub fn start(host: &Host, ports: &[u16], slow: Option<Duration>) -> Result<Self, HostError> {
        let slow_us = slow.map_or(0, |limit| u32::try_from(limit.as_micros()).unwrap_or(u32::MAX).max(1));
        Self::start_with(host, ports, slow_us, slow.is_some())
    }

    /// Like [`FlowWatch::start`], and measures reply times for [`FlowWatch::reply_times`].
    ///
    /// # Errors
    /// As [`FlowWatch::start`].
    pub fn start_with_times(host: &Host, ports: &[u16]) -> Result<Self, HostError> {
        Self::start_with(host, ports, 0, true)
    }

    fn start_with(host: &Host, ports: &[u16], slow_us: u32, times: bool) -> Result<Self, HostError> {
        host.must_be_live(WHAT)?;
        let times = u8::from(times);
        let start = || {
            let (network, ports) = (bpf::network_namespace()?, bpf::port_set(ports));
            let mut programs = BpfPrograms::load(
                WHAT,
                OBJECT,
                pause_after_burst,
                |loader| {
                    loader.override_global("network", &network, true);
                    loader.override_global("ports", ports.as_slice(), true);
                    loader.override_global("slow_us", &slow_us, true);
                    loader.override_global("times_wanted", &times, true);
                },
                &PROGRAMS,
            )?;
            programs.attach(&PROGRAMS)?;
            Ok(Self { programs })
        };
        start().map_err(call_error)
    }

    /// Times of replies since the start: from a client's oldest request without a reply to the next reply to that
    /// client's port, both at the network interface.
    pub fn reply_times(&self) -> Result<WaitCounts, HostError> {
        WaitCounts::read(&self.programs, "reply_times").map_err(call_error)
    }

    /// Counts packets from now on as packets after the change.
    pub fn mark_change(&mut self) -> Result<(), HostError> {
        let mut set_phase = || {
            let mut phase: Array<&mut MapData, u32> = self.programs.map_mut("phase")?;
            phase.set(0, 1, 0).map_err(bpf::error)
        };
        set_phase().map_err(call_error)
    }

    pub fn read(&self) -> Result<FlowCounts, HostError> {
        Ok(FlowCounts::of(self.flows()?.into_values()))
    }

    /// Requests and replies per client (address and port) since the start. A reply to a client
    /// without a request is not counted.
    pub fn by_client(&self) -> Result<BTreeMap<SocketAddr, ClientCounts>, HostError> {
        let mut counts: BTreeMap<SocketAddr, ClientCounts> = BTreeMap::new();
        for ([a, b, c, d, ports], flow) in self.flows()? {
            let [requests, later_requests, replies, later_replies, _, _, timed, slow] = flow.map(u64::from);
            let bytes: Vec<u8> = [a, b, c, d].into_iter().flat_map(u32::to_ne_bytes).collect();
            let address = <[u8; 16]>::try_from(bytes).map(Ipv6Addr::from).unwrap_or(Ipv6Addr::UNSPECIFIED);
            let [first, second, ..] = ports.to_ne_bytes();
            let client = SocketAddr::new(address.to_canonical(), u16::from_be_bytes([first, second]));
            let client_counts = counts.entry(client).or_default();
            client_counts.requests += requests + later_requests;
            client_counts.replies += replies + later_replies;
            client_counts.timed += timed;
            client_counts.slow += slow;
        }
        Ok(counts)
    }

    /// Clients (address and port) that fit into the table. A further client replaces one without
    /// recent packets.
    pub const MOST_CLIENTS: usize = 16_384;

    fn flows(&self) -> Result<BTreeMap<[u32; 5], [u32; 8]>, HostError> {
        let read = || {
            let table: HashMap<&MapData, [u32; 5], [u32; 8]> = self.programs.map("flows")?;
            // Reading starts again if a new client has replaced the client that was read last.
            table.iter().take(4 * Self::MOST_CLIENTS).collect::<Result<_, _>>().map_err(bpf::error)
        };
        read().map_err(call_error)
    }
}

impl FlowCounts {
    /// From values of `struct flow` in bpf/flows.bpf.c.
    fn of(flows: impl IntoIterator<Item = [u32; 8]>) -> Self {
        let mut counts = Self::default();
        for [requests_before, requests_after, replies_before, replies_after, waiting, ..] in flows {
            let was_answered =
                replies_before >= KNOWN && u64::from(replies_before) * 10 >= u64::from(requests_before) * 9;
            let (is_served, is_waiting) = (replies_after > 0, replies_after == 0 && waiting > 0);
            // Requests still waiting may yet be answered.
            let expected_replies = requests_after.saturating_sub(waiting);
            let is_curtailed =
                expected_replies >= MANY && u64::from(replies_after) * 10 < u64::from(expected_replies) * 7;
            counts.served += u64::from(is_served);
            counts.waiting += u64::from(is_waiting);
            counts.answered += u64::from(is_served && was_answered && !is_curtailed);
            counts.silenced += u64::from(is_waiting && was_answered);
            counts.curtailed += u64::from(is_curtailed && was_answered && !is_waiting);
        }
        counts
    }
}

fn call_error(source: io::Error) -> HostError {
    HostError::Call { what: WHAT.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_counted_as_silenced_curtailed_answered_or_waiting() {
        let flows = [
            // Answered before and after; answered before only.
            [90, 50, 90, 49, 1, 0, 0, 0],
            [90, 50, 90, 0, 50, 0, 0, 0],
            // No requests since the change, and none waiting.
            [90, 0, 90, 0, 0, 0, 0, 0],
            // The last request came just before the change.
            [91, 0, 90, 0, 1, 0, 0, 0],
            // One port per request; a client that was never answered well.
            [1, 0, 0, 0, 1, 0, 0, 0],
            [90, 50, 30, 0, 110, 0, 0, 0],
            [0, 1, 0, 1, 0, 0, 0, 0],
            // Half of its packets go to a thread that does not know the client, as measured with
            // coturn.
            [27, 32, 27, 17, 0, 0, 0, 0],
        ];
        let counts = FlowCounts::of(flows);
        assert_eq!(counts, FlowCounts { silenced: 2, curtailed: 1, answered: 1, waiting: 4, served: 3 });
    }
}
