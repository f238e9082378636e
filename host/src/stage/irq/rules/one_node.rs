//! All vectors of an interface on one of several NUMA nodes.

use std::collections::BTreeMap;

use super::super::IrqVector;
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
    check,
};

fn check(view: &HostView<'_>) -> Vec<RuleMatch> {
    super::each_interface(view, of_interface)
}

fn of_interface(view: &HostView<'_>, interface: &str) -> Option<RuleMatch> {
    let path = view.now;
    let usable = spread::usable_cpus(path)?;
    let nodes = path.machine.nodes.value()?;
    let with_cpus = nodes.iter().filter(|node| node.cpus.iter().any(|cpu| usable.contains(cpu))).count();
    let vectors = spread::receive_vectors(path, interface);
    if with_cpus < 2 || vectors.len() < 2 {
        return None;
    }
    let node = common_node(path, &vectors)?;
    let here = path.machine.cpus_of(node)?.iter().filter(|cpu| usable.contains(*cpu)).count();
    // If the vectors' node has a CPU per queue, they can stay there; RPS can use the other nodes.
    if vectors.len() <= here {
        return None;
    }
    let severity = match threads_beyond(path, node) {
        Some(0) => return None,
        _ if traffic::is_quiet(view, interface) => Severity::Note,
        // A single thread is itself the limit.
        Some(1) => Severity::Low,
        Some(_) => Severity::High,
        None => Severity::Medium,
    };
    let title = format!(
        "All {} receive queues of {interface} interrupt the {here} CPUs of NUMA node {node}, and the {} CPUs of the \
         other {} none",
        vectors.len(),
        usable.len() - here,
        if with_cpus == 2 { "node".to_owned() } else { format!("{} nodes", with_cpus - 1) },
    );
    let list: Vec<&IrqVector> = vectors.values().copied().collect();
    let matched = super::with_vectors(RuleMatch::new(severity, title), &list).evidence_by(
        "CPUs by NUMA node",
        nodes.iter().map(|node| (node.node, node.cpus.to_string())),
        "/sys/devices/system/node/node*/cpulist",
    );
    Some(super::fix_by_spread(matched, path, interface))
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
fn threads_beyond(path: &PacketPath, node: u32) -> Option<usize> {
    let serving = path.thread.serving.value().filter(|serving| !serving.is_empty())?;
    let here = path.machine.cpus_of(node)?;
    let beyond = serving.iter().filter(|thread| {
        thread.allowed.value().is_none_or(|allowed| allowed.iter().any(|cpu| !here.contains(cpu)))
    });
    Some(beyond.count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::irq::sample::{SampleMachine, cpus, path};
    use crate::stage::thread::{ServingEvidence, ServingThread};

    const TWO: SampleMachine<'_> = SampleMachine {
        nodes: &["0-1", "2-3"],
        cores: &[],
        isolated: "",
        nic_node: Some(0),
        vectors: &[0, 1, 1, 0],
        hints: Some(&[0, 1, 2, 3]),
        rps: &[],
        files: &[],
    };

    fn serving(allowed: &str, tid: u32) -> ServingThread {
        ServingThread {
            pid: 7,
            tid,
            name: "server".into(),
            sockets: vec![1],
            how: ServingEvidence::OnlyThread,
            takes_turns_at: None,
            allowed: Known::Value(cpus(allowed)),
            last_cpu: Known::Value(0),
            user_ticks: Known::Value(0),
            system_ticks: Known::Value(0),
        }
    }

    fn found(path: &PacketPath) -> Vec<RuleMatch> {
        check(&HostView::once(path))
    }

    #[test]
    fn more_queues_than_the_node_has_cpus_are_spread_over_both() {
        let mut path = path(&TWO);
        path.thread.serving = Known::Value(vec![serving("0-3", 7), serving("0-3", 8)]);
        let matched = found(&path).remove(0);
        assert_eq!(
            matched.title,
            "All 4 receive queues of eth0 interrupt the 2 CPUs of NUMA node 0, and the 2 CPUs of the other node none"
        );
        assert_eq!(matched.severity, Severity::High);
        assert_eq!(matched.evidence[0].value["101 eth0-TxRx-1"], "1");
        assert_eq!(matched.evidence[1].value["1"], "2-3");
        let changes: Vec<String> =
            matched.changes.iter().map(|change| format!("{} {}", change.setting, change.to)).collect();
        assert_eq!(
            changes,
            ["affinity of IRQ 102 (eth0-TxRx-2) 00000004", "affinity of IRQ 103 (eth0-TxRx-3) 00000008"]
        );
    }

    #[test]
    fn without_a_known_service_it_matters_less_and_a_service_of_that_node_is_well_served() {
        let mut path = path(&TWO);
        path.thread.serving = Known::unknown("not looked at");
        assert_eq!(found(&path)[0].severity, Severity::Medium);
        path.thread.serving = Known::Value(vec![serving("0-3", 7)]);
        assert_eq!(found(&path)[0].severity, Severity::Low);
        path.thread.serving = Known::Value(vec![serving("0-1", 7), serving("0", 8)]);
        assert!(found(&path).is_empty());
        let quiet =
            [("/proc/uptime", "1000.00 1.00\n"), ("/sys/class/net/eth0/statistics/rx_packets", "99000\n")];
        let path = crate::stage::irq::sample::path(&SampleMachine { files: &quiet, ..TWO });
        assert_eq!(found(&path)[0].severity, Severity::Note);
    }

    #[test]
    fn enough_cpus_on_the_nics_node_one_node_and_several_nodes_are_no_fault() {
        for machine in [
            SampleMachine { vectors: &[0, 1], ..TWO.clone() },
            SampleMachine { nodes: &["0-3"], ..TWO.clone() },
            SampleMachine { vectors: &[0, 1, 2, 3], ..TWO.clone() },
            SampleMachine { vectors: &[0], ..TWO.clone() },
            SampleMachine { vectors: &[], ..TWO.clone() },
            SampleMachine { isolated: "2-3", ..TWO.clone() },
        ] {
            assert!(found(&path(&machine)).is_empty(), "{machine:?}");
        }
    }
}
