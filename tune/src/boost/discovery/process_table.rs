//! The processes of a server: processes that share its sockets, and their kin (ancestors and
//! descendants), which were forked without exec.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::Host;
use linerate_host::stage::socket::ServiceSockets;
use linerate_host::stage::thread::TaskStat;

pub(super) struct ProcessTable<'h> {
    host: &'h Host,
    tasks: BTreeMap<u32, TaskStat>,
}

impl<'h> ProcessTable<'h> {
    /// Lists all processes. Omits a process that ends meanwhile.
    pub(super) fn observe(host: &'h Host) -> Self {
        let pids = host.list_numbers("/proc", "").unwrap_or_default().into_iter();
        let tasks = pids.filter_map(|pid| Some((pid, TaskStat::of_process(host, pid).ok()?))).collect();
        Self { host, tasks }
    }

    pub(super) fn task(&self, pid: u32) -> Option<&TaskStat> {
        self.tasks.get(&pid)
    }

    pub(super) fn parent(&self, pid: u32) -> Option<u32> {
        self.tasks.get(&pid)?.parent.filter(|parent| *parent != 0)
    }

    /// Name of a process from `comm`.
    pub(super) fn name(&self, pid: u32) -> String {
        let name = self.host.read(&format!("/proc/{pid}/comm")).map(|name| name.trim_end().to_owned());
        name.unwrap_or_else(|_| self.task(pid).map_or_else(|| "?".to_owned(), |task| task.name.clone()))
    }

    /// Identifies the program of a process: its file if that is readable, else the process name.
    fn program(&self, pid: u32) -> String {
        self.host.read_link(&format!("/proc/{pid}/exe")).unwrap_or_else(|_| self.name(pid))
    }

    /// Whether the process was forked by its parent and has called no exec since, or was started with
    /// the same command line. The same program does not suffice: unrelated services may be scripts of
    /// one interpreter, or commands of busybox.
    fn is_forked(&self, pid: u32, parent: u32) -> bool {
        let stack_start = |pid| self.task(pid)?.stack_start.filter(|address| *address != 0);
        let command_line =
            |pid| self.host.read(&format!("/proc/{pid}/cmdline")).ok().filter(|line| !line.is_empty());
        let has_same_stack = stack_start(pid).is_some_and(|address| stack_start(parent) == Some(address));
        let has_same_words =
            || parent != 1 && command_line(pid).is_some_and(|line| command_line(parent) == Some(line));
        self.program(parent) == self.program(pid) && (has_same_stack || has_same_words())
    }

    /// The process and its ancestors up to the first that did not fork it.
    fn ancestry(&self, pid: u32) -> Vec<u32> {
        let mut ancestry = vec![pid];
        let mut current = pid;
        while let Some(parent) = self.parent(current)
            && !ancestry.contains(&parent)
            && self.is_forked(current, parent)
        {
            ancestry.push(parent);
            current = parent;
        }
        ancestry
    }

    /// These processes, the ancestors that forked them, and all descendants that they forked.
    pub(super) fn kin(&self, pids: &BTreeSet<u32>) -> BTreeSet<u32> {
        let mut kin: BTreeSet<u32> = pids.iter().flat_map(|pid| self.ancestry(*pid)).collect();
        loop {
            let child = |pid: &&u32| {
                !kin.contains(pid)
                    && self
                        .parent(**pid)
                        .is_some_and(|parent| kin.contains(&parent) && self.is_forked(**pid, parent))
            };
            let children: Vec<u32> = self.tasks.keys().filter(child).copied().collect();
            if children.is_empty() {
                return kin;
            }
            kin.extend(children);
        }
    }

    /// The processes by their depth below each other, the oldest first.
    pub(super) fn sort_by_depth(&self, pids: &BTreeSet<u32>) -> Vec<u32> {
        let depth = |pid: u32| {
            let parents =
                std::iter::successors(Some(pid), |pid| self.parent(*pid)).skip(1).take(self.tasks.len());
            parents.filter(|parent| pids.contains(parent)).count()
        };
        let mut sorted: Vec<u32> = pids.iter().copied().collect();
        sorted.sort_by_cached_key(|pid| (depth(*pid), self.task(*pid).and_then(|task| task.started), *pid));
        sorted
    }

    /// The processes that hold these services, one item per server. Processes of one server share a
    /// socket or a reuseport group, or were forked by the same process.
    pub(super) fn servers(&self, services: &[ServiceSockets]) -> Vec<BTreeSet<u32>> {
        let mut servers: Vec<BTreeSet<u32>> = Vec::new();
        let mut join = |pids: BTreeSet<u32>| {
            let (mut overlapping, separate): (Vec<_>, Vec<_>) =
                servers.drain(..).partition(|server: &BTreeSet<u32>| !server.is_disjoint(&pids));
            overlapping.push(pids);
            servers = separate;
            servers.push(overlapping.into_iter().flatten().collect());
        };
        for service in services {
            let reuseport =
                service.sockets.iter().any(|socket| socket.known_options().is_some_and(|set| set.reuseport));
            let holders = service.sockets.iter().map(holders).filter(|holders| !holders.is_empty());
            let holder_sets: Vec<BTreeSet<u32>> =
                if reuseport { vec![holders.flatten().collect()] } else { holders.collect() };
            for pids in holder_sets.into_iter().filter(|pids: &BTreeSet<u32>| !pids.is_empty()) {
                join(pids.iter().flat_map(|pid| self.ancestry(*pid)).chain(pids.iter().copied()).collect());
            }
        }
        servers.sort();
        servers
    }
}

/// The processes of a socket. PID 1 is omitted if there are others: it holds the sockets of all
/// services that it starts on demand, but it is not part of the services.
fn holders(socket: &linerate_host::stage::socket::SocketState) -> BTreeSet<u32> {
    let all_pids: BTreeSet<u32> = socket.descriptors.iter().map(|(pid, _)| *pid).collect();
    let other_pids: BTreeSet<u32> = all_pids.iter().copied().filter(|pid| *pid != 1).collect();
    if other_pids.is_empty() { all_pids } else { other_pids }
}
