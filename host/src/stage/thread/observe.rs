//! Finding the threads that serve the sockets of a service.

use std::collections::{BTreeMap, BTreeSet};

use super::syscall::{Architecture, Call, Doing};
use super::task::{Task, allowed, watched};
use super::{Audit, CpuQuota, How, Serving, Threads, Watch};
use crate::stage::socket::{Protocol, Sockets};
use crate::{Host, HostError, Known};

/// A thread that runs tells nothing of itself. It is asked this often, since it may wait at the next time.
const ATTEMPTS: u32 = 8;

impl Threads {
    /// Reads the threads that serve these sockets: those of UDP services, and of TCP ones that are named.
    #[must_use]
    pub fn observe(host: &Host, sockets: &Sockets) -> Self {
        let audit = Audit::observe(host);
        let services = match &sockets.services {
            Known::Value(services) => services,
            Known::Unknown { why } => {
                return Self { serving: Known::unknown(why.clone()), processes: Vec::new(), audit };
            }
        };
        let asked = services.iter().filter(|service| service.protocol == Protocol::Udp || service.named);
        let mut held: BTreeMap<u32, BTreeMap<u32, u64>> = BTreeMap::new();
        for socket in asked.flat_map(|service| &service.sockets) {
            for (pid, descriptor) in &socket.descriptors {
                held.entry(*pid).or_default().insert(*descriptor, socket.inode);
            }
        }
        let architecture = Architecture::of(host);
        let processes: Vec<Process<'_>> = held
            .into_iter()
            .filter_map(|(pid, sockets)| Process::observe(host, architecture, pid, sockets))
            .collect();
        let watches = processes.iter().map(Process::watch).collect();
        let mut serving: Vec<Serving> = processes.into_iter().flat_map(Process::serving).collect();
        drop_idle_holders(&mut serving);
        Self { serving: Known::Value(serving), processes: watches, audit }
    }
}

/// A process and its threads.
struct Process<'h> {
    host: &'h Host,
    architecture: Option<Architecture>,
    pid: u32,
    /// Inodes of its sockets by descriptor.
    sockets: BTreeMap<u32, u64>,
    threads: Known<Vec<Thread>>,
}

struct Thread {
    tid: u32,
    task: Known<Task>,
    doing: Known<Doing>,
}

impl<'h> Process<'h> {
    /// None where the process ended meanwhile.
    fn observe(
        host: &'h Host,
        architecture: Option<Architecture>,
        pid: u32,
        sockets: BTreeMap<u32, u64>,
    ) -> Option<Self> {
        let threads = match host.list(&format!("/proc/{pid}/task")) {
            Ok(names) => Known::Value(threads(host, pid, &names)),
            Err(error) if error.is_missing() && host.list(&format!("/proc/{pid}")).is_err() => return None,
            Err(error) => Known::unknown(error.to_string()),
        };
        Some(Process { host, architecture, pid, sockets, threads })
    }

    fn watch(&self) -> Watch {
        let calls = match &self.threads {
            Known::Value(threads) => {
                let told = threads.iter().filter(|thread| thread.doing.value().is_some()).count();
                match threads.iter().find_map(|thread| thread.doing.why()) {
                    Some(why) if told == 0 => Known::unknown(why),
                    _ => Known::Value(u32::try_from(told).unwrap_or(u32::MAX)),
                }
            }
            Known::Unknown { why } => Known::unknown(why.clone()),
        };
        let threads = match &self.threads {
            Known::Value(threads) => Known::Value(u32::try_from(threads.len()).unwrap_or(u32::MAX)),
            Known::Unknown { why } => Known::unknown(why.clone()),
        };
        let count = |is: fn(&Task) -> bool| {
            let all = self.threads.value().into_iter().flatten();
            let tasks = all.filter_map(|thread| thread.task.value());
            u32::try_from(tasks.filter(|task| is(task)).count()).unwrap_or(u32::MAX)
        };
        Watch {
            pid: self.pid,
            threads,
            calls,
            stopped: count(|task| task.stopped),
            scheduled_idle: count(|task| task.scheduled_idle),
            cpu_quota: CpuQuota::of_process(self.host, self.pid),
        }
    }

    fn serving(self) -> Vec<Serving> {
        let Known::Value(threads) = &self.threads else { return Vec::new() };
        let only = threads.len() == 1;
        let mut polls = BTreeMap::new();
        let mut found = Vec::new();
        let mut guessed = Vec::new();
        for thread in threads {
            match self.seen(thread, only, &mut polls) {
                Seen::Serves(how, sockets) => found.push(self.serves(thread, how, sockets)),
                Seen::MayServe => guessed.push(thread),
                Seen::No => {}
            }
        }
        let all: BTreeSet<u64> = self.sockets.values().copied().collect();
        let taken: BTreeSet<u64> = found.iter().flat_map(|serving| serving.sockets.iter().copied()).collect();
        let left: Vec<u64> = all.difference(&taken).copied().collect();
        let left = if left.is_empty() { all.into_iter().collect() } else { left };
        found.extend(guessed.into_iter().map(|thread| self.serves(thread, How::Assumed, left.clone())));
        found.sort_by_key(|serving| serving.tid);
        found
    }

    fn seen(&self, thread: &Thread, only: bool, polls: &mut BTreeMap<u64, Option<Vec<u64>>>) -> Seen {
        let unsure = if only { self.only() } else { Seen::MayServe };
        let Known::Value(doing) = &thread.doing else {
            // What it does is not told; a thread that never ran serves nobody.
            return if thread.ran() { unsure } else { Seen::No };
        };
        let Doing::InCall { number, first } = *doing else {
            return if *doing == Doing::Running || only { unsure } else { Seen::No };
        };
        let held = u32::try_from(first).ok().and_then(|descriptor| self.sockets.get(&descriptor));
        let call = self.architecture.map(|architecture| architecture.call(number));
        match (call, held) {
            (Some(Call::OnDescriptor(name)), Some(inode)) => {
                Seen::Serves(How::InCall(name.to_owned()), vec![*inode])
            }
            (None, Some(inode)) => Seen::Serves(How::InCall(format!("system call {number}")), vec![*inode]),
            (Some(Call::Epoll(name)), _) => match polls.entry(first).or_insert_with(|| self.polled(first)) {
                Some(inodes) if inodes.is_empty() => Seen::No,
                Some(inodes) => Seen::Serves(How::Polling(name.to_owned()), inodes.clone()),
                None => unsure,
            },
            (Some(Call::Poll(_) | Call::Uring), _) => unsure,
            _ if only => unsure,
            _ => Seen::No,
        }
    }

    fn only(&self) -> Seen {
        Seen::Serves(How::OnlyThread, self.sockets.values().copied().collect())
    }

    /// The sockets an epoll instance waits for; none where it does not tell.
    fn polled(&self, descriptor: u64) -> Option<Vec<u64>> {
        let inodes = polled(self.host, self.pid, &self.sockets, descriptor)?;
        Some(inodes.into_iter().collect())
    }

    fn serves(&self, thread: &Thread, how: How, sockets: Vec<u64>) -> Serving {
        let directory = directory(self.pid, thread.tid);
        let number = |field: fn(&Task) -> Option<u64>, name: &str| match &thread.task {
            Known::Value(task) => {
                let lacking = || Known::unknown(format!("{directory}/stat: no {name}"));
                field(task).map_or_else(lacking, Known::Value)
            }
            Known::Unknown { why } => Known::unknown(why.clone()),
        };
        Serving {
            pid: self.pid,
            tid: thread.tid,
            name: thread.task.value().map(|task| task.name.clone()).unwrap_or_default(),
            sockets,
            how,
            allowed: allowed(self.host, &directory),
            last_cpu: number(|task| task.last_cpu.map(u64::from), "processor")
                .map(|cpu| u32::try_from(cpu).unwrap_or(u32::MAX)),
            user_ticks: number(|task| task.user_ticks, "utime"),
            system_ticks: number(|task| task.system_ticks, "stime"),
        }
    }
}

/// Those of these sockets that an epoll instance of the process waits for; none where it does not tell.
pub(super) fn polled(
    host: &Host,
    pid: u32,
    sockets: &BTreeMap<u32, u64>,
    descriptor: u64,
) -> Option<BTreeSet<u64>> {
    let info = host.read(&format!("/proc/{pid}/fdinfo/{descriptor}")).ok()?;
    let own: BTreeSet<u64> = sockets.values().copied().collect();
    let inode = |watched: super::task::Watched| match watched.inode {
        Some(inode) => own.contains(&inode).then_some(inode),
        None => sockets.get(&watched.descriptor).copied(),
    };
    Some(watched(&info).into_iter().filter_map(inode).collect())
}

/// What is known of a thread.
enum Seen {
    Serves(How, Vec<u64>),
    MayServe,
    No,
}

impl Thread {
    fn ran(&self) -> bool {
        self.task.value().is_none_or(Task::ran)
    }
}

/// A process that only holds a socket, as the one that made it for its children, is not said to serve it when another
/// was seen to.
fn drop_idle_holders(serving: &mut Vec<Serving>) {
    let seen: BTreeSet<u64> = serving
        .iter()
        .filter(|thread| thread.was_seen())
        .flat_map(|thread| thread.sockets.iter().copied())
        .collect();
    serving.retain(|thread| {
        thread.how != How::OnlyThread || !thread.sockets.iter().any(|inode| seen.contains(inode))
    });
}

pub(super) fn directory(pid: u32, tid: u32) -> String {
    format!("/proc/{pid}/task/{tid}")
}

/// The threads of a process, without those that ended meanwhile.
fn threads(host: &Host, pid: u32, names: &[String]) -> Vec<Thread> {
    let mut threads: Vec<Thread> = names
        .iter()
        .filter_map(|name| name.parse().ok())
        .filter_map(|tid| {
            Some(Thread { tid, task: task(host, pid, tid)?, doing: Known::Value(Doing::Running) })
        })
        .collect();
    for _ in 0..ATTEMPTS {
        let running = |thread: &&mut Thread| matches!(thread.doing, Known::Value(Doing::Running));
        for thread in threads.iter_mut().filter(running) {
            thread.doing = doing(host, pid, thread.tid);
        }
    }
    threads
}

/// None where the thread ended.
pub(super) fn task(host: &Host, pid: u32, tid: u32) -> Option<Known<Task>> {
    let path = format!("{}/stat", directory(pid, tid));
    match host.read(&path) {
        Ok(text) => {
            Some(Task::parse(&text).map_or_else(
                || Known::unknown(format!("{path}: no name and state of a thread")),
                Known::Value,
            ))
        }
        Err(error) if ended(&error) => None,
        Err(error) => Some(Known::unknown(error.to_string())),
    }
}

pub(super) fn doing(host: &Host, pid: u32, tid: u32) -> Known<Doing> {
    let path = format!("{}/syscall", directory(pid, tid));
    match host.read(&path) {
        Ok(text) => Doing::parse(&text)
            .map_or_else(|| Known::unknown(format!("{path}: '{}' is no call", text.trim())), Known::Value),
        Err(error) => Known::unknown(error.to_string()),
    }
}

/// `ESRCH` is what reading a file gives that was opened before its thread ended.
fn ended(error: &HostError) -> bool {
    error.is_missing()
        || matches!(error, HostError::Read { source, .. } if source.raw_os_error() == Some(libc::ESRCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recording;
    use crate::recording::{Entry, Failure};
    use crate::stage::Scope;

    /// A process 50 with sockets 700 (descriptor 3) and 701 (4) on one port.
    struct Tree(Recording);

    impl Tree {
        fn new() -> Self {
            let mut tree = Tree(Recording::new());
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
            self.0.insert(path, Entry::File(text.as_bytes().to_vec()));
        }

        fn link(&mut self, path: &str, target: &str) {
            self.0.insert(path, Entry::Link(target.to_owned()));
        }

        fn thread(mut self, pid: u32, tid: u32, syscall: &str) -> Self {
            let zeros = "0 ".repeat(23);
            let stat = format!("{tid} (worker) S 1 1 1 0 -1 0 0 0 0 0 5 6 {zeros}2 0 0\n");
            self.file(&format!("/proc/{pid}/task/{tid}/stat"), &stat);
            self.file(&format!("/proc/{pid}/task/{tid}/status"), "Cpus_allowed_list:\t0-3\n");
            self.file(&format!("/proc/{pid}/task/{tid}/syscall"), syscall);
            self
        }

        fn threads(self) -> Threads {
            let host = Host::recorded(self.0);
            Threads::observe(&host, &Sockets::observe(&host, &Scope::default()))
        }

        fn serving(self) -> Vec<(u32, How, Vec<u64>)> {
            let serving = self.threads().serving.into_value().expect("known");
            serving.into_iter().map(|thread| (thread.tid, thread.how, thread.sockets)).collect()
        }
    }

    #[test]
    fn a_thread_is_seen_in_its_call_and_a_running_one_has_the_socket_that_is_left() {
        let tree = Tree::new().thread(50, 50, "202 0x7f00 0x0").thread(50, 51, "45 0x3 0x7f00").thread(
            50,
            52,
            "running\n",
        );
        let in_call = How::InCall("recvfrom".into());
        assert_eq!(tree.serving(), [(51, in_call, vec![700]), (52, How::Assumed, vec![701])]);
    }

    #[test]
    fn what_a_thread_polls_is_what_its_epoll_instance_holds() {
        let mut tree = Tree::new().thread(50, 50, "232 0x9 0x7f00").thread(50, 51, "232 0xa 0x7f00");
        tree.file("/proc/50/fdinfo/9", "tfd: 77 events: 19 data: 3 pos:0 ino:2bd sdev:8\n");
        tree.file("/proc/50/fdinfo/10", "tfd: 12 events: 19 data: 3 pos:0 ino:77 sdev:8\n");
        assert_eq!(tree.serving(), [(50, How::Polling("epoll_wait".into()), vec![701])]);
    }

    #[test]
    fn a_process_that_only_holds_the_sockets_does_not_serve_them() {
        let mut tree = Tree::new().thread(50, 50, "61 0xffffffff").thread(60, 60, "47 0x3 0x7f00");
        tree.link("/proc/60/fd/3", "socket:[700]");
        tree.link("/proc/60/fd/4", "socket:[701]");
        assert_eq!(tree.serving(), [(60, How::InCall("recvmsg".into()), vec![700])]);
    }

    #[test]
    fn the_only_thread_serves_whatever_it_does() {
        let tree = Tree::new().thread(50, 50, "running");
        assert_eq!(tree.serving(), [(50, How::OnlyThread, vec![700, 701])]);
    }

    #[test]
    fn an_unknown_architecture_still_tells_the_descriptor() {
        let mut tree = Tree::new().thread(50, 50, "45 0x3 0x7f00").thread(50, 51, "98 0x7f00 0x0");
        tree.file("/proc/sys/kernel/arch", "riscv64");
        assert_eq!(tree.serving(), [(50, How::InCall("system call 45".into()), vec![700])]);
    }

    #[test]
    fn calls_that_may_not_be_read_are_unknown_and_threads_that_ran_assumed() {
        let mut tree = Tree::new().thread(50, 50, "").thread(50, 51, "");
        for tid in [50, 51] {
            let failed = Entry::Failed(Failure::Errno { errno: libc::EPERM });
            tree.0.insert(format!("/proc/50/task/{tid}/syscall"), failed);
        }
        let threads = tree.threads();
        let why = threads.processes[0].calls.why().expect("unknown");
        assert!(why.starts_with("cannot read /proc/50/task/50/syscall: "), "{why}");
        let serving = threads.serving.value().expect("known");
        assert!(serving.iter().all(|thread| thread.how == How::Assumed) && serving.len() == 2);
        assert_eq!(
            (serving[0].last_cpu.clone(), serving[0].user_ticks.clone()),
            (Known::Value(2), Known::Value(5))
        );
    }

    #[test]
    fn a_process_that_is_gone_serves_nobody() {
        let tree = Tree::new();
        let threads = tree.threads();
        assert_eq!(threads.serving.value().map(Vec::len), Some(0));
    }
}
