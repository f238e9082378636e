//! Who listens: sockets, reuseport groups, their buffers and what they lose.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{PacketPath, Scope, Stage, StageName};
use crate::counter::Counter;
use crate::finding::Rule;
use crate::{Host, Known};

/// The stage.
pub(super) const STAGE: Stage = Stage {
    name: StageName::Socket,
    explain: "A packet is put into the receive queue of the socket it is for, under that socket's lock, and lost if the \
              buffer is full. Of a reuseport group one socket is chosen: by hash, by a program, or by the CPU the \
              packet came by.",
    rules: RULES,
    counters,
};

const RULES: &[Rule] = &[];

/// Sockets of a host.
#[derive(Debug, Clone, Serialize)]
pub struct Sockets {
    /// UDP sockets that are bound and not connected, and TCP listeners: those in scope, a service an item. Without a port
    /// or process in scope, all that are not bound to a loopback address.
    pub services: Known<Vec<Service>>,
    /// `net.core.rmem_max` in bytes.
    pub receive_buffer_max_bytes: Known<u64>,
    /// `net.core.rmem_default` in bytes.
    pub receive_buffer_default_bytes: Known<u64>,
}

/// Sockets of one process, protocol and address.
#[derive(Debug, Clone, Serialize)]
pub struct Service {
    /// `udp` or `tcp`.
    pub protocol: Protocol,
    /// The address they are bound to.
    pub local: SocketAddr,
    /// The processes that hold them; unknown where descriptors may not be read.
    pub processes: Known<Vec<Process>>,
    /// The sockets, in the order of their group: that in which they were bound.
    pub sockets: Vec<Socket>,
    /// Whether the socket is chosen by a program or by CPU; none for a service of one socket.
    pub steering: Known<Option<Steering>>,
    /// Whether `port` or `pid` of the scope named it.
    pub named: bool,
}

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// UDP.
    Udp,
    /// TCP, listening.
    Tcp,
}

/// A process that holds a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its name (`comm`).
    pub name: String,
}

/// A socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Socket {
    /// Its inode, by which `/proc/PID/fd` names it.
    pub inode: u64,
    /// Its cookie.
    pub cookie: u64,
    /// Bytes that wait in its receive queue, as memory charged to it.
    pub queued_bytes: u64,
    /// Its receive buffer in bytes; none where the kernel does not tell.
    pub receive_buffer_bytes: Option<u64>,
    /// Packets lost because the buffer was full; none where the kernel does not tell.
    pub drops: Option<u64>,
    /// The CPU that brought the last packet, or that SO_INCOMING_CPU asks for; none where no packet came.
    pub incoming_cpu: Known<Option<u32>>,
    /// Whether it asks for merged datagrams (UDP_GRO, Linux 5.0).
    pub gro: Known<bool>,
    /// Whether it is bound with SO_REUSEPORT.
    pub reuseport: Known<bool>,
    /// The descriptors that hold it: process and number.
    pub descriptors: Vec<(u32, u32)>,
}

/// How the socket of a reuseport group is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Steering {
    /// By hash of addresses and ports.
    Hash,
    /// By CPU, as far as the CPUs of the last packets tell.
    Cpu,
    /// By an SK_REUSEPORT program that the process holds.
    Program,
}

impl Sockets {
    /// Reads the sockets in scope.
    #[must_use]
    pub fn observe(_host: &Host, _scope: &Scope) -> Self {
        Self {
            services: Known::unknown("not read yet"),
            receive_buffer_max_bytes: Known::unknown("not read yet"),
            receive_buffer_default_bytes: Known::unknown("not read yet"),
        }
    }

    /// The services, empty where they are unknown.
    #[must_use]
    pub fn services(&self) -> &[Service] {
        self.services.value().map_or(&[], Vec::as_slice)
    }
}

fn counters(_path: &PacketPath) -> Vec<Counter> {
    Vec::new()
}
