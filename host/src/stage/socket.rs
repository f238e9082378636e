//! Sockets: listeners, reuseport groups, buffers and losses.

pub(in crate::stage) mod load;
mod memory;
mod observe;
mod options;
mod proc_net;
pub(super) mod rules;
#[cfg(test)]
pub(super) mod sample;
mod scope;
mod steering;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use strum::Display;

use crate::Known;

pub use crate::netlink::sock_diag::SocketProtocol;
pub use crate::reuseport::{ChooserMember, ChoosingProgram, GroupChooser};
pub(crate) use observe::udp_sockets;
pub use options::SocketOptions;
pub(crate) use proc_net::proc_net_sockets;
pub use proc_net::{bound_udp_ports, port_range, udp_socket_drops};
pub use scope::ScopeError;
pub(crate) use steering::program_type;

#[derive(Debug, Clone, Serialize)]
pub struct HostSockets {
    /// UDP sockets that are bound and not connected, and TCP listeners in scope, by service.
    /// Without a port or process in scope, all except those on a loopback address.
    pub services: Known<Vec<ServiceSockets>>,
    /// Sizes of the kernel's lists, in scope or not: `udp4`, `udp6`, `tcp4`, `tcp6`.
    pub lists: BTreeMap<String, Known<u32>>,
    /// Bound UDP sockets of both address families, connected or not (`inuse` in
    /// `/proc/net/sockstat` and `sockstat6`); `None` without that file.
    pub udp_in_use: Known<Option<u64>>,
    /// `net.core.rmem_max` in bytes; `None` in a network namespace where the kernel does not show
    /// it.
    pub receive_buffer_max_bytes: Known<Option<u64>>,
    /// `net.core.rmem_default` in bytes; `None` in a network namespace where the kernel does not
    /// show it.
    pub receive_buffer_default_bytes: Known<Option<u64>>,
    /// `None` in a network namespace where the kernel does not show the limit.
    pub udp_memory: Known<Option<UdpMemory>>,
    /// `net.ipv4.ip_local_port_range`: first and last ephemeral port.
    pub local_ports: Known<(u16, u16)>,
}

/// Memory of all UDP sockets, in pages of 4 KiB on most architectures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct UdpMemory {
    /// Limit for packets: the third value of `net.ipv4.udp_mem`.
    pub limit_pages: u64,
    /// Pages in use on the host (`mem` in `/proc/net/sockstat`).
    pub used_pages: u64,
}

/// Sockets of one protocol and address that are one group, or belong to the same processes.
#[derive(Debug, Clone, Serialize)]
pub struct ServiceSockets {
    pub protocol: SocketProtocol,
    pub local: SocketAddr,
    /// The processes that hold them, none for a socket of the kernel; unknown if descriptors cannot
    /// be read.
    pub processes: Known<Vec<SocketOwner>>,
    /// In the order of the group if the kernel reports it (Linux 5.9), else by inode.
    pub sockets: Vec<SocketState>,
    /// Whether that order is the group's.
    #[serde(skip)]
    pub ordered: bool,
    /// Whether all have IPV6_V6ONLY, so that IPv4 packets to `::` do not reach them.
    #[serde(skip)]
    pub v6_only: bool,
    /// How the group chooses a socket; `None` for a single socket.
    pub steering: Known<Option<SteeringState>>,
    /// Whether `port` or `pid` of the scope selected it.
    pub named: bool,
    /// `sock_diag`, or the file.
    pub read_from: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SocketOwner {
    pub pid: u32,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SocketState {
    /// As in `/proc/PID/fd`.
    pub inode: u64,
    /// `None` if the kernel does not report it.
    pub cookie: Option<u64>,
    /// Sockets of different users are in different reuseport groups.
    pub uid: u32,
    /// Memory charged to the receive queue in bytes. For a TCP listener, waiting connections.
    pub queued_bytes: u64,
    /// `None` if the kernel does not report it.
    pub receive_buffer_bytes: Option<u64>,
    /// Packets lost because the buffer was full; `None` if the kernel does not report them.
    pub drops: Option<u64>,
    /// `None` if the options were not read, as for TCP listeners that the scope does not name.
    pub options: Known<Option<SocketOptions>>,
    /// Descriptors that refer to it: process and number.
    pub descriptors: Vec<(u32, u32)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SteeringState {
    /// By hash of addresses and ports.
    Hash,
    /// By CPU: a classic program that loads the CPU number, or SO_INCOMING_CPU of every socket.
    Cpu,
    /// By another program with unknown criteria.
    Program,
}

impl HostSockets {
    pub fn services(&self) -> &[ServiceSockets] {
        self.services.value().map_or(&[], Vec::as_slice)
    }
}

impl ServiceSockets {
    /// Protocol, address and processes, for messages.
    pub fn name(&self) -> String {
        let mut names: Vec<&str> =
            self.processes.value().into_iter().flatten().map(|process| process.name.as_str()).collect();
        names.dedup();
        match names.as_slice() {
            [] => format!("{} {}", self.protocol.name(), self.local),
            names => format!("{} {} ({})", self.protocol.name(), self.local, names.join(", ")),
        }
    }

    pub fn is_on_loopback(&self) -> bool {
        is_loopback(self.local)
    }

    /// `None` if the kernel reports drops for none of the sockets.
    pub fn drops(&self) -> Option<u64> {
        self.sockets.iter().filter_map(|socket| socket.drops).reduce(u64::saturating_add)
    }
}

impl SocketState {
    pub fn known_options(&self) -> Option<&SocketOptions> {
        self.options.value()?.as_ref()
    }

    /// SO_INCOMING_CPU.
    pub fn incoming_cpu(&self) -> Option<u32> {
        self.known_options()?.incoming_cpu
    }
}

pub(crate) fn is_loopback(local: SocketAddr) -> bool {
    local.ip().to_canonical().is_loopback()
}
