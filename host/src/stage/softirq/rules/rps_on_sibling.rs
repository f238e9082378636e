//! RPS to the second hardware thread of the queue's own core.

use std::collections::{BTreeMap, BTreeSet};

use crate::CpuSet;
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::spread;
use crate::stage::{HostView, PacketPath};

pub(in crate::stage) const RULE: Rule = Rule {
    id: "softirq.rps-on-sibling",
    title: "RPS hands packets to the sibling of the queue's CPU",
    why: "Both hardware threads of a core share its execution units and first caches: work on the sibling slows the \
          queue's CPU down. While other cores have no packets, one of these is the better choice.",
    effect: "It depends on whether other cores are free. A receiver on the sibling got 200 kpps, one on \
             another core 360 kpps. But with all cores busy, RPS over both threads of each core gained 17 % \
             (6.01 to 7.01 M transactions/s).",
    published_ratio: Some(360.0 / 200.0),
    source: "M. Majkowski, How to receive a million packets per second, 2015; T. Makita, LinuxCon Japan 2016",
    kernels: "2.6.35 and later",
    remedy: "Hand packets to cores that have none before siblings; once all cores have packets, siblings are right.",
    caveats: "All cores have packets already, so only siblings are left.",
    check,
};

fn check(view: &HostView<'_>) -> Vec<RuleMatch> {
    let interfaces = view.now.softirq.rps.iter();
    interfaces.filter_map(|item| of_interface(view.now, &item.interface)).collect()
}

fn of_interface(path: &PacketPath, interface: &str) -> Option<RuleMatch> {
    let on_sibling: BTreeMap<u32, (u32, CpuSet)> = path
        .softirq
        .rps_queues(interface)
        .iter()
        .filter_map(|item| Some((item.queue, sibling_targets(path, interface, item.queue)?)))
        .collect();
    let (first, (own, siblings)) = on_sibling.iter().next()?;
    let mut free = free_cores(path)?;
    let severity = if free.is_empty() { Severity::Note } else { Severity::Low };
    let title = match (on_sibling.len(), free.len()) {
        (1, 0) => format!("RPS of rx-{first} of {interface} shares CPU {own}'s core with CPU {siblings}"),
        (1, free) => format!(
            "RPS of rx-{first} of {interface} hands packets from CPU {own} to CPU {siblings} of the same core, while \
             {free} {} none",
            if free == 1 { "core has" } else { "cores have" },
        ),
        (queues, 0) => {
            format!("RPS of {queues} receive queues of {interface} shares the core of each queue's CPU")
        }
        (queues, free) => format!(
            "RPS of {queues} receive queues of {interface} hands packets to the core they come from, while {free} {} none",
            if free == 1 { "core has" } else { "cores have" },
        ),
    };
    let shown = on_sibling
        .iter()
        .map(|(queue, (own, siblings))| (format!("rx-{queue}, polled on CPU {own}"), siblings.to_string()));
    let mut matched = RuleMatch::new(severity, title)
        .evidence_by("CPUs of RPS on the same core", shown, super::rps_files(interface))
        .evidence(
            "cores without packets",
            free.len(),
            "/sys/devices/system/cpu/cpu*/topology/thread_siblings_list",
        );
    for (queue, (own, siblings)) in &on_sibling {
        let node = path.machine.node_of(*own);
        let Some(at) = free.iter().position(|cpu| path.machine.node_of(*cpu) == node) else { continue };
        let better = free.remove(at);
        let now = path.softirq.rps_cpus(interface, *queue)?;
        let to = now.iter().filter(|cpu| !siblings.contains(*cpu)).chain([better]).collect();
        matched = super::with_rps(matched, path, interface, *queue, &to);
    }
    Some(matched)
}

/// The queue's CPU, and the RPS targets that share its core. `None` if several CPUs poll the queue.
fn sibling_targets(path: &PacketPath, interface: &str, queue: u32) -> Option<(u32, CpuSet)> {
    let own = path.irq.receive_vector(interface, queue)?.cpu()?;
    let core = path.machine.siblings_of(own)?;
    let targets = path.softirq.rps_cpus(interface, queue)?;
    let siblings: CpuSet = targets.iter().filter(|cpu| *cpu != own && core.contains(*cpu)).collect();
    (!siblings.is_empty()).then_some((own, siblings))
}

/// One CPU of each core without packets from any interface.
fn free_cores(path: &PacketPath) -> Option<Vec<u32>> {
    let usable = spread::usable_cpus(path)?;
    let mut taken: BTreeSet<u32> = BTreeSet::new();
    for item in &path.softirq.rps {
        for queue in item.queues.value()? {
            taken.extend(queue.cpus.value()?.iter());
            taken.extend(path.napi_cpus(&item.interface, queue.queue).into_iter().flatten());
        }
    }
    let cores = path.machine.cores.value()?;
    let free = cores.iter().filter(|core| !core.iter().any(|cpu| taken.contains(&cpu)));
    Some(free.filter_map(|core| core.iter().find(|cpu| usable.contains(*cpu))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::irq::sample::{SampleMachine, path};

    const SMT: SampleMachine<'_> = SampleMachine {
        nodes: &["0-7"],
        cores: &["0,4", "1,5", "2,6", "3,7"],
        isolated: "",
        nic_node: None,
        vectors: &[0, 1],
        hints: None,
        rps: &["0,4", "1"],
        files: &[],
    };

    fn found(machine: &SampleMachine<'_>) -> Vec<RuleMatch> {
        check(&HostView::once(&path(machine)))
    }

    #[test]
    fn a_core_without_packets_is_better_than_the_sibling() {
        let matched = found(&SMT).remove(0);
        assert_eq!(
            matched.title,
            "RPS of rx-0 of eth0 hands packets from CPU 0 to CPU 4 of the same core, while 2 cores have none"
        );
        assert_eq!(matched.severity, Severity::Low);
        let changes: Vec<String> =
            matched.changes.iter().map(|change| format!("{} {}", change.setting, change.to)).collect();
        assert_eq!(changes, ["eth0 rx-0/rps_cpus 00000005"]);
    }

    #[test]
    fn siblings_on_every_queue_with_all_cores_busy_are_only_noted() {
        let machine =
            SampleMachine { vectors: &[0, 1, 2, 3], rps: &["0,4", "1,5", "2,6", "3,7"], ..SMT.clone() };
        let matched = found(&machine).remove(0);
        assert_eq!(matched.severity, Severity::Note);
        assert_eq!(matched.title, "RPS of 4 receive queues of eth0 shares the core of each queue's CPU");
        assert!(matched.changes.is_empty());
    }

    #[test]
    fn other_cores_and_machines_without_siblings_are_no_fault() {
        for machine in [
            SampleMachine { rps: &["0,2", "1,3"], ..SMT.clone() },
            SampleMachine { rps: &[], ..SMT.clone() },
            SampleMachine { cores: &[], rps: &["0,4", "1"], ..SMT.clone() },
            SampleMachine { vectors: &[], rps: &["0,4"], ..SMT.clone() },
        ] {
            assert!(found(&machine).is_empty(), "{machine:?}");
        }
    }
}
