//! Finds the threads that serve the sockets of a service.

use std::collections::{BTreeMap, BTreeSet};

use super::sampling::sockets_by_pid;
use super::syscall::{Architecture, DescriptorCall, ThreadActivity};
use super::{
    AuditState, CpuQuota, ServingEvidence, ServingThread, TICKS_PER_SECOND, ThreadState, ThreadWatch,
};
use crate::known::UnknownReason;
use crate::process::task::{TaskStat, parse_epoll_targets, read_allowed_cpus};
use crate::stage::socket::{HostSockets, SocketProtocol};
use crate::{Host, HostError, Known};

/// Number of attempts to see two threads that wait in one epoll instance at the same moment.
const LOOKS: u32 = 8;

/// The kernel does not report the system call of a running thread, so the call is read several
/// times.
const ATTEMPTS: u32 = 8;

impl ThreadState {
    /// The threads that serve sockets of UDP services, and of named TCP services.
    pub fn observe(host: &Host, sockets: &HostSockets) -> Self {
        let audit = AuditState::observe(host);
        let services = match &sockets.services {
            Known::Value(services) => services,
            Known::Unknown { why } => {
                return Self { serving: Known::unknown(why.clone()), processes: Vec::new(), audit };
            }
        };
        let observed_services =
            services.iter().filter(|service| service.protocol == SocketProtocol::Udp || service.named);
        let architecture = Architecture::detect(host);
        let processes: Vec<ProcessThreads<'_>> = sockets_by_pid(observed_services)
            .into_iter()
            .filter_map(|(pid, sockets)| ProcessThreads::observe(host, architecture, pid, sockets))
            .collect();
        let watches = processes.iter().map(ProcessThreads::watch).collect();
        let mut serving: Vec<ServingThread> =
            processes.into_iter().flat_map(ProcessThreads::serving).collect();
        drop_idle_holders(&mut serving);
        Self { serving: Known::Value(serving), processes: watches, audit }
    }
}

struct ProcessThreads<'h> {
    host: &'h Host,
    architecture: Option<Architecture>,
    pid: u32,
    /// Inodes by descriptor.
    sockets: BTreeMap<u32, u64>,
    threads: Known<Vec<ObservedThread>>,
}

struct ObservedThread {
    tid: u32,
    task: Known<TaskStat>,
    doing: Known<ThreadActivity>,
}

impl<'h> ProcessThreads<'h> {
    /// `None` if the process ended.
    fn observe(
        host: &'h Host,
        architecture: Option<Architecture>,
        pid: u32,
        sockets: BTreeMap<u32, u64>,
    ) -> Option<Self> {
        let tids = host.list_numbers(&format!("/proc/{pid}/task"), "");
        if tids.as_ref().is_err_and(HostError::is_missing) && host.list(&format!("/proc/{pid}")).is_err() {
            return None;
        }
        let threads = tids.map(|tids| threads(host, pid, tids)).into();
        Some(ProcessThreads { host, architecture, pid, sockets, threads })
    }

    fn watch(&self) -> ThreadWatch {
        let threads = self.threads.known().map(|threads| u32::try_from(threads.len()).unwrap_or(u32::MAX));
        let count = |predicate: fn(&TaskStat) -> bool| {
            let all = self.threads.value().into_iter().flatten();
            let tasks = all.filter_map(|thread| thread.task.value());
            u32::try_from(tasks.filter(|task| predicate(task)).count()).unwrap_or(u32::MAX)
        };
        let tasks = self.threads.value().into_iter().flatten();
        let tasks = tasks.filter_map(|thread| Some((thread.tid, thread.task.value()?)));
        let started = tasks.clone().filter_map(|(_, task)| task.started).min();
        ThreadWatch {
            pid: self.pid,
            threads: threads.into(),
            started_seconds: started.map(|ticks| ticks as f64 / TICKS_PER_SECOND),
            calls: self.calls().into(),
            stopped: count(|task| task.stopped),
            scheduled_idle: count(|task| task.scheduled_idle),
            cpu_quota: CpuQuota::of_process(self.host, self.pid),
            ticks: tasks.filter_map(|(tid, task)| Some((tid, task.total_ticks()?))).collect(),
        }
    }

    /// The number of threads whose system call is known.
    fn calls(&self) -> Result<u32, UnknownReason> {
        let threads = self.threads.known()?;
        let known_count = threads.iter().filter(|thread| thread.doing.value().is_some()).count();
        match threads.iter().find_map(|thread| thread.doing.why()) {
            Some(reason) if known_count == 0 => Err(reason.into()),
            _ => Ok(u32::try_from(known_count).unwrap_or(u32::MAX)),
        }
    }

    fn serving(self) -> Vec<ServingThread> {
        let Known::Value(threads) = &self.threads else { return Vec::new() };
        let is_only_thread = threads.len() == 1;
        let mut polled_sockets = BTreeMap::new();
        let mut serving_threads = Vec::new();
        let mut candidates = Vec::new();
        for thread in threads {
            match self.classify(thread, is_only_thread, &mut polled_sockets) {
                ThreadFacts::Serves(how, sockets) => {
                    let epoll = match (&how, &thread.doing) {
                        (ServingEvidence::Polling(_), Known::Value(activity)) => activity.first(),
                        _ => None,
                    };
                    let serving_thread = self.build_thread(thread, how, sockets);
                    serving_threads.push(ServingThread { takes_turns_at: epoll, ..serving_thread });
                }
                ThreadFacts::MayServe => candidates.push(thread),
                ThreadFacts::No => {}
            }
        }
        self.find_turns(&mut serving_threads);
        let all_sockets: BTreeSet<u64> = self.sockets.values().copied().collect();
        let served_sockets: BTreeSet<u64> = serving_threads
            .iter()
            .flat_map(|serving_thread| serving_thread.sockets.iter().copied())
            .collect();
        let unserved_sockets: Vec<u64> = all_sockets.difference(&served_sockets).copied().collect();
        let unserved_sockets =
            if unserved_sockets.is_empty() { all_sockets.into_iter().collect() } else { unserved_sockets };
        serving_threads.extend(
            candidates
                .into_iter()
                .map(|thread| self.build_thread(thread, ServingEvidence::Assumed, unserved_sockets.clone())),
        );
        serving_threads.sort_by_key(|serving_thread| serving_thread.tid);
        serving_threads
    }

    /// Clears `takes_turns_at` if two threads wait in the epoll instance at the same moment, or if
    /// this cannot be observed.
    fn find_turns(&self, threads: &mut [ServingThread]) {
        let mut tids_by_epoll: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for thread in threads.iter() {
            if let Some(epoll) = thread.takes_turns_at {
                tids_by_epoll.entry(epoll).or_default().push(thread.tid);
            }
        }
        for (epoll, tids) in tids_by_epoll.into_iter().filter(|(_, tids)| tids.len() > 1) {
            let key = format!("threads/{}/epoll-{epoll}", self.pid);
            let action = format!("watching the threads of process {} wait", self.pid);
            if self.host.call(&key, &action, || Ok(wait_together(self.pid, epoll, &tids))).unwrap_or(true) {
                let waiting_threads =
                    threads.iter_mut().filter(|thread| thread.takes_turns_at == Some(epoll));
                waiting_threads.for_each(|thread| thread.takes_turns_at = None);
            }
        }
    }

    fn classify(
        &self,
        thread: &ObservedThread,
        is_only_thread: bool,
        polled_sockets: &mut BTreeMap<u64, Option<Vec<u64>>>,
    ) -> ThreadFacts {
        let fallback = if is_only_thread { self.only_thread() } else { ThreadFacts::MayServe };
        let Known::Value(activity) = &thread.doing else {
            // Its system call is unknown. A thread that never ran does not serve a socket.
            return if thread.has_run() { fallback } else { ThreadFacts::No };
        };
        let ThreadActivity::InCall { number, first } = *activity else {
            return if *activity == ThreadActivity::Running || is_only_thread {
                fallback
            } else {
                ThreadFacts::No
            };
        };
        let socket_inode = u32::try_from(first).ok().and_then(|descriptor| self.sockets.get(&descriptor));
        let call = self.architecture.map(|architecture| architecture.call(number));
        match (call, socket_inode) {
            (Some(DescriptorCall::OnDescriptor(name)), Some(inode)) => {
                ThreadFacts::Serves(ServingEvidence::InCall(name.to_owned()), vec![*inode])
            }
            (None, Some(inode)) => {
                ThreadFacts::Serves(ServingEvidence::InCall(format!("system call {number}")), vec![*inode])
            }
            (Some(DescriptorCall::Epoll(name)), _) => {
                match polled_sockets.entry(first).or_insert_with(|| self.polled_sockets(first)) {
                    Some(inodes) if inodes.is_empty() => ThreadFacts::No,
                    Some(inodes) => {
                        ThreadFacts::Serves(ServingEvidence::Polling(name.to_owned()), inodes.clone())
                    }
                    None => fallback,
                }
            }
            (Some(DescriptorCall::Poll(_) | DescriptorCall::Uring), _) => fallback,
            _ if is_only_thread => fallback,
            _ => ThreadFacts::No,
        }
    }

    fn only_thread(&self) -> ThreadFacts {
        ThreadFacts::Serves(ServingEvidence::OnlyThread, self.sockets.values().copied().collect())
    }

    /// The sockets in an epoll instance; `None` if unknown.
    fn polled_sockets(&self, descriptor: u64) -> Option<Vec<u64>> {
        let inodes = polled_sockets(self.host, self.pid, &self.sockets, descriptor)?;
        Some(inodes.into_iter().collect())
    }

    fn build_thread(
        &self,
        thread: &ObservedThread,
        how: ServingEvidence,
        sockets: Vec<u64>,
    ) -> ServingThread {
        let task_directory = directory(self.pid, thread.tid);
        let field = |number: fn(&TaskStat) -> Option<u64>, name: &str| {
            let number = number(thread.task.known()?);
            number.ok_or_else(|| UnknownReason::from(format!("{task_directory}/stat: no {name}")))
        };
        ServingThread {
            pid: self.pid,
            tid: thread.tid,
            name: thread.task.value().map(|task| task.name.clone()).unwrap_or_default(),
            sockets,
            how,
            takes_turns_at: None,
            allowed: read_allowed_cpus(self.host, &task_directory),
            last_cpu: field(|task| task.last_cpu.map(u64::from), "processor")
                .map(|cpu| u32::try_from(cpu).unwrap_or(u32::MAX))
                .into(),
            user_ticks: field(|task| task.user_ticks, "utime").into(),
            system_ticks: field(|task| task.system_ticks, "stime").into(),
        }
    }
}

/// The sockets in this list that are in an epoll instance of the process; `None` if unknown.
pub(super) fn polled_sockets(
    host: &Host,
    pid: u32,
    sockets: &BTreeMap<u32, u64>,
    descriptor: u64,
) -> Option<BTreeSet<u64>> {
    let info = host.read(&format!("/proc/{pid}/fdinfo/{descriptor}")).ok()?;
    let own_inodes: BTreeSet<u64> = sockets.values().copied().collect();
    let inode = |target: crate::process::task::EpollTarget| match target.inode {
        Some(inode) => own_inodes.contains(&inode).then_some(inode),
        None => sockets.get(&target.descriptor).copied(),
    };
    Some(parse_epoll_targets(&info).into_iter().filter_map(inode).collect())
}

enum ThreadFacts {
    Serves(ServingEvidence, Vec<u64>),
    MayServe,
    No,
}

impl ObservedThread {
    fn has_run(&self) -> bool {
        self.task.value().is_none_or(TaskStat::has_run)
    }
}

/// A process that only holds a socket, for example for its children, does not count if another
/// process was seen serving the socket.
fn drop_idle_holders(serving: &mut Vec<ServingThread>) {
    let observed_sockets: BTreeSet<u64> = serving
        .iter()
        .filter(|thread| thread.was_seen())
        .flat_map(|thread| thread.sockets.iter().copied())
        .collect();
    serving.retain(|thread| {
        thread.how != ServingEvidence::OnlyThread
            || !thread.sockets.iter().any(|inode| observed_sockets.contains(inode))
    });
}

pub(super) fn directory(pid: u32, tid: u32) -> String {
    format!("/proc/{pid}/task/{tid}")
}

/// Leaves out threads that ended during the reading.
fn threads(host: &Host, pid: u32, tids: Vec<u32>) -> Vec<ObservedThread> {
    let mut threads: Vec<ObservedThread> = tids
        .into_iter()
        .filter_map(|tid| {
            Some(ObservedThread {
                tid,
                task: read_task(host, pid, tid)?,
                doing: Known::Value(ThreadActivity::Running),
            })
        })
        .collect();
    for _ in 0..ATTEMPTS {
        let is_running =
            |thread: &&mut ObservedThread| matches!(thread.doing, Known::Value(ThreadActivity::Running));
        for thread in threads.iter_mut().filter(is_running) {
            thread.doing = read_activity(host, pid, thread.tid);
        }
    }
    threads
}

/// Whether two threads wait in an epoll instance at the same moment. If a thread waits there at two
/// readings and gave up its CPU no more often in between, it has not left the wait, so it also
/// waited while the other threads were read.
fn wait_together(pid: u32, epoll: u64, tids: &[u32]) -> bool {
    let host = Host::live();
    let waiting_thread = |tid: &u32| {
        let switches = switches(&host, pid, *tid)?;
        let is_waiting = read_activity(&host, pid, *tid).value()?.first() == Some(epoll);
        is_waiting.then_some((*tid, switches))
    };
    let waiting_threads = || tids.iter().filter_map(waiting_thread).collect::<Vec<_>>();
    (0..LOOKS).any(|_| {
        let (first, second) = (waiting_threads(), waiting_threads());
        first.iter().filter(|thread| second.contains(thread)).count() > 1
    })
}

/// `voluntary_ctxt_switches` of a thread.
fn switches(host: &Host, pid: u32, tid: u32) -> Option<u64> {
    let status = host.read(&format!("{}/status", directory(pid, tid))).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

/// `None` if the thread ended.
pub(super) fn read_task(host: &Host, pid: u32, tid: u32) -> Option<Known<TaskStat>> {
    match TaskStat::of_thread(host, pid, tid) {
        Err(error) if error.is_ended() => None,
        task => Some(task.into()),
    }
}

pub(super) fn read_activity(host: &Host, pid: u32, tid: u32) -> Known<ThreadActivity> {
    host.read_known(&format!("{}/syscall", directory(pid, tid)), |text| {
        ThreadActivity::parse(text).ok_or_else(|| format!("'{}' is no call", text.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostRecording;
    use crate::Scope;
    use crate::recording::{RecordedEntry, RecordedFailure};

    /// A process 50 with sockets 700 (descriptor 3) and 701 (4) on one port.
    struct Tree(HostRecording);

    impl Tree {
        fn new() -> Self {
            let mut tree = Tree(HostRecording::new());
            let socket = |inode: u64| format!(r#"{{"local": "10.0.0.1:53", "inode": {inode}}}"#);
            tree.file("/calls/sock_diag/udp4.json", &format!("[{},{}]", socket(700), socket(701)));
            tree.file("/proc/sys/kernel/arch", "x86_64\n");
            tree.file("/proc/50/comm", "echo\n");
            tree.link("/proc/50/fd/3", "socket:[700]");
            tree.link("/proc/50/fd/4", "socket:[701]");
            tree.link("/proc/50/fd/9", "anon_inode:[eventpoll]");
            tree
        }

        fn file(&mut self, path: &str, text: &str) {
            self.0.insert_file(path, text);
        }

        fn link(&mut self, path: &str, target: &str) {
            self.0.insert(path, RecordedEntry::Link(target.to_owned()));
        }

        fn thread(mut self, pid: u32, tid: u32, syscall: &str) -> Self {
            let zeros = "0 ".repeat(23);
            let stat = format!("{tid} (worker) S 1 1 1 0 -1 0 0 0 0 0 5 6 {zeros}2 0 0\n");
            self.file(&format!("/proc/{pid}/task/{tid}/stat"), &stat);
            self.file(&format!("/proc/{pid}/task/{tid}/status"), "Cpus_allowed_list:\t0-3\n");
            self.file(&format!("/proc/{pid}/task/{tid}/syscall"), syscall);
            self
        }

        fn threads(self) -> ThreadState {
            let host = Host::recorded(self.0);
            ThreadState::observe(&host, &HostSockets::observe(&host, &Scope::default()))
        }

        fn serving_threads(self) -> Vec<(u32, ServingEvidence, Vec<u64>)> {
            let serving = self.threads().serving.into_value().expect("known");
            serving.into_iter().map(|thread| (thread.tid, thread.how, thread.sockets)).collect()
        }
    }

    #[test]
    fn a_running_thread_is_assigned_the_socket_no_other_thread_reads() {
        let tree = Tree::new().thread(50, 50, "202 0x7f00 0x0").thread(50, 51, "45 0x3 0x7f00").thread(
            50,
            52,
            "running\n",
        );
        let in_call = ServingEvidence::InCall("recvfrom".into());
        assert_eq!(
            tree.serving_threads(),
            [(51, in_call, vec![700]), (52, ServingEvidence::Assumed, vec![701])]
        );
    }

    #[test]
    fn polled_sockets_are_read_from_the_epoll_instance() {
        let mut tree = Tree::new().thread(50, 50, "232 0x9 0x7f00").thread(50, 51, "232 0xa 0x7f00");
        tree.file("/proc/50/fdinfo/9", "tfd: 77 events: 19 data: 3 pos:0 ino:2bd sdev:8\n");
        tree.file("/proc/50/fdinfo/10", "tfd: 12 events: 19 data: 3 pos:0 ino:77 sdev:8\n");
        assert_eq!(tree.serving_threads(), [(50, ServingEvidence::Polling("epoll_wait".into()), vec![701])]);
    }

    #[test]
    fn threads_on_one_epoll_take_turns_unless_all_wait_together() {
        let turns = |answer: Option<&str>| {
            let mut tree = Tree::new().thread(50, 50, "232 0x9 0x7f00").thread(50, 51, "232 0x9 0x7f00");
            tree.file("/proc/50/fdinfo/9", "tfd: 3 events: 19 data: 3 pos:0 ino:2bc sdev:8\n");
            if let Some(answer) = answer {
                tree.file("/calls/threads/50/epoll-9.json", answer);
            }
            let serving = tree.threads().serving.into_value().expect("known");
            serving.iter().map(|thread| thread.takes_turns_at).collect::<Vec<_>>()
        };
        assert_eq!(turns(Some("false")), [Some(9), Some(9)]);
        assert_eq!(turns(Some("true")), [None, None]);
        assert_eq!(turns(None), [None, None], "the check was not possible");
    }

    #[test]
    fn processes_that_only_hold_socket_descriptors_are_not_serving() {
        let mut tree = Tree::new().thread(50, 50, "61 0xffffffff").thread(60, 60, "47 0x3 0x7f00");
        tree.link("/proc/60/fd/3", "socket:[700]");
        tree.link("/proc/60/fd/4", "socket:[701]");
        assert_eq!(tree.serving_threads(), [(60, ServingEvidence::InCall("recvmsg".into()), vec![700])]);
    }

    #[test]
    fn the_only_thread_of_a_process_serves_all_its_sockets() {
        let tree = Tree::new().thread(50, 50, "running");
        assert_eq!(tree.serving_threads(), [(50, ServingEvidence::OnlyThread, vec![700, 701])]);
    }

    #[test]
    fn unknown_architectures_still_yield_the_descriptor_of_a_call() {
        let mut tree = Tree::new().thread(50, 50, "45 0x3 0x7f00").thread(50, 51, "98 0x7f00 0x0");
        tree.file("/proc/sys/kernel/arch", "riscv64");
        assert_eq!(
            tree.serving_threads(),
            [(50, ServingEvidence::InCall("system call 45".into()), vec![700])]
        );
    }

    #[test]
    fn unreadable_calls_are_unknown_and_active_threads_assumed_to_serve() {
        let mut tree = Tree::new().thread(50, 50, "").thread(50, 51, "");
        for tid in [50, 51] {
            let failure = RecordedEntry::Failed(RecordedFailure::Errno { errno: libc::EPERM });
            tree.0.insert(format!("/proc/50/task/{tid}/syscall"), failure);
        }
        let threads = tree.threads();
        let why = threads.processes[0].calls.why().expect("unknown");
        assert!(why.starts_with("cannot read /proc/50/task/50/syscall: "), "{why}");
        let serving = threads.serving.value().expect("known");
        assert!(serving.iter().all(|thread| thread.how == ServingEvidence::Assumed) && serving.len() == 2);
        assert_eq!(
            (serving[0].last_cpu.clone(), serving[0].user_ticks.clone()),
            (Known::Value(2), Known::Value(5))
        );
    }
}
