//! RPS to the second hardware thread of the queue's own core.

use std::collections::{BTreeMap, BTreeSet};

use crate::CpuSet;
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::PacketPath;
use crate::stage::spread;

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
    check: |view| super::check_interfaces(view, match_interface),
};

fn match_interface(path: &PacketPath, interface: &str) -> Option<RuleMatch> {
    let sibling_queues: BTreeMap<u32, (u32, CpuSet)> = path
        .softirq
        .rps_queues(interface)
        .iter()
        .filter_map(|item| Some((item.queue, sibling_targets(path, interface, item.queue)?)))
        .collect();
    let (first, (own_cpu, siblings)) = sibling_queues.iter().next()?;
    let mut free_cpus = free_cores(path)?;
    let severity = if free_cpus.is_empty() { Severity::Note } else { Severity::Low };
    let title = match (sibling_queues.len(), free_cpus.len()) {
        (1, 0) => format!("RPS of rx-{first} of {interface} shares CPU {own_cpu}'s core with CPU {siblings}"),
        (1, free) => format!(
            "RPS of rx-{first} of {interface} hands packets from CPU {own_cpu} to CPU {siblings} of the same core, while \
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
    let siblings_by_queue = sibling_queues.iter().map(|(queue, (own_cpu, siblings))| {
        (format!("rx-{queue}, polled on CPU {own_cpu}"), siblings.to_string())
    });
    let mut rule_match = RuleMatch::new(severity, title)
        .costs_packets_of(interface)
        .evidence_by("CPUs of RPS on the same core", siblings_by_queue, super::rps_files(interface))
        .evidence(
            "cores without packets",
            free_cpus.len(),
            "/sys/devices/system/cpu/cpu*/topology/thread_siblings_list",
        );
    for (queue, (own_cpu, siblings)) in &sibling_queues {
        let node = path.machine.node_of(*own_cpu);
        let Some(index) = free_cpus.iter().position(|cpu| path.machine.node_of(*cpu) == node) else {
            continue;
        };
        let new_target = free_cpus.remove(index);
        let targets = path.softirq.rps_cpus(interface, *queue)?;
        let to = targets.iter().filter(|cpu| !siblings.contains(*cpu)).chain([new_target]).collect();
        rule_match = super::with_rps(rule_match, path, interface, *queue, &to);
    }
    Some(rule_match)
}

/// The queue's CPU, and the RPS targets that share its core. `None` if several CPUs poll the queue.
fn sibling_targets(path: &PacketPath, interface: &str, queue: u32) -> Option<(u32, CpuSet)> {
    let own_cpu = path.irq.receive_vector(interface, queue)?.cpu()?;
    let core = path.machine.siblings_of(own_cpu)?;
    let targets = path.softirq.rps_cpus(interface, queue)?;
    let siblings: CpuSet = targets.iter().filter(|cpu| *cpu != own_cpu && core.contains(*cpu)).collect();
    (!siblings.is_empty()).then_some((own_cpu, siblings))
}

/// One CPU of each core without packets from any interface.
fn free_cores(path: &PacketPath) -> Option<Vec<u32>> {
    let usable = spread::usable_cpus(path)?;
    let mut used_cpus: BTreeSet<u32> = BTreeSet::new();
    for item in &path.softirq.rps {
        for queue in item.queues.value()? {
            used_cpus.extend(queue.cpus.value()?.iter());
            used_cpus.extend(path.napi_cpus(&item.interface, queue.queue).into_iter().flatten());
        }
    }
    let cores = path.machine.cores.value()?;
    let free = cores.iter().filter(|core| !core.iter().any(|cpu| used_cpus.contains(&cpu)));
    Some(free.filter_map(|core| core.iter().find(|cpu| usable.contains(*cpu))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::irq::sample::SampleMachine;

    const SMT: SampleMachine<'_> = SampleMachine {
        nodes: &["0-7"],
        cores: &["0,4", "1,5", "2,6", "3,7"],
        vectors: &[0, 1],
        rps: &["0,4", "1"],
        ..SampleMachine::PLAIN
    };

    #[test]
    fn rps_to_siblings_is_a_note_if_every_core_has_a_queue() {
        let machine = SampleMachine { vectors: &[0, 1, 2, 3], rps: &["0,4", "1,5", "2,6", "3,7"], ..SMT };
        let rule_match = RULE.on(&machine).remove(0);
        let title = "RPS of 4 receive queues of eth0 shares the core of each queue's CPU";
        assert_eq!(rule_match.summary(), (Severity::Note, title));
        assert!(rule_match.changes.is_empty());
    }

    #[test]
    fn rps_to_other_cores_or_without_smt_is_not_reported() {
        RULE.assert_none_on(&[
            SampleMachine { rps: &["0,2", "1,3"], ..SMT },
            SampleMachine { rps: &[], ..SMT },
            SampleMachine { cores: &[], rps: &["0,4", "1"], ..SMT },
            SampleMachine { vectors: &[], rps: &["0,4"], ..SMT },
        ]);
    }
}
