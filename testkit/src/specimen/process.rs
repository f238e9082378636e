//! Processes with their threads and descriptors: `/proc/PID`.

use serde_json::json;

use crate::specimen::cpus::{list, mask};
use crate::specimen::{Cpus, Tree};

#[derive(Debug, Clone)]
pub struct Process {
    /// Its id, and that of its first thread.
    pub pid: u32,
    pub name: &'static str,
    pub arguments: Vec<&'static str>,
    pub threads: Vec<Thread>,
    /// Inodes of its sockets, from descriptor 3 on.
    pub sockets: Vec<u64>,
}

#[derive(Debug, Clone)]
pub struct Thread {
    pub tid: u32,
    /// The CPUs it may run on.
    pub allowed: Vec<u32>,
    /// The CPU it ran on last.
    pub last_cpu: u32,
    /// Time in user mode, in ticks.
    pub user: u64,
    /// Time in the kernel, in ticks.
    pub system: u64,
    /// The system call it is in: its number on x86-64, and the descriptor; none while it runs in user mode.
    pub call: Option<(u32, u32)>,
}

/// `recvfrom` on x86-64 (arch/x86/entry/syscalls/syscall_64.tbl).
pub const RECVFROM: u32 = 45;
/// `epoll_wait` on x86-64.
pub const EPOLL_WAIT: u32 = 232;

impl Process {
    pub(crate) fn write(&self, tree: &mut Tree, cpus: &Cpus) {
        let path = format!("/proc/{}", self.pid);
        tree.file(
            format!("{path}/cmdline"),
            self.arguments.iter().map(|argument| format!("{argument}\0")).collect::<String>(),
        );
        for (descriptor, inode) in (3..).zip(&self.sockets) {
            tree.link(format!("{path}/fd/{descriptor}"), format!("socket:[{inode}]"));
            tree.file(format!("{path}/fdinfo/{descriptor}"), "pos:\t0\nflags:\t02000002\nmnt_id:\t8\n");
        }
        tree.link(format!("{path}/fd/0"), "/dev/null");
        tree.file(format!("{path}/fdinfo/0"), "pos:\t0\nflags:\t0100000\nmnt_id:\t22\n");
        if let Some(first) = self.threads.first() {
            self.write_thread(tree, cpus, &path, first);
        }
        for thread in &self.threads {
            self.write_thread(tree, cpus, &format!("{path}/task/{}", thread.tid), thread);
        }
        if self.name == "irqbalance" {
            // What it answers on its socket: that it was told of no interrupt by number.
            let setup = json!({ "interval_seconds": 10, "banned": [] });
            tree.call(&format!("irqbalance/{}/setup", self.pid), &setup);
        }
    }

    fn write_thread(&self, tree: &mut Tree, cpus: &Cpus, path: &str, thread: &Thread) {
        let Thread { tid, last_cpu, user, system, .. } = thread;
        let name = self.name;
        tree.line(format!("{path}/comm"), name);
        let state = if thread.call.is_some() { 'S' } else { 'R' };
        // Fields of proc(5): utime is the 14th, stime the 15th, num_threads the 20th, processor the 39th.
        tree.line(
            format!("{path}/stat"),
            format!(
                "{tid} ({name}) {state} 1 {pid} {pid} 0 -1 4194368 120 0 0 0 {user} {system} 0 0 20 0 {count} 0 90210 88272896 310 \
                 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 -1 {last_cpu} 0 0 0 0 0",
                pid = self.pid,
                count = self.threads.len(),
            ),
        );
        tree.file(
            format!("{path}/status"),
            format!(
                "Name:\t{name}\nState:\t{state} ({word})\nTgid:\t{pid}\nPid:\t{tid}\nPPid:\t1\nUid:\t0\t0\t0\t0\nThreads:\t{count}\n\
                 Cpus_allowed:\t{mask}\nCpus_allowed_list:\t{list}\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t1\n",
                word = if state == 'S' { "sleeping" } else { "running" },
                pid = self.pid,
                count = self.threads.len(),
                mask = mask(&thread.allowed, cpus.count()),
                list = list(&thread.allowed),
            ),
        );
        tree.line(
            format!("{path}/syscall"),
            match thread.call {
                Some((number, descriptor)) => format!(
                    "{number} {descriptor:#x} 0x7f3a5c0008c0 0x800 0x0 0x7f3a6dffae40 0x7f3a6dffae3c 0x7f3a6dffae00 0x7f3a7e2f5b7d"
                ),
                None => "running".to_owned(),
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimen::{Cpu, Node};

    #[test]
    fn the_fields_of_stat_are_where_the_manual_says() {
        let cpus = Cpus {
            all: vec![Cpu { cpu: 0, node: 0, core: 0 }],
            model: "",
            hypervisor: false,
            governor: None,
        };
        let thread =
            Thread { tid: 9, allowed: vec![0], last_cpu: 7, user: 31, system: 41, call: Some((RECVFROM, 3)) };
        let process =
            Process { pid: 9, name: "a b", arguments: vec!["a"], threads: vec![thread], sockets: vec![77] };
        let mut tree = Tree::default();
        process.write(&mut tree, &cpus);
        let Some(Node::File(stat)) = tree.get("/proc/9/task/9/stat") else { panic!("no stat") };
        let after_name: Vec<&str> = stat.rsplit_once(") ").expect("a name").1.split_whitespace().collect();
        // The first word after the name is the third field.
        assert_eq!(
            (after_name[14 - 3], after_name[15 - 3], after_name[20 - 3], after_name[39 - 3]),
            ("31", "41", "1", "7")
        );
        assert_eq!(tree.get("/proc/9/fd/3"), Some(&Node::Link("socket:[77]".into())));
    }
}
