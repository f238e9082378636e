//! When a host is read whole again.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::pulse::CounterSample;
use crate::stage::socket::SocketProtocol;
use crate::{Host, PacketPath, Scope};

use super::USUAL_AGE;

/// Whole readings take no more than one part in this many of a CPU, unless interfaces come and go.
const LEAST_PART_OF_A_CPU: u32 = 200;

/// Sockets of clients come and go all the time: for them the host is not read whole more often than this.
const SOONEST: Duration = Duration::from_secs(3);

/// A whole reading as it begins.
pub(super) struct FullReading {
    pub(super) at: Instant,
    cpu_time: Duration,
}

impl FullReading {
    pub(super) fn now() -> Self {
        Self { at: Instant::now(), cpu_time: cpu_time() }
    }
}

/// The time that the calling thread ran. On a busy machine much less than what passed, and all that a reading takes from others.
fn cpu_time() -> Duration {
    let ran = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (u64::try_from(ran.tv_sec), u32::try_from(ran.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0))
}

/// What a whole reading saw that a later one may miss or have more of.
#[derive(Debug)]
pub(super) struct ReadingPlan {
    at: Instant,
    took: Duration,
    cpu_time: Duration,
    /// Indices of the interfaces that are looked at, by name.
    interfaces: Vec<(String, Option<u32>)>,
    /// All interfaces there are.
    names: Option<Vec<String>>,
    /// The sockets of services in scope.
    sockets: BTreeSet<u64>,
    /// Processes of the threads, and how many threads they have.
    processes: Vec<(u32, Option<u32>)>,
}

impl ReadingPlan {
    pub(super) fn new(path: &PacketPath, begun: &FullReading) -> Self {
        let udp = path.socket.services().iter().filter(|service| service.protocol == SocketProtocol::Udp);
        Self {
            at: Instant::now(),
            took: begun.at.elapsed(),
            cpu_time: cpu_time().saturating_sub(begun.cpu_time),
            interfaces: path
                .link
                .iter()
                .map(|link| (link.interface.clone(), link.index.value().copied()))
                .collect(),
            names: None,
            sockets: udp.flat_map(|service| &service.sockets).map(|socket| socket.inode).collect(),
            processes: path
                .thread
                .processes
                .iter()
                .map(|watch| (watch.pid, watch.threads.value().copied()))
                .collect(),
        }
    }

    pub(super) fn took(&self) -> Duration {
        self.took
    }

    pub(super) fn age(&self) -> Duration {
        self.at.elapsed()
    }

    /// Whether it is time: interfaces came or went, or sockets and threads did and it is not too soon, or it is long ago.
    pub(super) fn is_due(&mut self, host: &Host, scope: &Scope, pulse: &CounterSample) -> bool {
        let affordable = self.cpu_time.saturating_mul(LEAST_PART_OF_A_CPU);
        let age = self.age();
        self.interfaces_changed(host, pulse)
            || age >= USUAL_AGE.max(affordable)
            || (age >= SOONEST.max(affordable / 2)
                && (self.sockets_changed(scope, pulse) || self.threads_changed(pulse)))
    }

    fn interfaces_changed(&mut self, host: &Host, pulse: &CounterSample) -> bool {
        let seen: Vec<(String, Option<u32>)> =
            pulse.interfaces.iter().map(|item| (item.interface.clone(), item.index)).collect();
        let names = host.list("/sys/class/net").ok();
        let others = self.names.replace(names.clone().unwrap_or_default());
        seen != self.interfaces || (others.is_some() && others != names)
    }

    fn sockets_changed(&self, scope: &Scope, pulse: &CounterSample) -> bool {
        let Some(sockets) = pulse.sockets.value() else { return false };
        let is_there = |inode: &u64| sockets.iter().any(|socket| socket.inode == *inode);
        let gone = self.sockets.iter().any(|inode| !is_there(inode));
        let came = sockets.iter().any(|socket| {
            let in_scope = match (scope.port, scope.pid) {
                (Some(port), _) => socket.port == port,
                // Whose it is takes a whole reading to know.
                (None, Some(_)) => false,
                (None, None) => !socket.is_on_loopback,
            };
            in_scope && !self.sockets.contains(&socket.inode)
        });
        gone || came
    }

    fn threads_changed(&self, pulse: &CounterSample) -> bool {
        self.processes.iter().any(|(pid, threads)| {
            let mut own = pulse.threads.iter().filter(|((of, _), _)| of == pid).peekable();
            own.peek().is_some() && own.any(|(_, task)| threads.is_some() && task.threads != *threads)
        })
    }
}
