//! Discovery of a server from outside.

mod activity;
mod find;
mod limits;
mod process_table;
mod readers;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use linerate_host::delivery::DeliveryReport;
use linerate_host::setting::{SocketAt, SteeringTable};
use linerate_host::stage::socket::{ServiceSockets, SocketOptions, SocketProtocol, SocketState};
use linerate_host::stage::thread::ThreadSightings;
use linerate_host::{BackgroundThread, CpuSet, Host, HostError, Known, PacketPath, Setting};
use serde::{Deserialize, Serialize};

use crate::boost::{catalog, count};
use crate::transaction::namespace_inode;
use find::{FoundServer, find};
use process_table::ProcessTable;

pub(crate) use limits::{any_text, cpuset};

#[derive(Debug, Clone, Default)]
pub struct ServerQuery {
    /// The server on this port.
    pub port: Option<u16>,
    /// The server of this process.
    pub pid: Option<u32>,
    /// The interfaces of its packets; if empty, the choice of doctor.
    pub interfaces: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
pub struct ObservationOptions {
    /// Sampling time of system calls and datagrams.
    pub duration: Duration,
    /// Whether datagrams are traced with BPF.
    pub datagrams: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ObservedServer {
    /// The `comm` of its first process that reads, such as `nsd`, without a suffix for that process.
    pub name: String,
    /// Id in [`crate::boost::catalog`]; `None` for an unknown server.
    pub product: Option<String>,
    /// All processes, the parent of the others first.
    pub processes: Vec<ServerProcess>,
    /// Inode of its network namespace.
    pub namespace: u64,
    /// Reuseport groups and single sockets.
    pub groups: Vec<ServerGroup>,
    pub readers: Vec<ReaderThread>,
    /// Delivery of datagrams during the observation.
    pub delivery: Known<DeliveryReport>,
    /// Remarks on the observation: its duration, an idle server, a container, ...
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerProcess {
    pub pid: u32,
    pub parent: Option<u32>,
    pub name: String,
    /// Start time in clock ticks since boot.
    pub started: u64,
    /// Number of threads at the last sample.
    pub threads: u32,
    /// Whether it reads a socket, and does not only hold it.
    pub reads: bool,
}

/// Sockets of one protocol and address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerGroup {
    /// UDP, or TCP for listeners.
    pub protocol: SocketProtocol,
    pub local: SocketAddr,
    /// Whether they form a reuseport group, which a program can steer.
    pub reuseport: bool,
    /// In the order of the group if that is known.
    pub members: Vec<GroupSocket>,
    /// Whether the kernel reported that order.
    pub ordered: bool,
    /// The value of [`linerate_host::Setting::Steering`]: `none`, `by-cpu ...`, `classic`,
    /// `classic-by-cpu`, `program NAME (id N)`.
    pub steering: Known<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupSocket {
    pub socket: SocketAt,
    /// Processes and descriptors that hold it.
    pub holders: Vec<(u32, u32)>,
    pub options: Known<Option<SocketOptions>>,
    /// Datagrams dropped because its buffer was full.
    pub drops: Option<u64>,
    pub receive_buffer_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReaderThread {
    pub pid: u32,
    pub tid: u32,
    /// Start time in clock ticks since boot.
    pub started: u64,
    pub name: String,
    /// Cookies of its sockets.
    pub sockets: Vec<u64>,
    /// The best evidence of all its sockets.
    pub seen: ReaderEvidence,
    /// Sockets with the evidence [`ReaderEvidence::Ring`] or weaker.
    pub guessed: Vec<u64>,
    /// Its CPU affinity.
    pub allowed: Known<CpuSet>,
    /// The cpuset of its control group; `None` for no limit.
    pub cpuset: Option<CpuSet>,
}

/// Evidence that a thread reads a socket, the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReaderEvidence {
    /// Seen reading datagrams from it.
    Reading,
    /// Waits in a system call on it.
    InCall,
    /// Waits for an epoll set with it.
    Polling,
    /// Waits in io_uring, whose requests are not visible.
    Ring,
    /// The only thread of the process that holds it.
    OnlyThread,
    /// Runs, while no other thread was seen reading the socket.
    Assumed,
}

/// Capabilities that a boost requires.
const CAPABILITIES: &str = "CAP_SYS_PTRACE to find and copy its sockets, CAP_NET_ADMIN and CAP_BPF to steer them, \
                            CAP_SYS_NICE to pin its threads";

/// Why a server cannot be observed.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// There is no such server, or its processes are in another namespace.
    #[error("{0}")]
    NotThere(String),
    /// The text names the action, such as "looking at process 7".
    #[error("{0}: not permitted: this requires {CAPABILITIES}: run it as root")]
    NotPermitted(String),
    #[error(transparent)]
    Host(#[from] HostError),
}

impl ObservedServer {
    /// Observes a server and its packet path.
    pub fn observe(
        host: &Host,
        query: &ServerQuery,
        options: ObservationOptions,
        stop: &dyn Fn() -> bool,
    ) -> Result<(Self, PacketPath), DiscoveryError> {
        let _background = BackgroundThread::enter();
        // Loaded once for all programs of this observation. If that fails, each program reports the
        // reason.
        let _kernel_types = options.datagrams.then(linerate_host::bpf::kernel_btf);
        let processes = ProcessTable::observe(host);
        let FoundServer { processes: pids, services, path, others } = find(host, query, &processes)?;
        let namespace = namespace_inode(host, "thread-self").unwrap_or_default();
        let groups = services
            .iter()
            .map(|service| ServerGroup::of(host, namespace, service, &pids))
            .collect::<Result<Vec<_>, _>>()?;
        let activity = activity::observe(host, &services, &udp_ports(&groups), options, stop);
        let claims = readers::find_claims(&groups, &activity.threads, activity.delivery.value());
        let mut notes = notes(host, &pids, &activity, &claims);
        notes.extend(others.iter().map(|other| format!("{other} is on the same port, and left alone")));
        let online = path.machine.online.value();
        let reader = |sighting: &ThreadSightings| {
            let sockets = claims.get(&(sighting.pid, sighting.tid))?;
            Some(ReaderThread::of(host, sighting, sockets, online))
        };
        let readers: Vec<ReaderThread> = activity.threads.iter().filter_map(reader).collect();
        let reading_pids: BTreeSet<u32> = readers.iter().map(|reader| reader.pid).collect();
        // The name of a reader, because the parent that opens the sockets may be another program.
        let main_pid =
            pids.iter().find(|pid| reading_pids.contains(pid)).or(pids.first()).copied().unwrap_or_default();
        let name = title(&processes.name(main_pid)).to_owned();
        let product = catalog::of_process(&name).or_else(|| catalog::of_ports(&udp_ports(&groups)));
        let product = product.map(|product| product.id.clone());
        // Threads may have started since the beginning, so the sampled threads count.
        let sampled_threads = |pid: u32| activity.threads.iter().filter(|thread| thread.pid == pid).count();
        let process = |pid: &u32| {
            ServerProcess::of(&processes, *pid, reading_pids.contains(pid), sampled_threads(*pid))
        };
        let processes = pids.iter().map(process).collect();
        let server =
            Self { name, product, processes, namespace, groups, readers, delivery: activity.delivery, notes };
        Ok((server, path))
    }

    /// The threads that read this socket.
    pub fn readers_of(&self, cookie: u64) -> impl Iterator<Item = &ReaderThread> {
        self.readers.iter().filter(move |reader| reader.sockets.contains(&cookie))
    }

    /// `nsd on port 53`.
    pub fn title(&self) -> String {
        let mut ports = self.udp_ports();
        if ports.is_empty() {
            ports = self.groups.iter().map(|group| group.local.port()).collect();
            ports.sort_unstable();
            ports.dedup();
        }
        let noun = if ports.len() == 1 { "port" } else { "ports" };
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        format!("{} on {noun} {}", self.name, ports.join(", "))
    }

    /// The ports of its UDP sockets.
    pub fn udp_ports(&self) -> Vec<u16> {
        udp_ports(&self.groups)
    }
}

/// The server's name in a title that a process gave itself, such as `nsd: server 1`.
fn title(name: &str) -> &str {
    name.split_once(": ").map_or(name, |(server, _)| server)
}

fn udp_ports(groups: &[ServerGroup]) -> Vec<u16> {
    let udp = groups.iter().filter(|group| group.protocol == SocketProtocol::Udp);
    let ports: BTreeSet<u16> = udp.map(|group| group.local.port()).collect();
    ports.into_iter().collect()
}

impl ServerProcess {
    /// `sampled_threads`: number of threads in the last sample; 0 if it holds no socket or has ended.
    fn of(processes: &ProcessTable<'_>, pid: u32, reads: bool, sampled_threads: usize) -> Self {
        let task = processes.task(pid);
        let sampled_threads = u32::try_from(sampled_threads).ok().filter(|threads| *threads > 0);
        Self {
            pid,
            parent: processes.parent(pid),
            name: processes.name(pid),
            started: task.and_then(|task| task.started).unwrap_or_default(),
            threads: sampled_threads.or(task.and_then(|task| task.threads)).unwrap_or_default(),
            reads,
        }
    }
}

impl ServerGroup {
    fn of(
        host: &Host,
        namespace: u64,
        service: &ServiceSockets,
        pids: &[u32],
    ) -> Result<Self, DiscoveryError> {
        let (protocol, local) = (service.protocol, service.local);
        let reuseport =
            service.sockets.iter().any(|socket| socket.known_options().is_some_and(|set| set.reuseport));
        let steering = if reuseport {
            Setting::Steering { namespace, protocol, local }.read(host).map(|value| value.to_string()).into()
        } else {
            Known::Value("none".to_owned())
        };
        let member = |socket: &SocketState| GroupSocket::of(socket, &service.name(), pids);
        let members = service.sockets.iter().map(member).collect::<Result<_, _>>()?;
        Ok(Self { protocol, local, reuseport, members, ordered: service.ordered, steering })
    }

    pub(super) fn cookies(&self) -> impl Iterator<Item = u64> {
        self.members.iter().map(|member| member.socket.cookie)
    }

    /// The table of linerate's program, if it steers the group.
    pub(super) fn table(&self) -> Option<SteeringTable> {
        self.steering.value()?.parse().ok()
    }
}

impl GroupSocket {
    fn of(socket: &SocketState, service: &str, pids: &[u32]) -> Result<Self, DiscoveryError> {
        let cookie = socket.cookie.filter(|cookie| *cookie != 0).ok_or_else(|| {
            DiscoveryError::NotThere(format!(
                "{service}: the kernel does not report its sockets' cookies: this requires the module udp_diag (modprobe udp_diag)"
            ))
        })?;
        // The parent outlives its workers.
        let position = |pid: u32| pids.iter().position(|server_pid| *server_pid == pid).unwrap_or(usize::MAX);
        let (pid, descriptor) =
            socket.descriptors.iter().copied().min_by_key(|(pid, _)| position(*pid)).unwrap_or_default();
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
        let guessed = sockets.iter().filter(|(_, evidence)| **evidence >= ReaderEvidence::Ring);
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

fn notes(
    host: &Host,
    pids: &[u32],
    activity: &activity::ObservedActivity,
    claims: &readers::Claims,
) -> Vec<String> {
    let mut notes = Vec::new();
    let times = if activity.samples == 1 { "once".to_owned() } else { format!("{} times", activity.samples) };
    notes.push(format!(
        "the system calls of {} were sampled {times} in {:.1} s",
        count(activity.threads.len(), "thread"),
        activity.lasted.as_secs_f64()
    ));
    match &activity.delivery {
        Known::Value(delivery) if delivery.read.is_empty() && delivery.arrived.is_empty() => {
            notes.push("it was idle meanwhile: no datagram was seen".to_owned());
        }
        Known::Value(delivery) if delivery.seconds < activity.lasted.as_secs_f64() / 2.0 => {
            let share = delivery.seconds / activity.lasted.as_secs_f64() * 100.0;
            notes.push(format!(
                "to spare the server's CPU, datagrams were traced for {share:.0} % of that time"
            ));
        }
        Known::Value(_) => {}
        Known::Unknown { why } => notes.push(format!("where datagrams are read is unknown: {why}")),
    }
    if let Some(missed) =
        activity.delivery.value().map(|delivery| delivery.missed).filter(|missed| *missed > 0)
    {
        notes.push(format!("{missed} events of datagrams were not counted"));
    }
    if let Some(why) = activity.threads.iter().find_map(|thread| thread.untold.as_ref()) {
        notes.push(format!("what its threads do is unknown: {why}"));
    }
    let is_assumed = |sockets: &&BTreeMap<u64, ReaderEvidence>| {
        sockets.values().any(|evidence| *evidence == ReaderEvidence::Assumed)
    };
    let assumed_threads = claims.values().filter(is_assumed).count();
    if assumed_threads > 0 {
        notes.push(format!(
            "of {assumed_threads} threads it is only assumed which socket they read: run boost again under load"
        ));
    }
    let inner_pid = pids.iter().find_map(|pid| Some((pid, limits::inner_pid(host, *pid)?)));
    if let Some((pid, inner_pid)) = inner_pid {
        notes.push(format!(
            "it is in a PID namespace of its own, as a container's: process {pid} is {inner_pid} there"
        ));
    }
    notes
}

#[cfg(test)]
mod tests;
