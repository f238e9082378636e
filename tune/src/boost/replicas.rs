//! Copies of an unmodified server that share its port.
//!
//! A [`ReplicaSet`] runs the copies in a control group with BPF programs that set SO_REUSEPORT at
//! bind ([`linerate_host::bind_hooks`]), pins each copy, steers datagrams to the copies, and
//! restarts copies that end. The copies hold all resources themselves, so they continue if the
//! supervisor is killed. The name of the control group identifies their supervisor.

mod buffers;
mod cgroup;
mod drain;
mod process;
mod readiness;
mod set;
mod startup;
mod state;
mod steering;
mod takeover;
mod unit;

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use linerate_host::stage::socket::SocketProtocol;
use linerate_host::{CpuSet, Host, HostError};

use crate::boost::discovery::{DiscoveryError, ObservedServer};
use cgroup::CgroupTree;
pub use cgroup::ReplicaCgroup;
pub use drain::ServerHandover;
pub use set::ReplicaSet;
pub use state::{CopyState, ReplicaSetState};
pub use unit::{ReplicaUnit, ReplicaUnitError};

/// Replaced by the number of the copy, from 0, in arguments and environment.
pub const PLACEHOLDER: &str = "{replica}";

pub struct ReplicaConfig {
    /// Program and arguments.
    pub command: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    pub replicas: u32,
    /// The port to share; `None` for all ports that the server binds.
    pub port: Option<u16>,
    /// CPUs of the copies in turn; `None` for CPUs near the queues.
    pub cpus: Option<CpuSet>,
    pub steering: ReplicaSteering,
    /// Take the port over from the server that has it. The old server gets this time to reply after
    /// it has read its last datagram.
    pub takeover: Option<Duration>,
    /// A process of the server whose port is taken over, if several servers have the port.
    pub takeover_pid: Option<u32>,
    /// The probe that each copy must answer before it takes the port over.
    pub probe: Option<ReplicaProbe>,
    /// Arguments that make this program print the lines of its standard input with a prefix. The
    /// prefix itself is added as the last argument.
    pub prefix_lines: Vec<OsString>,
}

/// Asks the server at an address from a port, and returns the reason if no valid reply came.
pub type ReplicaProbe = Box<dyn Fn(SocketAddr, u16) -> Result<(), String>>;

/// Which copy gets a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaSteering {
    /// The copy on the CPU on which it arrives.
    Cpu,
    /// The same copy for all datagrams of a client's address and port.
    Flow,
    /// The same copy for all datagrams of a QUIC connection, also from another address.
    QuicId,
}

/// Events of a set, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicaEvent {
    /// The copies of a killed supervisor were ended.
    Removed(ReplicaLeftover),
    /// All copies have a socket of this address.
    Serving {
        local: SocketAddr,
        cpus: Vec<u32>,
    },
    /// Datagrams go by the kernel's hash for this reason.
    NotSteered {
        local: SocketAddr,
        why: String,
    },
    /// A copy has several sockets of one address.
    BoundAgain {
        copy: u32,
        local: SocketAddr,
        sockets: usize,
    },
    /// The copies have no port in common yet. `bound` has the addresses that they have, `missing`
    /// those of the old server that not every copy has.
    SlowStart {
        port: Option<u16>,
        bound: Vec<SocketAddr>,
        missing: Vec<SocketAddr>,
        after: Duration,
    },
    /// The copies have the port of the old server, and not every copy waits for datagrams or answers
    /// the probe yet.
    SlowHandover {
        after: Duration,
    },
    /// The port was taken over, and the old server has ended.
    Replaced(ServerHandover),
    /// The copies are ended before the old server, whose processes still run.
    Canceled {
        remaining: Vec<u32>,
    },
    /// Other copies have taken the port over: copies that end are not restarted.
    HandedOver,
    /// The other copies have ended before they had replaced these, which are restarted again.
    Resumed,
    /// Something failed while the copies serve.
    Failed {
        why: String,
    },
    Ended {
        copy: u32,
        status: String,
        again_in: Duration,
    },
    /// A copy has its sockets again.
    Back {
        copy: u32,
        after: Duration,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    #[error(
        "no control groups of version 2 ({source}): copies need a group to attach BPF programs to; mount them with \
         mount -t cgroup2 none /sys/fs/cgroup/unified, and in a container start it with a writable cgroup mount"
    )]
    NoCgroups { source: io::Error },
    /// Any other reason, in one line.
    #[error("{0}")]
    Refused(String),
    #[error("datagrams cannot be moved from one server to the other: {why}")]
    NotSteered { why: String },
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error("copy {copy} {why}")]
    Startup { copy: u32, why: String },
    #[error("{what}: {source}")]
    Io { what: &'static str, source: io::Error },
    #[error(transparent)]
    Host(#[from] HostError),
}

impl ReplicaError {
    fn io(action: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { what: action, source }
    }
}

/// The sets of copies in this network namespace, supervised or not, on this port or any.
pub fn groups(host: &Host, port: Option<u16>) -> Result<Vec<ReplicaCgroup>, ReplicaError> {
    let mut groups = CgroupTree::open(host)?.groups(host);
    groups.retain(|group| port.is_none_or(|port| group.ports.contains(&port)));
    Ok(groups)
}

/// Ends the copies that killed supervisors left on this port, or on any port. The copies whose port
/// they were taking over are supervised again. Returns the removed sets.
pub fn remove_leftovers(host: &Host, port: Option<u16>) -> Result<Vec<ReplicaLeftover>, ReplicaError> {
    let mut removed = Vec::new();
    for group in groups(host, port)?.into_iter().filter(|group| !group.is_supervised(host)) {
        let (processes, was_taking_over) = (group.processes().len(), group.is_taking_over());
        group.remove().map_err(ReplicaError::io("end the copies of a killed linerate process"))?;
        let mut old_groups = if was_taking_over { groups(host, None)? } else { Vec::new() };
        old_groups.retain(|old_group| old_group.ports.iter().any(|port| group.ports.contains(port)));
        for old_group in old_groups {
            // It has no mark if the port was not taken over yet.
            let _ = old_group.lock_steering().and_then(|lock| lock.clear_replaced());
        }
        removed.push(ReplicaLeftover { supervisor: group.supervisor, processes });
    }
    Ok(removed)
}

/// Whether `boost run` or `replace` started the server, and steers its sockets.
pub fn are_copies(host: &Host, server: &ObservedServer) -> bool {
    // The search for control groups is costly on large hosts.
    server.groups.iter().any(|group| group.table().is_some())
        && groups(host, None).is_ok_and(|groups| groups.iter().any(|group| group.has_server(server)))
}

/// Copies that were ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaLeftover {
    /// The process that started them.
    pub supervisor: u32,
    pub processes: usize,
}

/// `udp 127.0.0.1:53`.
fn name(protocol: SocketProtocol, local: SocketAddr) -> String {
    format!("{} {local}", protocol.name())
}
