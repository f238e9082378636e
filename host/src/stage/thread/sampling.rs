//! Repeated samples of the system calls of threads on their sockets. The kernel reports no call for
//! a running thread, but the thread may wait in another sample.

use std::collections::{BTreeMap, BTreeSet};

use super::observe::{directory, polled_sockets, read_activity, read_task};
use super::syscall::{Architecture, DescriptorCall, ThreadActivity};
use crate::process::task::{TaskStat, read_allowed_cpus};
use crate::stage::socket::ServiceSockets;
use crate::{CpuSet, Host, Known};

pub struct ThreadSampling<'h> {
    host: &'h Host,
    architecture: Option<Architecture>,
    /// Inodes by process and descriptor.
    held: BTreeMap<u32, BTreeMap<u32, u64>>,
    threads: BTreeMap<(u32, u32), ThreadSightings>,
    /// Sockets in epoll instances and rings, by process and descriptor; `None` if unknown.
    polls: BTreeMap<(u32, u64), Option<BTreeSet<u64>>>,
    rings: BTreeMap<(u32, u64), BTreeSet<u64>>,
    samples: u32,
}

/// Observations of a thread. Sockets are inodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadSightings {
    pub pid: u32,
    pub tid: u32,
    /// `stat` of the first sample; unknown if it cannot be read.
    pub task: Known<TaskStat>,
    pub allowed: Known<CpuSet>,
    /// Sockets of its system calls.
    pub in_call: BTreeSet<u64>,
    /// Sockets of epoll instances that it waited for.
    pub polling: BTreeSet<u64>,
    /// Sockets registered with an io_uring that it waited for; `None` without one. The kernel does
    /// not report requests on other sockets.
    pub ring: Option<BTreeSet<u64>>,
    /// Samples in select or poll, or in an unreadable epoll instance: any sockets.
    pub selecting: u32,
    /// Samples in which it ran.
    pub running: u32,
    /// Samples in which it waited for something else.
    pub elsewhere: u32,
    /// The last reason why its system call was unknown.
    pub untold: Option<String>,
}

/// The inodes of the sockets that each process holds, by descriptor.
pub(super) fn sockets_by_pid<'s>(
    services: impl IntoIterator<Item = &'s ServiceSockets>,
) -> BTreeMap<u32, BTreeMap<u32, u64>> {
    let mut sockets_by_pid: BTreeMap<u32, BTreeMap<u32, u64>> = BTreeMap::new();
    for socket in services.into_iter().flat_map(|service| &service.sockets) {
        for (pid, descriptor) in &socket.descriptors {
            sockets_by_pid.entry(*pid).or_default().insert(*descriptor, socket.inode);
        }
    }
    sockets_by_pid
}

impl<'h> ThreadSampling<'h> {
    /// Samples all processes that hold a socket of these services.
    pub fn new<'s>(host: &'h Host, services: impl IntoIterator<Item = &'s ServiceSockets>) -> Self {
        Self::of_sockets(host, sockets_by_pid(services))
    }

    /// Samples these processes. `sockets_by_pid` has the inodes of their sockets by descriptor.
    pub fn of_sockets(host: &'h Host, sockets_by_pid: BTreeMap<u32, BTreeMap<u32, u64>>) -> Self {
        let architecture = Architecture::detect(host);
        let (threads, polls, rings) = Default::default();
        Self { host, architecture, held: sockets_by_pid, threads, polls, rings, samples: 0 }
    }

    /// Takes a sample. Threads that ended are removed.
    pub fn take_sample(&mut self) {
        self.samples += 1;
        let mut running_threads = BTreeMap::new();
        for pid in self.held.keys().copied().collect::<Vec<_>>() {
            for tid in self.host.list_numbers(&format!("/proc/{pid}/task"), "").unwrap_or_default() {
                let earlier = self.threads.remove(&(pid, tid));
                let Some(mut sightings) = earlier.or_else(|| ThreadSightings::new(self.host, pid, tid))
                else {
                    continue;
                };
                self.record_activity(&mut sightings);
                running_threads.insert((pid, tid), sightings);
            }
        }
        self.threads = running_threads;
    }

    pub fn samples(&self) -> u32 {
        self.samples
    }

    /// The threads that have not ended, by process and thread id.
    pub fn threads(self) -> Vec<ThreadSightings> {
        self.threads.into_values().collect()
    }

    fn record_activity(&mut self, sightings: &mut ThreadSightings) {
        let (pid, tid) = (sightings.pid, sightings.tid);
        let (number, first) = match read_activity(self.host, pid, tid) {
            Known::Value(ThreadActivity::InCall { number, first }) => (number, first),
            Known::Value(ThreadActivity::Running) => return sightings.running += 1,
            Known::Value(ThreadActivity::Elsewhere) => return sightings.elsewhere += 1,
            Known::Unknown { why } => return sightings.untold = Some(why),
        };
        let sockets = self.held.get(&pid);
        let socket_inode = u32::try_from(first).ok().and_then(|descriptor| sockets?.get(&descriptor));
        match (self.architecture.map(|architecture| architecture.call(number)), socket_inode) {
            (Some(DescriptorCall::OnDescriptor(_)) | None, Some(inode)) => {
                sightings.in_call.insert(*inode);
            }
            (Some(DescriptorCall::Epoll(_)), _) => match self.polled_sockets(pid, first) {
                Some(inodes) if inodes.is_empty() => sightings.elsewhere += 1,
                Some(inodes) => sightings.polling.extend(inodes),
                None => sightings.selecting += 1,
            },
            (Some(DescriptorCall::Uring), _) => {
                let sockets = self.registered_sockets(pid, first);
                sightings.ring.get_or_insert_default().extend(sockets);
            }
            (Some(DescriptorCall::Poll(_)), _) => sightings.selecting += 1,
            _ => sightings.elsewhere += 1,
        }
    }

    fn polled_sockets(&mut self, pid: u32, descriptor: u64) -> Option<BTreeSet<u64>> {
        let (host, sockets_by_pid) = (self.host, &self.held);
        let read_sockets = || polled_sockets(host, pid, sockets_by_pid.get(&pid)?, descriptor);
        self.polls.entry((pid, descriptor)).or_insert_with(read_sockets).clone()
    }

    fn registered_sockets(&mut self, pid: u32, descriptor: u64) -> BTreeSet<u64> {
        let (host, sockets_by_pid) = (self.host, &self.held);
        let read_sockets = || {
            let info = host.read(&format!("/proc/{pid}/fdinfo/{descriptor}")).unwrap_or_default();
            let is_own = |inode: &u64| {
                sockets_by_pid.get(&pid).is_some_and(|sockets| sockets.values().any(|socket| socket == inode))
            };
            registered_sockets(&info).into_iter().filter(is_own).collect()
        };
        self.rings.entry((pid, descriptor)).or_insert_with(read_sockets).clone()
    }
}

impl ThreadSightings {
    /// `None` if the thread ended.
    fn new(host: &Host, pid: u32, tid: u32) -> Option<Self> {
        Some(ThreadSightings {
            pid,
            tid,
            task: read_task(host, pid, tid)?,
            allowed: read_allowed_cpus(host, &directory(pid, tid)),
            ..ThreadSightings::default()
        })
    }
}

/// Sockets registered with an io_uring, from its fdinfo: `UserFiles:\t2` and for each file a line
/// such as `    0: socket:[812]` (io_uring_show_fdinfo in io_uring/fdinfo.c).
pub(crate) fn registered_sockets(fdinfo: &str) -> Vec<u64> {
    let socket = |line: &str| {
        let (index, file) = line.split_once(':')?;
        index.trim().parse::<u32>().ok()?;
        file.trim().strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    fdinfo.lines().skip_while(|line| !line.starts_with("UserFiles:")).filter_map(socket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::socket::sample::service;

    fn tree(files: &[(&str, &str)]) -> Host {
        let zeros = "0 ".repeat(23);
        let stat = format!("50 (worker) S 1 1 1 0 -1 0 0 0 0 0 5 6 {zeros}2 0 0\n");
        let task_files = [
            ("/proc/sys/kernel/arch", "x86_64\n"),
            ("/proc/50/task/50/stat", &stat),
            ("/proc/50/task/50/status", "Cpus_allowed_list:\t0-3\n"),
        ];
        Host::scripted(task_files.iter().chain(files).copied())
    }

    #[test]
    fn thread_samples_accumulate_calls_and_polled_sockets() {
        let host = tree(&[
            ("/proc/50/task/50/syscall", "running\n"),
            ("/proc/50/fdinfo/9", "tfd: 4 events: 19 data: 3 pos:0 ino:2bd sdev:8\n"),
        ]);
        let mut service = service(2);
        service.sockets[1].descriptors = vec![(50, 4)];
        let mut sampling = ThreadSampling::new(&host, [&service]);
        for syscall in ["running\n", "45 0x3 0x7f00", "232 0x9 0x7f00", "202 0x7f00 0x0", "23 0x9 0x0"] {
            host.write("/proc/50/task/50/syscall", syscall).expect("written");
            sampling.take_sample();
        }
        assert_eq!(sampling.samples(), 5);
        let threads = sampling.threads();
        let [thread] = threads.as_slice() else { panic!("{threads:?}") };
        assert_eq!((thread.in_call.clone(), thread.polling.clone()), ([700].into(), [701].into()));
        assert_eq!((thread.running, thread.elsewhere, thread.selecting), (1, 1, 1));
        assert_eq!(thread.allowed, Known::Value((0..4).collect()));
    }

    #[test]
    fn io_uring_sockets_are_read_from_fdinfo() {
        let info =
            "pos:\t0\nSqThread:\t-1\nUserFiles:\t3\n    0: socket:[700]\n    2: /dev/null\nUserBufs:\t1\n";
        let host = tree(&[("/proc/50/task/50/syscall", "426 0x7 0x0"), ("/proc/50/fdinfo/7", info)]);
        let mut sampling = ThreadSampling::new(&host, [&service(1)]);
        sampling.take_sample();
        assert_eq!(sampling.threads()[0].ring, Some([700].into()));
        assert_eq!(registered_sockets("0: socket:[700]\n"), [0; 0]);
    }
}
