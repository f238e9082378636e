//! Decides when to read the whole host again.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::counter_sample::CounterSample;
use crate::netlink::sock_diag::SocketProtocol;
use crate::stage::socket::is_loopback;
use crate::{Host, PacketPath, Scope};

/// Age at which a full reading is repeated.
const USUAL_AGE: Duration = Duration::from_secs(10);

// Full readings use at most 1/200 of a CPU, unless interfaces change.
const LEAST_PART_OF_A_CPU: u32 = 200;

// Client sockets open and close all the time, so they cause a full reading at most this often.
const SOONEST: Duration = Duration::from_secs(3);

pub(super) struct FullReading {
    pub(super) at: Instant,
    cpu_time: Duration,
}

impl FullReading {
    pub(super) fn now() -> Self {
        Self { at: Instant::now(), cpu_time: cpu_time() }
    }
}

/// CPU time of the calling thread. On a busy machine this is much less than the elapsed time.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0))
}

/// State of the last full reading, to detect changes.
#[derive(Debug)]
pub(super) struct ReadingPlan {
    at: Instant,
    took: Duration,
    cpu_time: Duration,
    /// Name and index of the interfaces in scope.
    interfaces: Vec<(String, Option<u32>)>,
    /// All interface names.
    names: Option<Vec<String>>,
    sockets: BTreeSet<u64>,
    /// Processes with their numbers of threads.
    processes: Vec<(u32, Option<u32>)>,
}

impl ReadingPlan {
    pub(super) fn new(path: &PacketPath, full_reading: &FullReading) -> Self {
        let udp = path.socket.services().iter().filter(|service| service.protocol == SocketProtocol::Udp);
        Self {
            at: Instant::now(),
            took: full_reading.at.elapsed(),
            cpu_time: cpu_time().saturating_sub(full_reading.cpu_time),
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

    pub(super) fn duration(&self) -> Duration {
        self.took
    }

    pub(super) fn age(&self) -> Duration {
        self.at.elapsed()
    }

    // Whether a full reading is due: interfaces changed, or sockets or threads changed and the
    // minimum interval is over, or the last reading is too old.
    pub(super) fn is_due(&mut self, host: &Host, scope: &Scope, sample: &CounterSample) -> bool {
        let min_age = self.cpu_time.saturating_mul(LEAST_PART_OF_A_CPU);
        let age = self.age();
        self.interfaces_changed(host, sample)
            || age >= USUAL_AGE.max(min_age)
            || (age >= SOONEST.max(min_age / 2)
                && (self.sockets_changed(scope, sample) || self.threads_changed(sample)))
    }

    fn interfaces_changed(&mut self, host: &Host, sample: &CounterSample) -> bool {
        let current: Vec<(String, Option<u32>)> =
            sample.interfaces.iter().map(|item| (item.interface.clone(), item.index)).collect();
        let names = host.list("/sys/class/net").ok();
        let previous_names = self.names.replace(names.clone().unwrap_or_default());
        current != self.interfaces || (previous_names.is_some() && previous_names != names)
    }

    fn sockets_changed(&self, scope: &Scope, sample: &CounterSample) -> bool {
        let Some(sockets) = sample.sockets.value() else { return false };
        let is_open = |inode: &u64| sockets.iter().any(|socket| socket.inode == *inode);
        let has_closed = self.sockets.iter().any(|inode| !is_open(inode));
        let has_opened = sockets.iter().any(|socket| {
            let in_scope = match (scope.port, scope.pid) {
                (Some(port), _) => socket.local.port() == port,
                // The owner of a new socket is only known after a full reading.
                (None, Some(_)) => false,
                (None, None) => !is_loopback(socket.local),
            };
            in_scope && !self.sockets.contains(&socket.inode)
        });
        has_closed || has_opened
    }

    fn threads_changed(&self, sample: &CounterSample) -> bool {
        self.processes.iter().any(|(pid, threads)| {
            let mut tasks = sample.threads.iter().filter(|((task_pid, _), _)| task_pid == pid).peekable();
            tasks.peek().is_some() && tasks.any(|(_, task)| threads.is_some() && task.threads != *threads)
        })
    }
}
