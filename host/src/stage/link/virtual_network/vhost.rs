//! Threads of vhost: threads of the machine's process since Linux 6.4 (kernel/vhost_task.c),
//! separate kernel threads before.

use std::collections::BTreeSet;

use super::VhostThread;
use crate::Host;
use crate::process::task::{TaskStat, read_allowed_cpus};
use crate::stage::machine::NumaNode;

pub(super) fn threads(host: &Host, machines: &BTreeSet<u32>, nodes: &[NumaNode]) -> Vec<VhostThread> {
    if machines.is_empty() {
        return Vec::new();
    }
    let mut vhost_threads = Vec::new();
    let mut add_thread = |directory: String, tid: u32, pid: u32| {
        let Ok(stat) = TaskStat::read(host, &directory) else { return };
        let last_cpu = stat.last_cpu;
        let node = nodes.iter().find(|node| last_cpu.is_some_and(|cpu| node.cpus.contains(cpu)));
        vhost_threads.push(VhostThread {
            tid,
            pid,
            system_ticks: stat.system_ticks.unwrap_or(0) + stat.user_ticks.unwrap_or(0),
            allowed: read_allowed_cpus(host, &directory),
            last_cpu,
            node: node.map(|node| node.node),
        });
    };
    for pid in machines {
        for tid in host.list_numbers(&format!("/proc/{pid}/task"), "").unwrap_or_default() {
            let directory = format!("/proc/{pid}/task/{tid}");
            if host.read(&format!("{directory}/comm")).is_ok_and(|comm| comm.starts_with("vhost-")) {
                add_thread(directory, tid, *pid);
            }
        }
    }
    for process in crate::process::processes(host).value().into_iter().flatten() {
        let machine = process.comm.strip_prefix("vhost-").and_then(|pid| pid.parse().ok());
        if let Some(pid) = machine.filter(|pid| machines.contains(pid)) {
            add_thread(format!("/proc/{}", process.pid), process.pid, pid);
        }
    }
    vhost_threads
}
