//! Properties of a host that starve a server's workers above its capacity, or lose packets before
//! its guard. The server does not change them.

use std::collections::BTreeSet;
use std::fs;

use linerate_engine::{OverloadPolicy, RunningServer};
use linerate_host::process::allowed_cpus;
use linerate_host::stage::link::LinkState;
use linerate_host::{CpuSet, Host, Known, PacketPath, Scope};

use crate::quantity::interface_index;

/// Advice for the operator. Empty without an overload policy.
pub(super) fn find(server: &RunningServer, overload: &OverloadPolicy) -> Vec<String> {
    let guard = overload.guard.as_ref();
    let interfaces = match guard {
        _ if *overload == OverloadPolicy::default() => return Vec::new(),
        Some(guard) if !guard.interfaces.is_empty() => guard.interfaces.clone(),
        _ => server.interfaces(),
    };
    if interfaces.is_empty() {
        return Vec::new();
    }
    // The workers already serve.
    let host = Host::live().gently();
    let path = PacketPath::observe(&host, &Scope { interfaces, ..Scope::default() });
    let threads = server.thread_ids().iter().filter_map(|tid| u32::try_from(*tid).ok());
    let workers: Vec<CpuSet> = threads.filter_map(|tid| allowed_cpus(&host, tid).into_value()).collect();
    let advice_of = |link: &LinkState| {
        let rps = path.softirq.rps.iter().find(|rps| rps.interface == link.interface)?;
        match rps.threaded {
            Known::Value(Some(true)) if guard.is_some() => waiting_threads(&host, &link.interface, &workers),
            Known::Value(Some(true)) => None,
            _ => starved_workers(&path, &link.interface, &workers),
        }
    };
    // sysfs shows the interfaces of the network namespace in which it was mounted.
    let is_in_namespace = |link: &&LinkState| {
        interface_index(&link.interface).is_some_and(|index| link.index.value() == Some(&index))
    };
    path.link.iter().filter(is_in_namespace).filter_map(advice_of).collect()
}

fn starved_workers(path: &PacketPath, interface: &str, workers: &[CpuSet]) -> Option<String> {
    let queues = path.softirq.rps_queues(interface).iter();
    // Unknown on a device without interrupts.
    let cpus = queues.map(|queue| path.stack_cpus(interface, queue.queue)).collect::<Option<Vec<_>>>()?;
    let softirq_cpus: BTreeSet<u32> = cpus.into_iter().flatten().collect();
    let is_starved = |cpus: &&CpuSet| !cpus.is_empty() && cpus.iter().all(|cpu| softirq_cpus.contains(&cpu));
    let workers_text = match (workers.iter().filter(is_starved).count(), workers.len()) {
        (0, _) => return None,
        (1, 1) => "the worker".to_owned(),
        (starved_count, count) if starved_count == count => format!("all {count} workers"),
        (starved_count, count) => format!("{starved_count} of {count} workers"),
    };
    Some(format!(
        "softirqs of {interface} run on the CPUs of {workers_text}, and go first: above capacity no time is left to \
         answer; with threaded NAPI the scheduler divides the CPU (echo 1 >/sys/class/net/{interface}/threaded, Linux \
         5.12); see linerate doctor --explain softirq.livelock-risk, docs/overload.md"
    ))
}

// A guard sees the packets that are taken from the device's queues. A thread that takes them must
// not wait for the threads that the guard protects.
fn waiting_threads(host: &Host, interface: &str, workers: &[CpuSet]) -> Option<String> {
    let worker_cpus: BTreeSet<u32> = workers.iter().flat_map(CpuSet::iter).collect();
    // Fewer workers, not pinned to one CPU each, leave some of these CPUs free.
    if workers.len() < worker_cpus.len() {
        return None;
    }
    let threads = napi_threads(interface);
    // At most one thread per queue and direction: more threads belong to interfaces of this name in
    // other network namespaces.
    if threads.len() > fs::read_dir(format!("/sys/class/net/{interface}/queues")).ok()?.count() {
        return None;
    }
    let is_waiting = |(pid, _): &&(u32, String)| {
        let cpus = allowed_cpus(host, *pid).into_value();
        cpus.is_some_and(|cpus| cpus.iter().all(|cpu| worker_cpus.contains(&cpu)))
            && is_real_time(*pid) == Some(false)
    };
    let waiting_threads: Vec<&(u32, String)> = threads.iter().filter(is_waiting).collect();
    let (pid, name) = waiting_threads.first()?;
    let threads_text = match waiting_threads.len() {
        1 => format!("{name} (process {pid}), an ordinary thread that has"),
        count => format!("{count} ordinary threads such as {name} (process {pid}) that have"),
    };
    Some(format!(
        "packets of {interface} are taken from its queues by {threads_text} no CPU without a worker: above capacity the queues \
         overflow before the guard; give each a CPU of its own (taskset --cpu-list --pid CPU {pid}) or a real-time \
         priority above the workers' (chrt --fifo --pid 11 {pid}); docs/overload.md"
    ))
}

/// The threads that take packets from the queues of an interface (threaded NAPI, Linux 5.12), by their
/// names. The process ids of netlink's `napi-get` are those of the initial PID namespace.
fn napi_threads(interface: &str) -> Vec<(u32, String)> {
    // Before Linux 5.17, a thread's name has at most 15 bytes (`TASK_COMM_LEN`).
    let prefix: String = format!("napi/{interface}-").chars().take(15).collect();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let threads = pids.filter_map(|pid: u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        name.starts_with(&prefix).then(|| (pid, name.trim_end().to_owned()))
    });
    threads.collect()
}

/// Whether a thread has a real-time policy, so that it runs before ordinary threads: by field 41,
/// `policy` (proc_pid_stat(5)), in a line whose second field is a name in parentheses.
fn is_real_time(pid: u32) -> Option<bool> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, from_third) = stat.rsplit_once(") ")?;
    // SCHED_FIFO, SCHED_RR and SCHED_DEADLINE of include/uapi/linux/sched.h.
    Some(["1", "2", "6"].contains(&from_third.split(' ').nth(41 - 3)?))
}
