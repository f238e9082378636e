//! XPS that leaves out CPUs, puts many CPUs on one queue, or uses queues of another node.

use super::{TransmitNic, by_queue, transmit_nics, xps_files};
use crate::CpuSet;
use crate::finding::{Rule, RuleMatch, Severity};

pub(in crate::stage) const RULE: Rule = Rule {
    id: "transmit.xps-wrong",
    title: "XPS does not give the CPUs transmit queues of their own",
    why: "A CPU that is in no queue's mask sends by the hash of the flow, through the queues of other CPUs. \
          CPUs that share a queue while others are unused wait for its lock. If a CPU's queue interrupts \
          another node, its memory is freed on that node.",
    effect: "1,086,000 transactions/s without XPS, 5,050,000 with one queue per CPU, on 20 CPUs. A partly \
             wrong mask is between.",
    published_ratio: None,
    source: "T. Makita, Boost UDP Transaction Performance, LinuxCon Japan 2016; Documentation/networking/scaling.rst",
    kernels: "2.6.38 and later",
    remedy: "Give each CPU one queue that interrupts its own node, and use all queues.",
    caveats: "CPUs were left out because no sender runs on them, or classes of traffic have queues of their \
              own.",
    check: |view| transmit_nics(view).filter_map(|nic| match_interface(&nic)).collect(),
};

fn match_interface(nic: &TransmitNic<'_>) -> Option<RuleMatch> {
    let xps = nic.xps()?;
    if xps.iter().all(|(_, cpus)| cpus.is_empty()) {
        return None;
    }
    let (severity, title) = find_useless_masks(nic, &xps)
        .or_else(|| find_crowded_queue(nic, &xps))
        .or_else(|| find_uncovered_cpus(nic, &xps))
        .or_else(|| find_far_cpus(nic, &xps))?;
    let rule_match = RuleMatch::new(severity, title)
        .costs_packets_of(nic.interface())
        .evidence("CPUs by transmit queue", by_queue(&xps), xps_files(nic.interface()))
        .evidence("CPUs online", nic.cpus.to_string(), "/sys/devices/system/cpu/online");
    Some(nic.add_changes(rule_match, &xps))
}

/// Every queue has every CPU: the hash chooses, as without XPS.
fn find_useless_masks(nic: &TransmitNic<'_>, xps: &[(u32, &CpuSet)]) -> Option<(Severity, String)> {
    let is_everywhere = xps.iter().all(|(_, cpus)| nic.cpus.iter().all(|cpu| cpus.contains(cpu)));
    is_everywhere.then(|| {
        let (interface, queues) = (nic.interface(), xps.len());
        (
            Severity::Medium,
            format!(
                "All {queues} transmit queues of {interface} are for every CPU, which is as no XPS at all"
            ),
        )
    })
}

/// A queue has several CPUs while another queue, which could serve some of them, has none. A queue
/// that interrupts another node could not, because that is worse than sharing.
fn find_crowded_queue(nic: &TransmitNic<'_>, xps: &[(u32, &CpuSet)]) -> Option<(Severity, String)> {
    let machine = &nic.path.machine;
    let unused: Vec<Option<u32>> =
        xps.iter().filter(|(_, cpus)| cpus.is_empty()).map(|(queue, _)| node_of_queue(nic, *queue)).collect();
    let is_only_queue =
        |cpu: &u32, queue: u32| xps.iter().all(|(other, cpus)| *other == queue || !cpus.contains(*cpu));
    let (queue, crowd, unused) = xps
        .iter()
        .map(|(queue, cpus)| {
            let crowd = || cpus.iter().filter(|cpu| nic.cpus.contains(*cpu) && is_only_queue(cpu, *queue));
            let is_near = |node: &&Option<u32>| {
                node.is_none()
                    || crowd().any(|cpu| machine.node_of(cpu).is_none_or(|cpu_node| **node == Some(cpu_node)))
            };
            (*queue, crowd().count(), unused.iter().filter(is_near).count())
        })
        .filter(|(_, crowd, unused)| *crowd > 1 && *unused > 0)
        .max_by_key(|(_, crowd, _)| *crowd)?;
    let severity = if crowd * 2 > nic.cpus.len() { Severity::Medium } else { Severity::Low };
    let title = format!(
        "{crowd} CPUs send by queue tx-{queue} of {}, while {unused} of its {} transmit queues are for no CPU",
        nic.interface(),
        xps.len()
    );
    Some((severity, title))
}

/// CPUs that are in no mask.
fn find_uncovered_cpus(nic: &TransmitNic<'_>, xps: &[(u32, &CpuSet)]) -> Option<(Severity, String)> {
    let uncovered: CpuSet =
        nic.cpus.iter().filter(|cpu| !xps.iter().any(|(_, cpus)| cpus.contains(*cpu))).collect();
    if uncovered.is_empty() {
        return None;
    }
    let severity = if uncovered.len() * 2 >= nic.cpus.len() { Severity::Medium } else { Severity::Low };
    let cpus =
        if uncovered.len() == 1 { format!("CPU {uncovered} is") } else { format!("CPUs {uncovered} are") };
    let interface = nic.interface();
    Some((
        severity,
        format!(
            "{cpus} in the XPS mask of no transmit queue of {interface}: what they send goes by any queue"
        ),
    ))
}

/// CPUs whose only queue interrupts another node, although other queues interrupt their own node.
fn find_far_cpus(nic: &TransmitNic<'_>, xps: &[(u32, &CpuSet)]) -> Option<(Severity, String)> {
    let machine = &nic.path.machine;
    let queues: Vec<(u32, &CpuSet)> =
        xps.iter().map(|(queue, cpus)| Some((node_of_queue(nic, *queue)?, *cpus))).collect::<Option<_>>()?;
    let is_far = |cpu: &u32| {
        let Some(node) = machine.node_of(*cpu) else { return false };
        let has_near_queue = queues.iter().any(|(other, _)| *other == node);
        let mut cpu_queues = queues.iter().filter(|(_, cpus)| cpus.contains(*cpu)).peekable();
        has_near_queue && cpu_queues.peek().is_some() && cpu_queues.all(|(other, _)| *other != node)
    };
    let far_cpus: CpuSet = nic.cpus.iter().filter(is_far).collect();
    if far_cpus.is_empty() {
        return None;
    }
    let title = format!(
        "{} of {} CPUs send by transmit queues of {} that interrupt another NUMA node, though queues interrupt their own",
        far_cpus.len(),
        nic.cpus.len(),
        nic.interface()
    );
    Some((Severity::Low, title))
}

/// `None` without an interrupt, or if the interrupt goes to several nodes.
fn node_of_queue(nic: &TransmitNic<'_>, queue: u32) -> Option<u32> {
    let machine = &nic.path.machine;
    let vectors = nic.path.irq.vectors(nic.interface());
    let cpus = vectors.iter().find(|vector| vector.transmit_queue == Some(queue))?.cpus()?;
    let mut nodes = cpus.iter().map(|cpu| machine.node_of(cpu));
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::super::tests::path;
    use super::*;
    use crate::stage::irq::sample::vectors;
    use crate::stage::{HostView, PacketPath};

    fn matches(path: &PacketPath) -> Vec<(Severity, String)> {
        RULE.titles(&HostView::once(path))
    }

    #[test]
    fn one_queue_per_cpu_or_evenly_shared_queues_are_not_reported() {
        assert!(matches(&path(4, &["0", "1", "2", "3"])).is_empty());
        assert!(matches(&path(8, &["0-1", "2-3", "4-5", "6-7"])).is_empty());
        // virtio_net with more CPUs than queues (virtnet_set_affinity, Linux 6.18).
        assert!(matches(&path(5, &["0-2", "3-4"])).is_empty());
        // With more queues than CPUs the rest is unused.
        assert!(matches(&path(2, &["0", "1", "", ""])).is_empty());
        assert!(matches(&path(4, &["", "", "", ""])).is_empty());
    }

    #[test]
    fn cpus_in_no_xps_mask_are_named() {
        let mut masks = vec![String::new(); 16];
        for (queue, mask) in masks.iter_mut().enumerate() {
            *mask = queue.to_string();
        }
        let masks: Vec<&str> = masks.iter().map(String::as_str).collect();
        assert_eq!(
            matches(&path(20, &masks)),
            [(
                Severity::Low,
                "CPUs 16-19 are in the XPS mask of no transmit queue of eth0: what they send goes by any queue".to_owned()
            )]
        );
        assert_eq!(matches(&path(64, &masks))[0].0, Severity::Medium);
        let path = path(20, &masks);
        let commands = RULE.once(&path).remove(0).change_commands();
        assert_eq!(commands.len(), 4);
        assert_eq!(commands[0], "echo 00010001 > /sys/class/net/eth0/queues/tx-0/xps_cpus");
    }

    #[test]
    fn all_cpus_on_one_queue_or_on_every_queue_are_reported() {
        assert_eq!(
            matches(&path(4, &["0-3", "", "", ""])),
            [(
                Severity::Medium,
                "4 CPUs send by queue tx-0 of eth0, while 3 of its 4 transmit queues are for no CPU"
                    .to_owned()
            )]
        );
        assert_eq!(
            matches(&path(4, &["0-3"; 4])),
            [(
                Severity::Medium,
                "All 4 transmit queues of eth0 are for every CPU, which is as no XPS at all".to_owned()
            )]
        );
    }

    fn two_nodes(masks: &[&str], interrupts: &[u32]) -> PacketPath {
        let mut path = path(4, masks).with_nodes();
        path.irq.interfaces = vectors(40, interrupts);
        path
    }

    #[test]
    fn xps_queues_that_interrupt_another_numa_node_are_reported() {
        let crossed_nodes = two_nodes(&["2", "3", "0", "1"], &[0, 1, 2, 3]);
        assert_eq!(
            matches(&crossed_nodes),
            [(
                Severity::Low,
                "4 of 4 CPUs send by transmit queues of eth0 that interrupt another NUMA node, though queues interrupt \
                 their own"
                    .to_owned()
            )]
        );
        assert!(matches(&two_nodes(&["0", "1", "2", "3"], &[0, 1, 2, 3])).is_empty());
        // All interrupts on one node is the finding of another rule, and no mask fixes it.
        assert!(matches(&two_nodes(&["0", "1", "2", "3"], &[0, 1, 0, 1])).is_empty());
        // An unused queue of the other node is for no CPU of this one; an unused queue of this node
        // is.
        assert!(matches(&two_nodes(&["0-1", "2", "3", ""], &[0, 2, 3, 2])).is_empty());
        assert_eq!(matches(&two_nodes(&["0-1", "2", "3", ""], &[0, 2, 3, 1])).len(), 1);
    }
}
