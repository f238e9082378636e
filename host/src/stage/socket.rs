//! Who listens: sockets, reuseport groups, their buffers and what they lose.

mod chooser;
mod copy;
mod counters;
mod load;
mod memory;
mod observe;
mod options;
mod owners;
mod proc_net;
mod rules;
#[cfg(test)]
pub(super) mod sample;
mod scope;
mod steering;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{StageInfo, StageName};
use crate::Known;

pub use chooser::{ChooserMember, ChoosingProgram, GroupChooser};
pub(crate) use chooser::{ask as choosers, chain, members};
pub(crate) use copy::{copy, copy_of_any};
pub(crate) use observe::udp_sockets;
pub use options::SocketOptions;
use options::options;
pub(crate) use owners::{DescriptorKind, DescriptorOwners};
pub(crate) use proc_net::{port_range, proc_net_sockets};
pub use scope::ScopeError;
pub(crate) use steering::program_type;

/// The stage.
pub(super) const STAGE: StageInfo = StageInfo {
    name: StageName::Socket,
    explain: "A packet is put into the receive queue of the socket it is for, under that socket's lock, and lost if the \
              buffer is full. Of a reuseport group one socket is chosen: by hash, by a program, or by the CPU the \
              packet came by.",
    rules: rules::RULES,
    counters: counters::counters,
};

/// Sockets of a host.
#[derive(Debug, Clone, Serialize)]
pub struct HostSockets {
    /// UDP sockets that are bound and not connected, and TCP listeners: those in scope, a service an item. Without a port
    /// or process in scope, all that are not bound to a loopback address.
    pub services: Known<Vec<ServiceSockets>>,
    /// How many sockets each of the kernel's lists held, in scope or not: `udp4`, `udp6`, `tcp4`, `tcp6`.
    pub lists: BTreeMap<String, Known<u32>>,
    /// `net.core.rmem_max` in bytes; none in a network namespace where the kernel does not show it.
    pub receive_buffer_max_bytes: Known<Option<u64>>,
    /// `net.core.rmem_default` in bytes; none in a network namespace where the kernel does not show it.
    pub receive_buffer_default_bytes: Known<Option<u64>>,
    /// Memory that all UDP sockets together may use and do use; none in a network namespace where the kernel does not show
    /// the limit.
    pub udp_memory: Known<Option<UdpMemory>>,
    /// `net.ipv4.ip_local_port_range`: the first and the last port that the kernel gives to sockets bound to none.
    pub local_ports: Known<(u16, u16)>,
}

/// Memory of UDP sockets, in pages of 4 KiB on most architectures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct UdpMemory {
    /// Pages beyond which packets are lost: the third value of `net.ipv4.udp_mem`.
    pub limit_pages: u64,
    /// Pages in use by the whole host (`mem` in `/proc/net/sockstat`).
    pub used_pages: u64,
}

/// Sockets of one protocol and address that are one group, or of the same processes.
#[derive(Debug, Clone, Serialize)]
pub struct ServiceSockets {
    /// `udp` or `tcp`.
    pub protocol: SocketProtocol,
    /// The address they are bound to.
    pub local: SocketAddr,
    /// The processes that hold them, none for a socket of the kernel; unknown where descriptors may not be read.
    pub processes: Known<Vec<SocketOwner>>,
    /// The sockets: in the order in which their group has them, where the kernel told it (Linux 5.9); else in that of their
    /// inodes.
    pub sockets: Vec<SocketState>,
    /// Whether that order is the group's own, as the kernel told it.
    #[serde(skip)]
    pub ordered: bool,
    /// How the socket is chosen that gets a packet; none for a service of one socket.
    pub steering: Known<Option<SteeringState>>,
    /// Whether `port` or `pid` of the scope named it.
    pub named: bool,
    /// Where the sockets were read: `sock_diag`, or the file.
    pub read_from: String,
}

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SocketProtocol {
    /// UDP.
    Udp,
    /// TCP, listening.
    Tcp,
}

/// A process that holds a socket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SocketOwner {
    /// Its id.
    pub pid: u32,
    /// Its name (`comm`).
    pub name: String,
}

/// A socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SocketState {
    /// Its inode, by which `/proc/PID/fd` names it.
    pub inode: u64,
    /// Its cookie; none where the kernel does not tell.
    pub cookie: Option<u64>,
    /// The user that made it. Sockets of different users are in different reuseport groups.
    pub uid: u32,
    /// Bytes that wait in its receive queue, as memory charged to it. For a TCP listener, connections that wait.
    pub queued_bytes: u64,
    /// Its receive buffer in bytes; none where the kernel does not tell.
    pub receive_buffer_bytes: Option<u64>,
    /// Packets lost because the buffer was full; none where the kernel does not tell.
    pub drops: Option<u64>,
    /// What its process set; none where nobody was asked, as for TCP listeners that are not named.
    pub options: Known<Option<SocketOptions>>,
    /// The descriptors that hold it: process and number.
    pub descriptors: Vec<(u32, u32)>,
}

/// How the socket of a reuseport group is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SteeringState {
    /// By hash of addresses and ports.
    Hash,
    /// By CPU: by a classic program that loads the CPU's number, or by SO_INCOMING_CPU of every socket.
    Cpu,
    /// By another program; what it goes by is not told.
    Program,
}

impl HostSockets {
    /// The services, empty where they are unknown.
    #[must_use]
    pub fn services(&self) -> &[ServiceSockets] {
        self.services.value().map_or(&[], Vec::as_slice)
    }
}

impl ServiceSockets {
    /// Its protocol, address and processes, as a person names it.
    #[must_use]
    pub fn name(&self) -> String {
        let mut names: Vec<&str> =
            self.processes.value().into_iter().flatten().map(|process| process.name.as_str()).collect();
        names.dedup();
        match names.as_slice() {
            [] => format!("{} {}", self.protocol.name(), self.local),
            names => format!("{} {} ({})", self.protocol.name(), self.local, names.join(", ")),
        }
    }

    /// Whether only this host can reach it.
    #[must_use]
    pub fn is_on_loopback(&self) -> bool {
        observe::is_loopback(self.local)
    }

    /// Packets its sockets lost; none where the kernel does not tell of any of them.
    #[must_use]
    pub fn drops(&self) -> Option<u64> {
        self.sockets.iter().filter_map(|socket| socket.drops).reduce(u64::saturating_add)
    }
}

impl SocketState {
    /// What its process set, where that is known.
    #[must_use]
    pub fn set(&self) -> Option<&SocketOptions> {
        self.options.value()?.as_ref()
    }

    /// The CPU whose packets it asks for (SO_INCOMING_CPU).
    #[must_use]
    pub fn incoming_cpu(&self) -> Option<u32> {
        self.set()?.incoming_cpu
    }
}

impl SocketProtocol {
    /// Its name, as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SocketProtocol::Udp => "udp",
            SocketProtocol::Tcp => "tcp",
        }
    }
}
