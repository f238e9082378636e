//! Properties of a host that starve a server's workers above capacity, or lose packets before its
//! guard. The server does not change them.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::{OverloadPolicy, napi};
use crate::sys::interface::{self, NetDevice};

/// A setting of the host that harms a server above its capacity. The server does not change it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostAdvice {
    /// The property, and its effect on the server.
    pub what: String,
    /// The fix.
    pub remedy: String,
}

impl std::fmt::Display for HostAdvice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {}", self.what, self.remedy)
    }
}

/// The address, the policy and the threads of a server.
pub(crate) struct ServingThreads<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) overload: &'a OverloadPolicy,
    /// The CPUs that each worker may run on.
    pub(crate) workers: &'a [Vec<u32>],
    /// Whether workers poll the device themselves before its interrupts do.
    pub(crate) polls: bool,
}

// Advice for the operator. Empty without an overload policy.
pub(crate) fn find_advice(serving: &ServingThreads<'_>) -> Vec<HostAdvice> {
    if *serving.overload == OverloadPolicy::default() {
        return Vec::new();
    }
    let guard_interfaces = serving.overload.guard.as_ref().map_or(&[][..], |guard| &guard.interfaces);
    let devices = interface::interfaces().unwrap_or_default();
    // Packets of other hosts cannot harm a server whose clients are on the loopback interface only. With
    // a wildcard address, members of bonds and ports of bridges count, too, although they have none.
    let ip = serving.address.ip().to_canonical();
    let brings_requests = |device: &&NetDevice| match guard_interfaces {
        [] => device.up && !device.loopback && (ip.is_unspecified() || device.addresses.contains(&ip)),
        names => names.contains(&device.name),
    };
    let host = KernelSettings { sys: "/sys".into(), proc: "/proc".into() };
    let names = devices.iter().filter(brings_requests).map(|device| &device.name);
    let local_names = names.filter(|name| host.is_in_namespace(&devices, name));
    local_names.filter_map(|name| host.advice(name, serving)).collect()
}

// The folders in which the kernel shows its settings.
struct KernelSettings {
    sys: PathBuf,
    proc: PathBuf,
}

impl KernelSettings {
    fn interface_dir(&self, name: &str) -> PathBuf {
        self.sys.join("class/net").join(name)
    }

    /// Whether the interface with this name is in this network namespace: sysfs shows the
    /// interfaces of the namespace in which it was mounted.
    fn is_in_namespace(&self, devices: &[NetDevice], name: &str) -> bool {
        let Some(device) = devices.iter().find(|device| device.name == *name) else { return false };
        let Ok(mac) = device.mac() else { return false };
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        let folder = self.interface_dir(name);
        read_number(&folder.join("ifindex")) == Some(device.index.into())
            && read_text(&folder.join("address")).is_some_and(|address| address == mac)
    }

    fn advice(&self, name: &str, serving: &ServingThreads<'_>) -> Option<HostAdvice> {
        let folder = self.interface_dir(name);
        let setting = |file: &str| read_number(&folder.join(file)).unwrap_or(0);
        // 1: by threads; 2, Linux 6.18: by threads that poll.
        if setting("threaded") > 0 {
            return self.waiting_threads(name, serving);
        }
        let defers_interrupts = setting("napi_defer_hard_irqs") > 0 && setting("gro_flush_timeout") > 0;
        if defers_interrupts && serving.polls {
            return None;
        }
        let softirq_cpus = self.softirq_cpus(&folder)?;
        let starved_workers: Vec<usize> = serving
            .workers
            .iter()
            .enumerate()
            .filter(|(_, cpus)| !cpus.is_empty() && cpus.iter().all(|cpu| softirq_cpus.contains(cpu)))
            .map(|(worker, _)| worker)
            .collect();
        let workers_text = match (starved_workers.as_slice(), serving.workers.len()) {
            ([], _) => return None,
            ([_], 1) => "the worker".to_owned(),
            (starved_workers, worker_count) if starved_workers.len() == worker_count => {
                format!("all {worker_count} workers")
            }
            (starved_workers, worker_count) => format!("{} of {worker_count} workers", starved_workers.len()),
        };
        let path = folder.display();
        Some(HostAdvice {
            what: format!(
                "softirqs of {name} run on the CPUs of {workers_text}, and go first: above capacity no time is left to answer"
            ),
            remedy: format!(
                "with threaded NAPI the scheduler divides the CPU (echo 1 >{path}/threaded, Linux 5.12); see \
                 linerate doctor --explain softirq.livelock-risk, docs/overload.md"
            ),
        })
    }

    // A guard sees the packets that are taken from the device's queues. A thread that takes them
    // must not wait for the threads that the guard protects.
    fn waiting_threads(&self, name: &str, serving: &ServingThreads<'_>) -> Option<HostAdvice> {
        serving.overload.guard.as_ref()?;
        let threads = napi::list_threads(&self.proc, name);
        // At most one thread per queue and direction: more threads belong to interfaces of this
        // name in other network namespaces.
        if threads.len() > fs::read_dir(self.interface_dir(name).join("queues")).ok()?.count() {
            return None;
        }
        let worker_cpus: BTreeSet<u32> = serving.workers.iter().flatten().copied().collect();
        // Fewer workers, not pinned to one CPU each, leave some of these CPUs free.
        if serving.workers.len() < worker_cpus.len() {
            return None;
        }
        let is_waiting =
            |thread: &&napi::NapiThread| !thread.real_time && thread.cpus.is_subset(&worker_cpus);
        let waiting_threads: Vec<&napi::NapiThread> = threads.iter().filter(is_waiting).collect();
        let first_thread = waiting_threads.first()?;
        let threads_text = match waiting_threads.len() {
            1 => format!("{} (process {}), an ordinary thread that has", first_thread.name, first_thread.pid),
            thread_count => {
                format!(
                    "{thread_count} ordinary threads such as {} (process {}) that have",
                    first_thread.name, first_thread.pid
                )
            }
        };
        Some(HostAdvice {
            what: format!(
                "packets of {name} are taken from its queues by {threads_text} no CPU without a worker: above capacity the queues overflow \
                 before the guard"
            ),
            remedy: format!(
                "give each a CPU of its own (taskset --cpu-list --pid CPU {pid}) or a real-time priority above the workers' \
                 (chrt --fifo --pid 11 {pid}); docs/overload.md",
                pid = first_thread.pid
            ),
        })
    }

    // The CPUs that process the packets of an interface. `None` if any of them is unknown, as on a
    // device without interrupts.
    fn softirq_cpus(&self, folder: &Path) -> Option<BTreeSet<u32>> {
        let mut cpus = BTreeSet::new();
        let mut has_rps = true;
        for queue in fs::read_dir(folder.join("queues")).ok()?.flatten() {
            if !queue.file_name().to_string_lossy().starts_with("rx-") {
                continue;
            }
            let rps_cpus = parse_cpu_mask(&read_text(&queue.path().join("rps_cpus"))?)?;
            has_rps &= !rps_cpus.is_empty();
            cpus.extend(rps_cpus);
        }
        if !has_rps {
            cpus.extend(self.interrupted_cpus(folder)?);
        }
        Some(cpus).filter(|cpus| !cpus.is_empty())
    }

    fn interrupted_cpus(&self, folder: &Path) -> Option<BTreeSet<u32>> {
        // The interrupts of a virtio device belong to the device of its bus.
        let entries = ["device/msi_irqs", "device/../msi_irqs"].into_iter();
        let entries = entries.filter_map(|name| fs::read_dir(folder.join(name)).ok()).next()?;
        let queues = receive_queues(folder);
        let vectors: Vec<PathBuf> =
            entries.flatten().map(|vector| self.proc.join("irq").join(vector.file_name())).collect();
        let mut cpus = BTreeSet::new();
        let has_one_vector = vectors.len() == 1;
        for folder in vectors.iter().filter(|folder| has_one_vector || serves_queue(folder, queues)) {
            let allowed = napi::parse_cpu_list(&read_text(&folder.join("smp_affinity_list"))?)?;
            // One of the allowed CPUs, unless it is stale: without interrupt remapping it changes
            // with the next interrupt only.
            let effective = read_text(&folder.join("effective_affinity_list"))
                .and_then(|text| napi::parse_cpu_list(&text));
            let effective = effective.filter(|cpus| !cpus.is_empty() && cpus.is_subset(&allowed));
            cpus.extend(effective.unwrap_or(allowed));
        }
        Some(cpus)
    }
}

fn receive_queues(folder: &Path) -> usize {
    let queues = fs::read_dir(folder.join("queues")).into_iter().flatten().flatten();
    queues.filter(|queue| queue.file_name().to_string_lossy().starts_with("rx-")).count()
}

// Whether the vector is one of a receive queue, and not of link events, mailboxes or RDMA, by the
// name of its handler: the directory in `/proc/irq/N`.
fn serves_queue(folder: &Path, queues: usize) -> bool {
    let handlers = fs::read_dir(folder).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    let names = handlers.map(|entry| entry.file_name().to_string_lossy().to_lowercase());
    names.into_iter().any(|name| {
        let of_queue = ["rx-", "rxtx", "input", "fp-"].iter().any(|part| name.contains(part));
        // mlx5 has a completion vector per CPU; the first ones are of the queues.
        let completion = name.split_once("_comp").map(|(_, rest)| rest);
        let digits = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>();
        let number = completion.and_then(|rest| digits(rest).parse::<usize>().ok());
        (of_queue && !name.contains("fdir")) || number.is_some_and(|number| number < queues)
    })
}

fn read_text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn read_number(path: &Path) -> Option<u64> {
    read_text(path)?.parse().ok()
}

/// A mask such as `00000000,0000000f`.
fn parse_cpu_mask(text: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for (word, digits) in (0..).zip(text.rsplit(',')) {
        let bits = u32::from_str_radix(digits, 16).ok()?;
        cpus.extend((0..32).filter(|bit| bits & 1 << bit != 0).map(|bit| word * 32 + bit));
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    type AdviceTestResult = Result<(), Box<dyn std::error::Error>>;
    /// Files, CPUs of each worker, whether the workers poll, and the subject of the advice.
    type AdviceCase<'a> = (&'a [(&'a str, &'a str)], &'a [&'a [u32]], bool, Option<&'a str>);

    /// A host with `eth0`, of two queues: vector 30 on CPU 0, 31 on CPU 1.
    fn host(files: &[(&str, &str)]) -> std::io::Result<(tempfile::TempDir, KernelSettings)> {
        let root = tempfile::tempdir()?;
        let usual = [
            ("sys/class/net/eth0/threaded", "0"),
            ("sys/class/net/eth0/queues/rx-0/rps_cpus", "00000000,00000000"),
            ("sys/class/net/eth0/queues/rx-1/rps_cpus", "00000000,00000000"),
            ("sys/class/net/eth0/queues/tx-0/xps_cpus", "1"),
            ("sys/class/net/eth0/device/msi_irqs/30", "msix"),
            ("sys/class/net/eth0/device/msi_irqs/31", "msix"),
            ("proc/irq/30/eth0-TxRx-0/spurious", ""),
            ("proc/irq/31/eth0-TxRx-1/spurious", ""),
            ("proc/irq/30/smp_affinity_list", "0-3"),
            ("proc/irq/30/effective_affinity_list", "0"),
            ("proc/irq/31/smp_affinity_list", "1"),
        ];
        for (file, value) in usual.iter().chain(files) {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap_or(root.path()))?;
            fs::write(path, format!("{value}\n"))?;
        }
        let host = KernelSettings { sys: root.path().join("sys"), proc: root.path().join("proc") };
        Ok((root, host))
    }

    fn advice_text(
        files: &[(&str, &str)],
        workers: &[&[u32]],
        polls: bool,
    ) -> Result<Option<String>, std::io::Error> {
        let (_root, host) = host(files)?;
        let overload = OverloadPolicy::protect();
        let workers: Vec<Vec<u32>> = workers.iter().map(|cpus| cpus.to_vec()).collect();
        let address = SocketAddr::from(([192, 0, 2, 1], 53));
        let serving = ServingThreads { address, overload: &overload, workers: &workers, polls };
        Ok(host.advice("eth0", &serving).map(|advice| advice.what))
    }

    #[test]
    fn workers_that_have_only_cpus_of_softirqs_get_advice() -> AdviceTestResult {
        let rps = |mask| {
            [
                ("sys/class/net/eth0/queues/rx-0/rps_cpus", mask),
                ("sys/class/net/eth0/queues/rx-1/rps_cpus", mask),
            ]
        };
        let steered = rps("00000001,00000000");
        let one_steered = &rps("4")[..1];
        let threaded = [("sys/class/net/eth0/threaded", "1")];
        let deferred = [
            ("sys/class/net/eth0/napi_defer_hard_irqs", "2"),
            ("sys/class/net/eth0/gro_flush_timeout", "200000"),
        ];
        // Vectors on CPU 2 that are not of a queue.
        let vector = |name| {
            [
                ("sys/class/net/eth0/device/msi_irqs/32", "msix"),
                ("proc/irq/32/smp_affinity_list", "2"),
                (name, ""),
            ]
        };
        let misc = vector("proc/irq/32/ice-0000:3b:00.0:misc/spurious");
        let rdma = vector("proc/irq/32/mlx5_comp2@pci:0000:3b:00.0/spurious");
        let cases: &[AdviceCase<'_>] = &[
            (&[], &[&[0]], false, Some("the worker,")),
            (&[], &[&[0], &[1]], false, Some("all 2 workers,")),
            (&[], &[&[0, 1]], false, Some("the worker,")),
            (&[], &[&[1], &[2], &[0, 2]], false, Some("1 of 3 workers,")),
            (&[], &[&[2], &[3]], false, None),
            // CPUs of RPS replace those of interrupts only if all queues use RPS.
            (&steered, &[&[0]], false, None),
            (&steered, &[&[32]], false, Some("the worker,")),
            (one_steered, &[&[1]], false, Some("the worker,")),
            (&threaded, &[&[0]], false, None),
            (&misc, &[&[2]], false, None),
            (&misc, &[&[2], &[0]], false, Some("1 of 2 workers,")),
            (&rdma, &[&[2]], false, None),
            // Without polling, the softirqs of the timer remain.
            (&deferred, &[&[0]], true, None),
            (&deferred, &[&[0]], false, Some("the worker,")),
        ];
        for (files, workers, polls, expected) in cases {
            let text = advice_text(files, workers, *polls)?;
            let subject = text.as_deref().and_then(|text| text.split_once("of eth0 run on the CPUs of "));
            let is_expected = match expected {
                Some(expected) => subject.is_some_and(|(_, workers)| workers.starts_with(expected)),
                None => text.is_none(),
            };
            assert!(is_expected, "{files:?} {workers:?} {polls}: {text:?}");
        }
        Ok(())
    }

    #[test]
    fn advice_names_ordinary_napi_threads_without_a_cpu_of_their_own() -> AdviceTestResult {
        let thread = |policy: u32| {
            format!("812 (napi/eth0-266) S 2 {}17 1 {policy} {policy} 0 0 0 0 0 0 0 0 0 0 0", "0 ".repeat(33))
        };
        let (ordinary, real_time) = (thread(0), thread(1));
        let host_with = |stat, cpus| {
            [
                ("sys/class/net/eth0/threaded", "1"),
                ("proc/812/comm", "napi/eth0-266"),
                ("proc/812/stat", stat),
                ("proc/812/status", cpus),
            ]
        };
        let anywhere = host_with(ordinary.as_str(), "Cpus_allowed_list:\t0-1");
        let text = advice_text(&anywhere, &[&[0], &[1]], false)?.ok_or("no advice")?;
        assert!(text.contains("by napi/eth0-266 (process 812), an ordinary thread"), "{text}");
        assert!(advice_text(&anywhere, &[&[0]], false)?.is_none(), "CPU 1 has no worker");
        assert!(advice_text(&anywhere, &[&[0, 1]], false)?.is_none(), "one of both CPUs stays free");
        assert!(advice_text(&anywhere, &[&[0, 1], &[0, 1]], false)?.is_some());
        let first = host_with(real_time.as_str(), "Cpus_allowed_list:\t0-1");
        assert!(
            advice_text(&first, &[&[0], &[1]], false)?.is_none(),
            "a real-time thread runs before the workers"
        );
        // The interface of these threads is ambiguous.
        let crowd: Vec<(String, &str)> = (812..816)
            .flat_map(|pid| {
                [("comm", "napi/eth0-266"), ("stat", &ordinary), ("status", "Cpus_allowed_list:\t0")]
                    .map(|(file, value)| (format!("proc/{pid}/{file}"), value))
            })
            .collect();
        let mut files = vec![("sys/class/net/eth0/threaded", "1")];
        files.extend(crowd.iter().map(|(file, value)| (file.as_str(), *value)));
        assert!(advice_text(&files, &[&[0]], false)?.is_none());
        assert!(advice_text(&files[..4], &[&[0]], false)?.is_some());
        Ok(())
    }

    #[test]
    fn softirq_cpus_are_unknown_without_device_interrupts() -> AdviceTestResult {
        let (root, host) = host(&[])?;
        fs::remove_dir_all(root.path().join("sys/class/net/eth0/device"))?;
        assert_eq!(host.softirq_cpus(&host.interface_dir("eth0")), None);
        Ok(())
    }

    #[test]
    fn no_advice_without_an_overload_policy_or_on_loopback() -> AdviceTestResult {
        let workers = [vec![0]];
        for (overload, address) in
            [(OverloadPolicy::default(), "0.0.0.0:53"), (OverloadPolicy::protect(), "127.0.0.1:53")]
        {
            let address = address.parse()?;
            assert_eq!(
                find_advice(&ServingThreads {
                    address,
                    overload: &overload,
                    workers: &workers,
                    polls: false
                }),
                []
            );
        }
        Ok(())
    }
}
