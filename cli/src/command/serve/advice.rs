//! Properties of a host that starve a server's workers above its capacity, or lose packets before
//! its guard. The server does not change them.

use std::collections::BTreeSet;

use linerate_engine::{OverloadPolicy, RunningServer};
use linerate_host::process::{allowed_cpus, processes};
use linerate_host::stage::softirq::InterfaceRps;
use linerate_host::stage::thread::TaskStat;
use linerate_host::{CpuSet, Host, Known, PacketPath, Scope};
use linerate_lab::visit;

/// Advice for the operator. Empty without an overload policy, and if sysfs shows the interfaces of
/// another network namespace.
pub(super) fn find(server: &RunningServer, overload: &OverloadPolicy) -> Vec<String> {
    if *overload == OverloadPolicy::default() || visit::shows_other_namespace() {
        return Vec::new();
    }
    let guard = overload.guard.as_ref();
    let named = guard.map_or(&[][..], |guard| &guard.interfaces);
    let interfaces = if named.is_empty() { server.interfaces() } else { named.to_vec() };
    if interfaces.is_empty() {
        return Vec::new();
    }
    // The workers already serve.
    let host = Host::live().gently();
    let port = Some(server.local_addr().port());
    let threads = server.thread_ids().iter().filter_map(|tid| u32::try_from(*tid).ok());
    let workers: Vec<CpuSet> = threads.filter_map(|tid| allowed_cpus(&host, tid).into_value()).collect();
    advice(&host, &Scope { interfaces, port, ..Scope::default() }, &workers, guard.is_some())
}

/// `workers` are the CPUs that each worker may run on.
fn advice(host: &Host, scope: &Scope, workers: &[CpuSet], has_guard: bool) -> Vec<String> {
    let path = PacketPath::observe(host, scope);
    let advice_of = |rps: &InterfaceRps| match rps.threaded {
        Known::Value(Some(true)) if has_guard => waiting_threads(host, &rps.interface, workers),
        _ => starved_workers(&path, &rps.interface, workers),
    };
    path.softirq.rps.iter().filter_map(advice_of).collect()
}

fn starved_workers(path: &PacketPath, interface: &str, workers: &[CpuSet]) -> Option<String> {
    // Unknown on a device without interrupts.
    let softirq_cpus = path.softirq_cpus(interface)?;
    let is_starved = |cpus: &&CpuSet| !cpus.is_empty() && cpus.iter().all(|cpu| softirq_cpus.contains(cpu));
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
    let threads = napi_threads(host, interface);
    // At most one thread per queue and direction: more threads belong to interfaces of this name in
    // other network namespaces.
    if threads.len() > host.list(&format!("/sys/class/net/{interface}/queues")).ok()?.len() {
        return None;
    }
    let is_waiting = |(pid, _): &&(u32, String)| {
        let cpus = allowed_cpus(host, *pid).into_value();
        cpus.is_some_and(|cpus| cpus.iter().all(|cpu| worker_cpus.contains(&cpu)))
            && TaskStat::of_process(host, *pid).is_ok_and(|stat| !stat.real_time)
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

/// The threads that take packets from the queues of an interface (threaded NAPI, Linux 5.12), by
/// their names. The process ids of netlink's `napi-get` are those of the initial PID namespace.
fn napi_threads(host: &Host, interface: &str) -> Vec<(u32, String)> {
    let all_processes = processes(host).into_value().unwrap_or_default().into_iter();
    let threads = all_processes.filter(|process| is_napi_thread(&process.comm, interface));
    threads.map(|process| (process.pid, process.comm)).collect()
}

fn is_napi_thread(name: &str, interface: &str) -> bool {
    let prefix = format!("napi/{interface}-");
    // Before Linux 5.17, a thread's name has at most 15 bytes (`TASK_COMM_LEN`).
    name.starts_with(&prefix) || name.len() == 15 && prefix.starts_with(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn napi_threads_are_matched_by_interface_name() {
        for (name, interface, expected) in [
            ("napi/eth0-266", "eth0", true),
            ("napi/eth0-266", "eth", false),
            ("napi/eth01-266", "eth0", false),
            ("napi/enp1s0f0v1-8", "enp1s0f0v1", true),
            ("napi/enp1s0f0v10-8", "enp1s0f0v1", false),
            ("napi/enp1s0f0np0-8", "enp1s0f0np1", false),
            // Cut to 15 bytes.
            ("napi/enp1s0f0np", "enp1s0f0np0", true),
            ("napi/enp1s0", "enp1s0f0np0", false),
        ] {
            assert_eq!(is_napi_thread(name, interface), expected, "{name} {interface}");
        }
    }

    const QUEUES: [(&str, &str); 4] = [
        ("sys/class/net/eth0/queues/rx-0/rps_cpus", "1"),
        ("sys/class/net/eth0/queues/rx-1/rps_cpus", "2"),
        ("sys/class/net/eth0/threaded", "0"),
        ("sys/class/net/eth0/ifindex", "2"),
    ];
    const THREADED: (&str, &str) = ("sys/class/net/eth0/threaded", "1");

    /// The advice on a host with `QUEUES` and these files, of which later ones replace earlier ones.
    fn advice_with(files: &[(&str, &str)], workers: &[&[u32]], has_guard: bool) -> Option<String> {
        let root = tempfile::tempdir().expect("a directory");
        for (file, value) in QUEUES.iter().chain(files) {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, format!("{value}\n")).expect("written");
        }
        let workers: Vec<CpuSet> = workers.iter().map(|cpus| cpus.iter().copied().collect()).collect();
        let scope = Scope { interfaces: vec!["eth0".to_owned()], ..Scope::default() };
        advice(&Host::captured(root.path()), &scope, &workers, has_guard).pop()
    }

    #[test]
    fn workers_that_have_only_cpus_of_softirqs_get_advice() {
        let unknown = ("sys/class/net/eth0/queues/rx-1/rps_cpus", "0");
        for (file, workers, expected) in [
            (QUEUES[0], &[&[0][..]][..], Some("the worker,")),
            (QUEUES[0], &[&[0], &[1]], Some("all 2 workers,")),
            (QUEUES[0], &[&[0, 1]], Some("the worker,")),
            (QUEUES[0], &[&[1], &[2], &[0, 2]], Some("1 of 3 workers,")),
            (QUEUES[0], &[&[2], &[3]], None),
            (unknown, &[&[0]], None),
            (THREADED, &[&[0]], None),
        ] {
            let text = advice_with(&[file], workers, false);
            let subject = text.as_deref().and_then(|text| text.split_once("of eth0 run on the CPUs of "));
            let is_expected = match expected {
                Some(expected) => subject.is_some_and(|(_, workers)| workers.starts_with(expected)),
                None => text.is_none(),
            };
            assert!(is_expected, "{file:?} {workers:?}: {text:?}");
        }
    }

    #[test]
    fn advice_names_ordinary_napi_threads_without_a_cpu_of_their_own() {
        let stat =
            |policy: u32| format!("812 (napi/eth0-266) S 2 {}17 1 {policy} {policy} 0", "0 ".repeat(33));
        let (ordinary, real_time) = (stat(0), stat(1));
        let on = |stat, cpus| {
            [
                THREADED,
                ("proc/812/comm", "napi/eth0-266"),
                ("proc/812/stat", stat),
                ("proc/812/status", cpus),
                ("sys/class/net/eth0/queues/tx-0/xps_cpus", "1"),
            ]
        };
        let anywhere = on(ordinary.as_str(), "Cpus_allowed_list:\t0-1");
        let text = advice_with(&anywhere, &[&[0], &[1]], true).expect("advice");
        assert!(text.contains("by napi/eth0-266 (process 812), an ordinary thread"), "{text}");
        assert_eq!(advice_with(&anywhere, &[&[0], &[1]], false), None, "no guard");
        assert_eq!(advice_with(&anywhere, &[&[0]], true), None, "CPU 1 has no worker");
        assert_eq!(advice_with(&anywhere, &[&[0, 1]], true), None, "one of both CPUs stays free");
        let first = on(real_time.as_str(), "Cpus_allowed_list:\t0-1");
        assert_eq!(advice_with(&first, &[&[0], &[1]], true), None, "it runs before the workers");
        // More threads than queues: their interface is ambiguous.
        let crowd: Vec<(String, &str)> = (812..816)
            .flat_map(|pid| {
                [("comm", "napi/eth0-266"), ("stat", &ordinary), ("status", "Cpus_allowed_list:\t0-1")]
                    .map(|(file, value)| (format!("proc/{pid}/{file}"), value))
            })
            .collect();
        let crowd: Vec<(&str, &str)> = crowd.iter().map(|(file, value)| (file.as_str(), *value)).collect();
        assert_eq!(advice_with(&[&[THREADED], &crowd[..]].concat(), &[&[0], &[1]], true), None);
    }
}
