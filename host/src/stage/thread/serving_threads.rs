//! The threads of a socket, from one reading or two: a thread that ran in one reading may have
//! waited in the other.

use std::collections::{BTreeMap, BTreeSet};

use super::{ServingEvidence, ServingThread};
use crate::stage::socket::ServiceSockets;
use crate::stage::{HostView, PacketPath};

/// Ticks of `USER_HZ` per second: 100 on every architecture (include/asm-generic/param.h) except
/// Alpha and ia64.
pub(crate) const TICKS_PER_SECOND: f64 = 100.0;

impl ServingEvidence {
    /// Certainty: observed before assumed.
    fn rank(&self) -> u8 {
        match self {
            ServingEvidence::InCall(_) => 3,
            ServingEvidence::Polling(_) => 2,
            ServingEvidence::OnlyThread => 1,
            ServingEvidence::Assumed => 0,
        }
    }
}

impl<'a> HostView<'a> {
    /// Each thread with its best evidence.
    pub fn serving(&self) -> Vec<&'a ServingThread> {
        self.best_evidence(|_| true)
    }

    /// Those of both readings.
    fn observed_threads(&self) -> impl Iterator<Item = &'a ServingThread> {
        let readings = [Some(self.now), self.before].into_iter().flatten();
        readings.filter_map(|path| path.thread.serving.value()).flatten()
    }

    fn best_evidence(&self, is_wanted: impl Fn(&ServingThread) -> bool) -> Vec<&'a ServingThread> {
        let mut best: BTreeMap<(u32, u32), &'a ServingThread> = BTreeMap::new();
        for thread in self.observed_threads().filter(|thread| is_wanted(thread)) {
            let best_thread = best.entry((thread.pid, thread.tid)).or_insert(thread);
            if thread.how.rank() > best_thread.how.rank() {
                *best_thread = thread;
            }
        }
        best.into_values().collect()
    }

    /// The threads that serve the socket with this inode: threads that were seen to do so, and of
    /// the other threads those with at least half the kernel time of the busiest thread. A thread
    /// that sleeps in poll or computes does not receive.
    pub fn serving_socket(&self, inode: u64) -> Vec<&'a ServingThread> {
        let has_socket = |thread: &&ServingThread| thread.sockets.contains(&inode);
        let ids: BTreeSet<(u32, u32)> =
            self.observed_threads().filter(has_socket).map(|thread| (thread.pid, thread.tid)).collect();
        let mut threads = self.best_evidence(|thread| ids.contains(&(thread.pid, thread.tid)));
        // A thread that may serve the socket in one reading may be seen at another in the other.
        threads.retain(has_socket);
        let most_ticks = threads.iter().filter_map(|thread| self.kernel_ticks(thread)).max().unwrap_or(0);
        threads.retain(|thread| {
            thread.how != ServingEvidence::Assumed
                || self
                    .kernel_ticks(thread)
                    .is_none_or(|ticks| ticks > 0 && ticks.saturating_mul(2) >= most_ticks)
        });
        threads
    }

    /// The threads of [`Self::serving_socket`] that may read at the same time. If threads of a
    /// process take turns, only one of them is included.
    pub fn readers_at_once(&self, inode: u64) -> Vec<&'a ServingThread> {
        let mut threads = self.serving_socket(inode);
        let turn_pids: BTreeSet<u32> = threads
            .iter()
            .filter(|thread| thread.takes_turns_at.is_some())
            .map(|thread| thread.pid)
            .collect();
        let mut counted_turns = BTreeSet::new();
        threads.retain(|thread| match thread.takes_turns_at {
            Some(epoll) => counted_turns.insert((thread.pid, epoll)),
            // A running thread may be about to do the same as the waiting one.
            None => thread.was_seen() || !turn_pids.contains(&thread.pid),
        });
        threads
    }

    /// Whether threads of a socket of the service take turns, so that any thread of the process may
    /// be the next that reads.
    pub fn takes_turns(&self, service: &ServiceSockets) -> bool {
        let mut inodes = service.sockets.iter().map(|socket| socket.inode);
        inodes.any(|inode| self.readers_at_once(inode).len() < self.serving_socket(inode).len())
    }

    /// Kernel ticks between the readings, or since the start of the thread.
    fn kernel_ticks(&self, thread: &ServingThread) -> Option<u64> {
        let ticks = |path| same_thread(path, (thread.pid, thread.tid))?.system_ticks.value().copied();
        let total_ticks = thread.system_ticks.value()?;
        Some(match self.before {
            // A thread missing from one of the readings did other work at that time.
            Some(before) => match (ticks(self.now), ticks(before)) {
                (Some(now), Some(before)) => now.saturating_sub(before),
                _ => 0,
            },
            None => *total_ticks,
        })
    }

    /// CPUs' worth of time between readings in both of which the thread served, or with one reading
    /// the average since boot, which is a lower bound.
    pub fn cpus_used(&self, thread: &ServingThread) -> Option<f64> {
        self.cpus_of_ticks(|path| same_thread(path, (thread.pid, thread.tid))?.ticks())
    }

    /// CPUs' worth of time of a service's threads, also if they served in one of the readings only.
    /// Of threads that take turns, few are seen at their turn, so all of their process count.
    pub(in crate::stage) fn cpus_of_threads(&self, threads: &[&ServingThread]) -> f64 {
        let pids = turn_taking_pids(threads);
        let watches = self.now.thread.processes.iter().filter(|watch| pids.contains(&watch.pid));
        let mut ids: BTreeSet<(u32, u32)> =
            watches.flat_map(|watch| watch.ticks.keys().map(|tid| (watch.pid, *tid))).collect();
        ids.extend(threads.iter().map(|thread| (thread.pid, thread.tid)));
        ids.into_iter().filter_map(|id| self.cpus_of_ticks(|path| ticks(path, id))).sum()
    }

    fn cpus_of_ticks(&self, ticks: impl Fn(&PacketPath) -> Option<u64>) -> Option<f64> {
        match self.before {
            Some(_) => self.rate(ticks).map(|rate| rate / TICKS_PER_SECOND),
            None => {
                let seconds = *self.now.uptime_seconds.value()?;
                (seconds > 0.0).then_some(ticks(self.now)? as f64 / TICKS_PER_SECOND / seconds)
            }
        }
    }
}

fn same_thread(path: &PacketPath, (pid, tid): (u32, u32)) -> Option<&ServingThread> {
    path.thread.serving.value()?.iter().find(|thread| (thread.pid, thread.tid) == (pid, tid))
}

/// Those of a thread that may serve nothing in this reading.
fn ticks(path: &PacketPath, id: (u32, u32)) -> Option<u64> {
    let watch = path.thread.processes.iter().find(|watch| watch.pid == id.0);
    let watched_ticks = watch.and_then(|watch| watch.ticks.get(&id.1).copied());
    watched_ticks.or_else(|| same_thread(path, id)?.ticks())
}

/// Processes with several of these threads in turn at one epoll instance.
fn turn_taking_pids(threads: &[&ServingThread]) -> BTreeSet<u32> {
    let mut turns = BTreeSet::new();
    let is_next = |thread: &&&ServingThread| {
        thread.takes_turns_at.is_some_and(|epoll| !turns.insert((thread.pid, epoll)))
    };
    threads.iter().filter(is_next).map(|thread| thread.pid).collect()
}

impl ServingThread {
    /// Maximum number of threads listed individually.
    pub(in crate::stage) const SHOWN: usize = 8;

    /// In ticks of `USER_HZ`.
    pub fn ticks(&self) -> Option<u64> {
        self.user_ticks.value()?.checked_add(*self.system_ticks.value()?)
    }

    /// The evidence, and its source.
    pub fn describe_evidence(&self) -> (String, String) {
        let directory = format!("/proc/{}/task/{}", self.pid, self.tid);
        match &self.how {
            ServingEvidence::InCall(call) => (format!("in {call}"), format!("{directory}/syscall")),
            ServingEvidence::Polling(call) => {
                (format!("waits in {call}"), format!("{directory}/syscall, /proc/{}/fdinfo", self.pid))
            }
            ServingEvidence::OnlyThread => ("the only thread".to_owned(), format!("/proc/{}/task", self.pid)),
            ServingEvidence::Assumed => {
                ("runs, or its system call is not reported".to_owned(), format!("{directory}/syscall"))
            }
        }
    }
}
