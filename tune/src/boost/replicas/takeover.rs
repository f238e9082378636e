//! Handing a port over from a running server to its copies, without losing a datagram.
//!
//! Before the copies start, the old sockets get a steering program, so that new sockets of the
//! group receive nothing. When the copies read their sockets, the table is replaced in one step.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use linerate_host::bind_hooks::sockets_on;
use linerate_host::setting::{SettingValue, SteeringTable};
use linerate_host::stage::socket::SocketProtocol;
use linerate_host::{Host, Setting};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::steering::CopyPlacement;
use super::{ReplicaCgroup, ReplicaError, groups};
use crate::boost::ObservedServer;
use crate::boost::discovery::{DiscoveryError, ObservationOptions, ReaderEvidence, ServerGroup, ServerQuery};

/// Longest wait for an empty buffer, and for processes that were told to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// The kernel has no event for an empty buffer.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

pub(super) struct ServerTakeover {
    port: u16,
    /// Of the old server.
    addresses: Vec<SocketAddr>,
    cookies: BTreeSet<u64>,
    /// Those to end; the others are below them.
    processes: Vec<u32>,
    /// Groups that were not steered before.
    held: Vec<Setting>,
}

/// How a port was handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerHandover {
    pub port: u16,
    /// Processes of the old server that ended.
    pub ended: Vec<u32>,
    /// Time until the old server had read its buffers.
    pub drained_in: Duration,
    /// Of processes that did not end in time.
    pub left: Vec<u32>,
}

/// Whether a thread of this process, or one below it, waits for datagrams of each of these sockets.
pub(super) fn are_read(host: &Host, pid: u32, cookies: &[u64]) -> Result<bool, ReplicaError> {
    let server = match glance(host, &ServerQuery { pid: Some(pid), ..ServerQuery::default() }) {
        // It ended meanwhile.
        Err(ReplicaError::Discovery(DiscoveryError::NotThere(_))) => return Ok(false),
        server => server?,
    };
    let waits = |cookie: &u64| {
        let mut readers = server.readers_of(*cookie);
        readers.any(|reader| reader.seen <= ReaderEvidence::Ring)
    };
    Ok(cookies.iter().all(waits))
}

fn glance(host: &Host, query: &ServerQuery) -> Result<ObservedServer, ReplicaError> {
    let look = ObservationOptions { duration: Duration::ZERO, datagrams: false };
    Ok(ObservedServer::observe(host, query, look, &|| false)?.0)
}

impl ServerTakeover {
    /// Finds the server on the port, and keeps its datagrams for its own sockets.
    pub(super) fn hold(host: &Host, placement: &CopyPlacement, port: u16) -> Result<Self, ReplicaError> {
        let server = glance(host, &ServerQuery { port: Some(port), ..ServerQuery::default() })?;
        // The group of this process has the port already.
        let is_other = |group: &ReplicaCgroup| group.supervisor != std::process::id();
        let processes = match groups(host, Some(port))?.into_iter().find(is_other) {
            Some(group) if group.is_supervised(host) => vec![group.supervisor],
            Some(group) => group.processes(),
            None => top_processes(&server),
        };
        let is_meant =
            |group: &&ServerGroup| group.protocol == SocketProtocol::Udp && group.local.port() == port;
        let meant: Vec<&ServerGroup> = server.groups.iter().filter(is_meant).collect();
        if let Some(group) = meant.iter().find(|group| !group.reuseport) {
            return Err(ReplicaError::NotReuseport { local: group.local });
        }
        let mut takeover =
            Self { port, addresses: Vec::new(), cookies: BTreeSet::new(), processes, held: Vec::new() };
        for group in meant {
            let cookies: Vec<u64> = group.members.iter().map(|member| member.socket.cookie).collect();
            let setting = Setting::Steering {
                namespace: server.namespace,
                protocol: SocketProtocol::Udp,
                local: group.local,
            };
            let steering = group.steering.value().map_or("unknown", String::as_str);
            if steering == "none" {
                let value = SettingValue::new(placement.same_for_all(&cookies).to_string());
                if let Err(error) = setting.write(host, &value) {
                    takeover.release(host);
                    return Err(ReplicaError::NotSteered { why: error.to_string() });
                }
                takeover.held.push(setting);
            } else if steering.parse::<SteeringTable>().is_err() {
                takeover.release(host);
                let why = format!("{} is steered by another program ({steering})", group.local);
                return Err(ReplicaError::NotSteered { why });
            }
            takeover.addresses.push(group.local);
            takeover.cookies.extend(cookies);
        }
        Ok(takeover)
    }

    /// Undoes [`ServerTakeover::hold`].
    pub(super) fn release(&self, host: &Host) {
        for setting in &self.held {
            // The server may be gone.
            let _ = setting.write(host, &SettingValue::new("none"));
        }
    }

    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub(super) fn has(&self, cookie: u64) -> bool {
        self.cookies.contains(&cookie)
    }

    /// Waits until the old sockets are read, gives replies this time, and ends the old server. The
    /// copies have its datagrams by now.
    pub(super) fn finish(self, grace: Duration) -> Result<ServerHandover, ReplicaError> {
        let began = Instant::now();
        while self.has_queued()? && began.elapsed() < PATIENCE {
            std::thread::sleep(LOOK_AGAIN);
        }
        let drained_in = began.elapsed();
        std::thread::sleep(grace);
        let (mut ended, mut left) = (Vec::new(), Vec::new());
        for pid in self.processes {
            if end(pid).map_err(ReplicaError::io("end the old server"))? {
                ended.push(pid);
            } else {
                left.push(pid);
            }
        }
        Ok(ServerHandover { port: self.port, ended, drained_in, left })
    }

    fn has_queued(&self) -> Result<bool, ReplicaError> {
        let listed =
            sockets_on(self.port).map_err(ReplicaError::io("list the UDP sockets (module udp_diag)"))?;
        Ok(listed.iter().any(|socket| self.has(socket.cookie) && socket.queued > 0))
    }
}

/// The processes of a server whose parents are none of it.
fn top_processes(server: &ObservedServer) -> Vec<u32> {
    let is_own = |pid: u32| server.processes.iter().any(|process| process.pid == pid);
    let top = server.processes.iter().filter(|process| !process.parent.is_some_and(is_own));
    top.map(|process| process.pid).collect()
}

/// Whether it ended in time.
fn end(pid: u32) -> std::io::Result<bool> {
    let Some(pid) = Pid::from_raw(pid.cast_signed()) else { return Ok(true) };
    let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(true),
        opened => opened?,
    };
    match pidfd_send_signal(&descriptor, Signal::TERM) {
        Err(rustix::io::Errno::SRCH) => return Ok(true),
        sent => sent?,
    }
    let patience = Timespec::try_from(PATIENCE).map_err(std::io::Error::other)?;
    Ok(poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&patience))? > 0)
}
