//! All vectors of an interface on one of several NUMA nodes.

use std::collections::BTreeMap;

use super::super::IrqVector;
use crate::CpuSet;
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::softirq::traffic;
use crate::stage::{HostView, PacketPath, spread};

pub(in crate::stage) const RULE: Rule = Rule {
    id: "irq.one-node",
    title: "All interrupts of an interface go to one NUMA node",
    why: "irqbalance and drivers prefer the node the NIC is on. With more receive queues than that node has \
          CPUs, several queues share each CPU of that node. These CPUs do nothing but softirqs, and the CPUs \
          of the other node get packets only through them.",
    effect: "This was the state at 270,000 transactions/s: the ten cores of one node did nothing but softirqs, those of the \
             other waited for them. All later steps, up to 7,010,000, need queues on all cores. By itself, spreading them \
             made matters worse (17,000) while all threads shared one socket.",
    published_ratio: None,
    source: "T. Makita, Boost UDP Transaction Performance, LinuxCon Japan 2016",
    kernels: "all",
    remedy: "Give each receive queue's vector a CPU of its own, over all nodes. First make other programs that set \
             affinities leave these alone.",
    caveats: super::CAVEATS,
    check: |view| super::check_interfaces(view, match_interface),
};

fn match_interface(view: &HostView<'_>, interface: &str) -> Option<RuleMatch> {
    let path = view.now;
    let usable = spread::usable_cpus(path)?;
    let nodes = path.machine.nodes.value()?;
    let node_count = nodes.iter().filter(|node| node.cpus.iter().any(|cpu| usable.contains(cpu))).count();
    let vectors = spread::receive_vectors(path, interface);
    if node_count < 2 || vectors.len() < 2 {
        return None;
    }
    let node = common_node(path, &vectors)?;
    let node_cpus = path.machine.cpus_of(node)?.iter().filter(|cpu| usable.contains(*cpu)).count();
    // If the vectors' node has a CPU per queue, they can stay there; RPS can use the other nodes.
    if vectors.len() <= node_cpus {
        return None;
    }
    let severity = match count_threads_beyond(path, node) {
        Some(0) => return None,
        _ if traffic::is_quiet(view, interface) => Severity::Note,
        // A single thread is itself the limit.
        Some(1) => Severity::Low,
        Some(_) => Severity::High,
        None => Severity::Medium,
    };
    let title = format!(
        "All {} receive queues of {interface} interrupt the {node_cpus} CPUs of NUMA node {node}, and the {} CPUs of the \
         other {} none",
        vectors.len(),
        usable.len() - node_cpus,
        if node_count == 2 { "node".to_owned() } else { format!("{} nodes", node_count - 1) },
    );
    let vector_list: Vec<&IrqVector> = vectors.values().copied().collect();
    let rule_match = super::with_vectors(RuleMatch::new(severity, title), &vector_list).evidence_by(
        "CPUs by NUMA node",
        nodes.iter().map(|node| (node.node, node.cpus.to_string())),
        "/sys/devices/system/node/node*/cpulist",
    );
    let cpus = vector_list.iter().filter_map(|vector| vector.cpus()).flat_map(CpuSet::iter);
    let rule_match = super::with_cost(rule_match, view, cpus);
    Some(super::add_spread_changes(rule_match, path, interface))
}

/// `None` if the vectors go to several nodes, or if a node is unknown.
fn common_node(path: &PacketPath, vectors: &BTreeMap<u32, &IrqVector>) -> Option<u32> {
    let mut common = None;
    for vector in vectors.values() {
        for cpu in vector.cpus()?.iter() {
            let node = path.machine.node_of(cpu)?;
            if *common.get_or_insert(node) != node {
                return None;
            }
        }
    }
    common
}

/// Number of serving threads that may also run on other nodes; `None` without known threads.
fn count_threads_beyond(path: &PacketPath, node: u32) -> Option<usize> {
    let threads = path.thread.serving.value().filter(|threads| !threads.is_empty())?;
    let node_cpus = path.machine.cpus_of(node)?;
    let movable_threads = threads.iter().filter(|thread| {
        thread.allowed.value().is_none_or(|allowed| allowed.iter().any(|cpu| !node_cpus.contains(cpu)))
    });
    Some(movable_threads.count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::irq::sample::{SampleMachine, path};
    use crate::stage::socket::sample::thread;

    const TWO_NODES: SampleMachine<'_> = SampleMachine {
        nodes: &["0-1", "2-3"],
        nic_node: Some(0),
        vectors: &[0, 1, 1, 0],
        hints: Some(&[0, 1, 2, 3]),
        ..SampleMachine::PLAIN
    };

    #[test]
    fn one_node_severity_depends_on_service_threads_and_traffic() {
        let mut path = path(&TWO_NODES);
        path.thread.serving = Known::unknown("not looked at");
        assert_eq!(RULE.once(&path)[0].severity, Severity::Medium);
        path.thread.serving = Known::Value(vec![thread(7, 1, "0-3")]);
        assert_eq!(RULE.once(&path)[0].severity, Severity::Low);
        path.thread.serving = Known::Value(vec![thread(7, 1, "0-1"), thread(8, 1, "0")]);
        assert!(RULE.once(&path).is_empty());
        let quiet =
            [("/proc/uptime", "1000.00 1.00\n"), ("/sys/class/net/eth0/statistics/rx_packets", "99000\n")];
        let path = crate::stage::irq::sample::path(&SampleMachine { files: &quiet, ..TWO_NODES });
        assert_eq!(RULE.once(&path)[0].severity, Severity::Note);
    }

    #[test]
    fn enough_cpus_a_single_node_or_queues_on_both_nodes_are_not_reported() {
        RULE.assert_none_on(&[
            SampleMachine { vectors: &[0, 1], ..TWO_NODES },
            SampleMachine { nodes: &["0-3"], ..TWO_NODES },
            SampleMachine { vectors: &[0, 1, 2, 3], ..TWO_NODES },
            SampleMachine { vectors: &[0], ..TWO_NODES },
            SampleMachine { vectors: &[], ..TWO_NODES },
            SampleMachine { isolated: "2-3", ..TWO_NODES },
        ]);
    }
}
