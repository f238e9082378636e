//! RPS to another NUMA node.

use std::collections::{BTreeMap, BTreeSet};

use crate::CpuSet;
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::PacketPath;
use crate::stage::spread;

pub(in crate::stage) const RULE: Rule = Rule {
    id: "softirq.rps-crosses-node",
    title: "RPS hands packets to CPUs of another NUMA node",
    why: "The packet's buffers are in the memory and caches of the queue's node. A CPU of another node \
          fetches each line over the link between nodes.",
    effect: "A receiver on the other node got an unsteady 330 kpps, one on the same node 360 kpps. A cache \
             line from the other node costs about 40 ns more.",
    published_ratio: Some(360.0 / 330.0),
    source: "M. Majkowski, How to receive a million packets per second, 2015; Documentation/networking/scaling.rst",
    kernels: "2.6.35 and later",
    remedy: "Hand packets on only to CPUs of the queue's own node, and give each node queues of its own.",
    caveats: "The NIC has fewer queues than there are nodes, and the other nodes' CPUs are needed for packets.",
    check: |view| super::check_interfaces(view, match_interface),
};

fn match_interface(path: &PacketPath, interface: &str) -> Option<RuleMatch> {
    let reached_queues = spread::reached_queues(path, interface)?;
    // Node of each queue's CPU.
    let nodes: BTreeMap<u32, u32> = path
        .softirq
        .rps_queues(interface)
        .iter()
        .filter(|item| reached_queues.contains(&item.queue))
        .filter_map(|item| Some((item.queue, common_node(path, &path.napi_cpus(interface, item.queue)?)?)))
        .collect();
    let crossing_queues: BTreeMap<u32, (u32, &CpuSet)> = nodes
        .iter()
        .filter_map(|(queue, node)| Some((*queue, (*node, path.softirq.rps_cpus(interface, *queue)?))))
        .filter(|(_, (node, cpus))| cpus.iter().any(|cpu| is_on_other_node(path, cpu, *node)))
        .collect();
    let (first, (node, cpus)) = crossing_queues.iter().next()?;
    let title = if crossing_queues.len() == 1 {
        format!(
            "RPS of rx-{first} of {interface}, which is polled on NUMA node {node}, hands packets to CPUs {cpus}"
        )
    } else {
        format!(
            "RPS of {} receive queues of {interface} hands packets to another NUMA node",
            crossing_queues.len()
        )
    };
    let usable = spread::usable_cpus(path)?;
    let queue_nodes: BTreeSet<u32> = nodes.values().copied().collect();
    let is_fixable =
        usable.iter().all(|cpu| path.machine.node_of(cpu).is_some_and(|node| queue_nodes.contains(&node)));
    let severity = if is_fixable { Severity::Low } else { Severity::Note };
    let cpus_by_queue = crossing_queues
        .iter()
        .map(|(queue, (node, cpus))| (format!("rx-{queue}, polled on node {node}"), cpus.to_string()));
    let mut rule_match = RuleMatch::new(severity, title).costs_packets_of(interface).evidence_by(
        "CPUs of RPS",
        cpus_by_queue,
        super::rps_files(interface),
    );
    if is_fixable {
        for (queue, (node, cpus)) in &crossing_queues {
            let near_cpus: CpuSet = cpus.iter().filter(|cpu| !is_on_other_node(path, *cpu, *node)).collect();
            rule_match = super::with_rps(rule_match, path, interface, *queue, &near_cpus);
        }
    }
    Some(rule_match)
}

fn is_on_other_node(path: &PacketPath, cpu: u32, node: u32) -> bool {
    path.machine.node_of(cpu).is_some_and(|other| other != node)
}

fn common_node(path: &PacketPath, cpus: &CpuSet) -> Option<u32> {
    let nodes: BTreeSet<u32> = cpus.iter().map(|cpu| path.machine.node_of(cpu)).collect::<Option<_>>()?;
    nodes.first().copied().filter(|_| nodes.len() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::irq::sample::SampleMachine;

    #[test]
    fn rps_is_limited_to_the_queue_node_if_each_node_has_a_queue() {
        let machine = SampleMachine {
            nodes: &["0-1", "2-3"],
            vectors: &[0, 2],
            rps: &["0-3", "2-3"],
            ..SampleMachine::PLAIN
        };
        let rule_match = RULE.on(&machine).remove(0);
        let title = "RPS of rx-0 of eth0, which is polled on NUMA node 0, hands packets to CPUs 0-3";
        assert_eq!(rule_match.summary(), (Severity::Low, title));
        assert_eq!(rule_match.change_texts(), ["eth0 rx-0/rps_cpus 00000003"]);
        let both_queues = SampleMachine { rps: &["2", "0"], ..machine };
        let rule_match = RULE.on(&both_queues).remove(0);
        assert_eq!(rule_match.title, "RPS of 2 receive queues of eth0 hands packets to another NUMA node");
        assert_eq!(rule_match.change_texts(), ["eth0 rx-0/rps_cpus 00000000", "eth0 rx-1/rps_cpus 00000000"]);
    }

    #[test]
    fn rps_to_a_node_without_queues_is_a_note() {
        let machine =
            SampleMachine { nodes: &["0-1", "2-3"], vectors: &[0], rps: &["0-3"], ..SampleMachine::PLAIN };
        let rule_match = RULE.on(&machine).remove(0);
        assert_eq!(rule_match.severity, Severity::Note);
        assert!(rule_match.changes.is_empty());
    }

    #[test]
    fn rps_within_a_node_or_off_is_not_reported() {
        RULE.assert_none_on(&[
            SampleMachine { rps: &["0-3", "0-3", "0-3", "0-3"], ..SampleMachine::PLAIN },
            SampleMachine {
                nodes: &["0-1", "2-3"],
                vectors: &[0, 2],
                rps: &["0-1", "2-3"],
                ..SampleMachine::PLAIN
            },
            SampleMachine { nodes: &["0-1", "2-3"], vectors: &[0, 2], ..SampleMachine::PLAIN },
            SampleMachine { nodes: &["0-1", "2-3"], vectors: &[], rps: &["0-3"], ..SampleMachine::PLAIN },
        ]);
    }
}
