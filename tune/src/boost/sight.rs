//! A server as it is seen from outside.

mod family;
mod find;
mod limits;
mod look;
mod readers;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use linerate_host::landing::DeliveryReport;
use linerate_host::setting::SocketAt;
use linerate_host::stage::socket::{ServiceSockets, SocketOptions, SocketProtocol, SocketState};
use linerate_host::stage::thread::ThreadSightings;
use linerate_host::{CpuSet, Host, HostError, Known, PacketPath, Setting};
use serde::{Deserialize, Serialize};

use crate::boost::catalog;
use family::ProcessTable;
use find::{FoundServer, find};

pub(crate) use limits::any_text;

#[derive(Debug, Clone, Default)]
pub struct ServerQuery {
    /// The one on this port.
    pub port: Option<u16>,
    /// The one that this process belongs to.
    pub pid: Option<u32>,
    /// The interfaces that its packets come by; none: as doctor chooses.
    pub interfaces: Vec<String>,
}

/// For how long it is looked at, and how.
#[derive(Debug, Clone, Copy)]
pub struct ObservationOptions {
    /// Calls of its threads are sampled for this long, and datagrams are looked at (BPF).
    pub duration: Duration,
    /// Whether datagrams are looked at.
    pub datagrams: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ObservedServer {
    /// Name of the first of its processes that reads (`comm`), such as `nsd`, without what it says of that one process.
    pub name: String,
    /// Id of its entry in [`crate::boost::catalog`]; none for a server that is not there.
    pub product: Option<String>,
    /// Its processes, forked workers too, the one that the others come from first.
    pub processes: Vec<ServerProcess>,
    /// Inode of the network namespace it is in.
    pub namespace: u64,
    /// Its sockets: a reuseport group, or a single socket, an item.
    pub groups: Vec<ServerGroup>,
    /// The threads that read its sockets.
    pub readers: Vec<ReaderThread>,
    /// Where datagrams landed while it was looked at; unknown where that was not possible.
    pub landings: Known<DeliveryReport>,
    /// What a reader should know of how it was seen: sampled so long, idle meanwhile, a container, ...
    pub notes: Vec<String>,
}

/// A process of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerProcess {
    pub pid: u32,
    pub parent: Option<u32>,
    pub name: String,
    /// When it was started, in clock ticks since boot.
    pub started: u64,
    /// How many threads it has: when its threads were looked at last, else at the beginning.
    pub threads: u32,
    /// Whether it reads a socket, or only holds it.
    pub reads: bool,
}

/// Sockets of one protocol and address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerGroup {
    /// UDP, or TCP for listeners.
    pub protocol: SocketProtocol,
    /// The address they are bound to.
    pub local: SocketAddr,
    /// Whether they are in a reuseport group, of which a program can choose.
    pub reuseport: bool,
    /// The sockets, in the order of the group where that is known.
    pub members: Vec<GroupSocket>,
    /// Whether that order is proven (told by the kernel).
    pub ordered: bool,
    /// What chooses among them, as [`linerate_host::Setting::Steering`] reads: `none`, `by-cpu ...`, `classic`,
    /// `classic-by-cpu`, `program NAME (id N)`.
    pub steering: Known<String>,
}

/// A socket of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupSocket {
    pub socket: SocketAt,
    /// All that hold it: process and descriptor.
    pub holders: Vec<(u32, u32)>,
    /// What its process set.
    pub options: Known<Option<SocketOptions>>,
    /// Datagrams lost because its buffer was full.
    pub drops: Option<u64>,
    /// Bytes of its receive buffer.
    pub receive_buffer_bytes: Option<u64>,
}

/// A thread that reads sockets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReaderThread {
    pub pid: u32,
    pub tid: u32,
    /// When it was started, in clock ticks since boot.
    pub started: u64,
    pub name: String,
    /// Cookies of the sockets it reads.
    pub sockets: Vec<u64>,
    /// How that is known, of the surest of them.
    pub seen: ReaderEvidence,
    /// Of these, those at which it was not seen itself: [`ReaderEvidence::Ring`] and what is less sure.
    pub guessed: Vec<u64>,
    /// The CPUs it may run on.
    pub allowed: Known<CpuSet>,
    /// The CPUs that its control group lets it run on; none where there is no limit.
    pub cpuset: Option<CpuSet>,
}

/// How it is known that a thread reads a socket, the surest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReaderEvidence {
    /// It was seen to take datagrams out of it.
    Reading,
    /// It waits in a call on it.
    InCall,
    /// It waits for an epoll set that has it.
    Polling,
    /// It is in io_uring, whose requests are not told.
    Ring,
    /// It is the only thread of the process that holds it.
    OnlyThread,
    /// It runs, and no other was seen to read the socket.
    Assumed,
}

/// Why a server cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum SightError {
    /// Nothing is there, or not the thing asked for.
    #[error("{0}")]
    NotThere(String),
    /// It takes more rights.
    #[error("{what}: not permitted: it takes {capability}: run it as root")]
    NotPermitted { what: String, capability: &'static str },
    /// Its processes are not visible here.
    #[error("{0}")]
    Elsewhere(String),
    #[error(transparent)]
    Host(#[from] HostError),
}

impl ObservedServer {
    /// Looks at it, and at the packet path to it.
    ///
    /// # Errors
    /// [`SightError`].
    pub fn observe(
        host: &Host,
        wanted: &ServerQuery,
        look: ObservationOptions,
        stop: &dyn Fn() -> bool,
    ) -> Result<(Self, PacketPath), SightError> {
        let processes = ProcessTable::observe(host);
        let FoundServer { processes: pids, services, path, others } = find(host, wanted, &processes)?;
        let namespace = limits::namespace(host, "thread-self").unwrap_or_default();
        let groups = services
            .iter()
            .map(|service| ServerGroup::of(host, namespace, service, &pids))
            .collect::<Result<Vec<_>, _>>()?;
        let seen = look::look(host, &services, &udp_ports(&groups), look, stop);
        let claims = readers::readers(&groups, &seen.threads, seen.landings.value());
        let mut notes = notes(host, &pids, &seen, &claims);
        notes.extend(others.iter().map(|other| format!("{other} is on the same port, and left alone")));
        let online = path.machine.online.value();
        let reader = |sighting: &ThreadSightings| {
            let sockets = claims.get(&(sighting.pid, sighting.tid))?;
            Some(ReaderThread::of(host, sighting, sockets, online))
        };
        let readers: Vec<ReaderThread> = seen.threads.iter().filter_map(reader).collect();
        let reading: BTreeSet<u32> = readers.iter().map(|reader| reader.pid).collect();
        // Its name is that of who reads: what only hands sockets on may be another program.
        let main =
            pids.iter().find(|pid| reading.contains(pid)).or(pids.first()).copied().unwrap_or_default();
        let name = title(&processes.name(main)).to_owned();
        let product = catalog::of_process(&name).or_else(|| catalog::of_ports(&udp_ports(&groups)));
        let product = product.map(|product| product.id.clone());
        // Threads that came meanwhile read too: those that were sampled count, not those at the beginning.
        let sampled = |pid: u32| seen.threads.iter().filter(|thread| thread.pid == pid).count();
        let process = |pid: &u32| ServerProcess::of(&processes, *pid, reading.contains(pid), sampled(*pid));
        let processes = pids.iter().map(process).collect();
        let server =
            Self { name, product, processes, namespace, groups, readers, landings: seen.landings, notes };
        Ok((server, path))
    }

    /// The threads that read this socket.
    pub fn readers_of(&self, cookie: u64) -> impl Iterator<Item = &ReaderThread> {
        self.readers.iter().filter(move |reader| reader.sockets.contains(&cookie))
    }

    /// The ports of its UDP sockets.
    #[must_use]
    pub fn udp_ports(&self) -> Vec<u16> {
        udp_ports(&self.groups)
    }
}

/// The server's part of a name that its processes gave themselves, such as `nsd: server 1`.
fn title(name: &str) -> &str {
    name.split_once(": ").map_or(name, |(server, _)| server)
}

fn udp_ports(groups: &[ServerGroup]) -> Vec<u16> {
    let udp = groups.iter().filter(|group| group.protocol == SocketProtocol::Udp);
    let ports: BTreeSet<u16> = udp.map(|group| group.local.port()).collect();
    ports.into_iter().collect()
}

impl ServerProcess {
    /// `sampled` is how many threads of it were looked at last; none where it holds no socket, or has ended.
    fn of(processes: &ProcessTable<'_>, pid: u32, reads: bool, sampled: usize) -> Self {
        let task = processes.task(pid);
        let sampled = u32::try_from(sampled).ok().filter(|threads| *threads > 0);
        Self {
            pid,
            parent: processes.parent(pid),
            name: processes.name(pid),
            started: task.and_then(|task| task.started).unwrap_or_default(),
            threads: sampled.or(task.and_then(|task| task.threads)).unwrap_or_default(),
            reads,
        }
    }
}

impl ServerGroup {
    fn of(host: &Host, namespace: u64, service: &ServiceSockets, pids: &[u32]) -> Result<Self, SightError> {
        let (protocol, local) = (service.protocol, service.local);
        let reuseport = service.sockets.iter().any(|socket| socket.set().is_some_and(|set| set.reuseport));
        let steering = if reuseport {
            Setting::Steering { namespace, protocol, local }.read(host).map(|value| value.to_string()).into()
        } else {
            Known::Value("none".to_owned())
        };
        let member = |socket: &SocketState| GroupSocket::of(socket, &service.name(), pids);
        let members = service.sockets.iter().map(member).collect::<Result<_, _>>()?;
        Ok(Self { protocol, local, reuseport, members, ordered: service.ordered, steering })
    }
}

impl GroupSocket {
    fn of(socket: &SocketState, service: &str, pids: &[u32]) -> Result<Self, SightError> {
        let cookie = socket.cookie.filter(|cookie| *cookie != 0).ok_or_else(|| {
            SightError::NotThere(format!(
                "{service}: the kernel does not tell its sockets' cookies: it takes the module udp_diag (modprobe udp_diag)"
            ))
        })?;
        // The process that others come from outlives them.
        let place = |pid: u32| pids.iter().position(|own| *own == pid).unwrap_or(usize::MAX);
        let (pid, descriptor) =
            socket.descriptors.iter().copied().min_by_key(|(pid, _)| place(*pid)).unwrap_or_default();
        Ok(Self {
            socket: SocketAt { cookie, inode: socket.inode, pid, descriptor },
            holders: socket.descriptors.clone(),
            options: socket.options.clone(),
            drops: socket.drops,
            receive_buffer_bytes: socket.receive_buffer_bytes,
        })
    }
}

impl ReaderThread {
    fn of(
        host: &Host,
        sighting: &ThreadSightings,
        sockets: &BTreeMap<u64, ReaderEvidence>,
        online: Option<&CpuSet>,
    ) -> Self {
        let task = sighting.task.value();
        let guessed = sockets.iter().filter(|(_, seen)| **seen >= ReaderEvidence::Ring);
        Self {
            pid: sighting.pid,
            tid: sighting.tid,
            started: task.and_then(|task| task.started).unwrap_or_default(),
            name: task.map_or_else(|| "?".to_owned(), |task| task.name.clone()),
            sockets: sockets.keys().copied().collect(),
            seen: sockets.values().min().copied().unwrap_or(ReaderEvidence::Assumed),
            guessed: guessed.map(|(cookie, _)| *cookie).collect(),
            allowed: sighting.allowed.clone(),
            cpuset: limits::cpuset(host, sighting.pid, sighting.tid, online),
        }
    }
}

fn notes(host: &Host, pids: &[u32], seen: &look::ObservedActivity, claims: &readers::Claims) -> Vec<String> {
    let mut notes = Vec::new();
    let times = if seen.samples == 1 { "once".to_owned() } else { format!("{} times", seen.samples) };
    notes.push(format!(
        "the calls of {} were looked at {times} in {:.1} s",
        if seen.threads.len() == 1 {
            "1 thread".to_owned()
        } else {
            format!("{} threads", seen.threads.len())
        },
        seen.lasted.as_secs_f64()
    ));
    match &seen.landings {
        Known::Value(landings) if landings.read.is_empty() && landings.arrived.is_empty() => {
            notes.push("it was idle meanwhile: no datagram was seen".to_owned());
        }
        Known::Value(_) => {}
        Known::Unknown { why } => notes.push(format!("where datagrams land is unknown: {why}")),
    }
    if let Some(why) = seen.threads.iter().find_map(|thread| thread.untold.as_ref()) {
        notes.push(format!("what its threads do is not told: {why}"));
    }
    let guessed = |sockets: &&BTreeMap<u64, ReaderEvidence>| {
        sockets.values().any(|seen| *seen == ReaderEvidence::Assumed)
    };
    let guessed = claims.values().filter(guessed).count();
    if guessed > 0 {
        notes.push(format!(
            "of {guessed} threads it is only assumed which socket they read: look while datagrams come"
        ));
    }
    let inner = pids.iter().find_map(|pid| Some((pid, limits::inner_pid(host, *pid)?)));
    if let Some((pid, inner)) = inner {
        notes.push(format!(
            "it is in a PID namespace of its own, as a container's: process {pid} is {inner} there"
        ));
    }
    notes
}

#[cfg(test)]
mod tests;
