//! XPS that leaves out CPUs, puts many CPUs on one queue, or uses queues of another node.

use super::{TransmitNic, by_queue, sending, xps_files};
use crate::CpuSet;
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::HostView;

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
    check,
};

fn check(view: &HostView<'_>) -> Vec<RuleMatch> {
    sending(view).filter_map(|sending| of_interface(&sending)).collect()
}

fn of_interface(sending: &TransmitNic<'_>) -> Option<RuleMatch> {
    let xps = sending.xps()?;
    if xps.iter().all(|(_, cpus)| cpus.is_empty()) {
        return None;
    }
    let (severity, title) = every_queue_everywhere(sending, &xps)
        .or_else(|| crowded(sending, &xps))
        .or_else(|| left_out(sending, &xps))
        .or_else(|| far(sending, &xps))?;
    let matched = RuleMatch::new(severity, title)
        .evidence("CPUs by transmit queue", by_queue(&xps), xps_files(sending.interface()))
        .evidence("CPUs online", sending.cpus.to_string(), "/sys/devices/system/cpu/online");
    Some(sending.fix(matched, &xps))
}

/// Every queue has every CPU: the hash chooses, as without XPS.
fn every_queue_everywhere(sending: &TransmitNic<'_>, xps: &[(u32, &CpuSet)]) -> Option<(Severity, String)> {
    let everywhere = xps.iter().all(|(_, cpus)| sending.cpus.iter().all(|cpu| cpus.contains(cpu)));
    everywhere.then(|| {
        let (interface, queues) = (sending.interface(), xps.len());
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
fn crowded(sending: &TransmitNic<'_>, xps: &[(u32, &CpuSet)]) -> Option<(Severity, String)> {
    let machine = &sending.path.machine;
    let unused: Vec<Option<u32>> = xps
        .iter()
        .filter(|(_, cpus)| cpus.is_empty())
        .map(|(queue, _)| node_of_queue(sending, *queue))
        .collect();
    let alone =
        |cpu: &u32, queue: u32| xps.iter().all(|(other, cpus)| *other == queue || !cpus.contains(*cpu));
    let (queue, crowd, unused) = xps
        .iter()
        .map(|(queue, cpus)| {
            let crowd = || cpus.iter().filter(|cpu| sending.cpus.contains(*cpu) && alone(cpu, *queue));
            let is_near = |node: &&Option<u32>| {
                node.is_none()
                    || crowd().any(|cpu| machine.node_of(cpu).is_none_or(|own| **node == Some(own)))
            };
            (*queue, crowd().count(), unused.iter().filter(is_near).count())
        })
        .filter(|(_, crowd, unused)| *crowd > 1 && *unused > 0)
        .max_by_key(|(_, crowd, _)| *crowd)?;
    let severity = if crowd * 2 > sending.cpus.len() { Severity::Medium } else { Severity::Low };
    let title = format!(
        "{crowd} CPUs send by queue tx-{queue} of {}, while {unused} of its {} transmit queues are for no CPU",
        sending.interface(),
        xps.len()
    );
    Some((severity, title))
}

/// CPUs that are in no mask.
fn left_out(sending: &TransmitNic<'_>, xps: &[(u32, &CpuSet)]) -> Option<(Severity, String)> {
    let left: CpuSet =
        sending.cpus.iter().filter(|cpu| !xps.iter().any(|(_, cpus)| cpus.contains(*cpu))).collect();
    if left.is_empty() {
        return None;
    }
    let severity = if left.len() * 2 >= sending.cpus.len() { Severity::Medium } else { Severity::Low };
    let cpus = if left.len() == 1 { format!("CPU {left} is") } else { format!("CPUs {left} are") };
    let interface = sending.interface();
    Some((
        severity,
        format!(
            "{cpus} in the XPS mask of no transmit queue of {interface}: what they send goes by any queue"
        ),
    ))
}

/// CPUs whose only queue interrupts another node, although other queues interrupt their own node.
fn far(sending: &TransmitNic<'_>, xps: &[(u32, &CpuSet)]) -> Option<(Severity, String)> {
    let machine = &sending.path.machine;
    let queues: Vec<(u32, &CpuSet)> = xps
        .iter()
        .map(|(queue, cpus)| Some((node_of_queue(sending, *queue)?, *cpus)))
        .collect::<Option<_>>()?;
    let is_far = |cpu: &u32| {
        let Some(node) = machine.node_of(*cpu) else { return false };
        let own = queues.iter().any(|(other, _)| *other == node);
        let mut used = queues.iter().filter(|(_, cpus)| cpus.contains(*cpu)).peekable();
        own && used.peek().is_some() && used.all(|(other, _)| *other != node)
    };
    let far: CpuSet = sending.cpus.iter().filter(is_far).collect();
    if far.is_empty() {
        return None;
    }
    let title = format!(
        "{} of {} CPUs send by transmit queues of {} that interrupt another NUMA node, though queues interrupt their own",
        far.len(),
        sending.cpus.len(),
        sending.interface()
    );
    Some((Severity::Low, title))
}

/// `None` without an interrupt, or if the interrupt goes to several nodes.
fn node_of_queue(sending: &TransmitNic<'_>, queue: u32) -> Option<u32> {
    let machine = &sending.path.machine;
    let vectors = sending.path.irq.vectors(sending.interface());
    let cpus = vectors.iter().find(|vector| vector.transmit_queue == Some(queue))?.cpus()?;
    let mut nodes = cpus.iter().map(|cpu| machine.node_of(cpu));
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::super::tests::path;
    use super::*;
    use crate::Known;
    use crate::stage::PacketPath;
    use crate::stage::irq::{InterfaceVectors, IrqVector};
    use crate::stage::machine::NumaNode;

    fn found(path: &PacketPath) -> Vec<(Severity, String)> {
        check(&HostView::once(path)).into_iter().map(|matched| (matched.severity, matched.title)).collect()
    }

    #[test]
    fn a_queue_a_cpu_or_shared_evenly_is_right() {
        assert!(found(&path(4, &["0", "1", "2", "3"])).is_empty());
        assert!(found(&path(8, &["0-1", "2-3", "4-5", "6-7"])).is_empty());
        // virtio_net with more CPUs than queues (virtnet_set_affinity, Linux 6.18).
        assert!(found(&path(5, &["0-2", "3-4"])).is_empty());
        // With more queues than CPUs the rest is unused.
        assert!(found(&path(2, &["0", "1", "", ""])).is_empty());
        assert!(found(&path(4, &["", "", "", ""])).is_empty());
    }

    #[test]
    fn cpus_in_no_mask_are_named() {
        let mut masks = vec![String::new(); 16];
        for (queue, mask) in masks.iter_mut().enumerate() {
            *mask = queue.to_string();
        }
        let masks: Vec<&str> = masks.iter().map(String::as_str).collect();
        assert_eq!(
            found(&path(20, &masks)),
            [(
                Severity::Low,
                "CPUs 16-19 are in the XPS mask of no transmit queue of eth0: what they send goes by any queue".to_owned()
            )]
        );
        assert_eq!(found(&path(64, &masks))[0].0, Severity::Medium);
        let path = path(20, &masks);
        let changes = check(&HostView::once(&path)).remove(0).changes;
        let commands: Vec<_> =
            changes.iter().filter_map(|change| change.setting.command(&change.to)).collect();
        assert_eq!(commands.len(), 4);
        assert_eq!(commands[0], "echo 00010001 > /sys/class/net/eth0/queues/tx-0/xps_cpus");
    }

    #[test]
    fn many_cpus_on_one_queue_and_every_cpu_on_every_queue_are_named() {
        assert_eq!(
            found(&path(4, &["0-3", "", "", ""])),
            [(
                Severity::Medium,
                "4 CPUs send by queue tx-0 of eth0, while 3 of its 4 transmit queues are for no CPU"
                    .to_owned()
            )]
        );
        assert_eq!(
            found(&path(4, &["0-3"; 4])),
            [(
                Severity::Medium,
                "All 4 transmit queues of eth0 are for every CPU, which is as no XPS at all".to_owned()
            )]
        );
    }

    fn two_nodes(masks: &[&str], interrupts: &[u32]) -> PacketPath {
        let mut path = path(4, masks);
        let node = |node, cpus| NumaNode { node, cpus: CpuSet::from_list(cpus).expect("a list") };
        path.machine.nodes = Known::Value(vec![node(0, "0-1"), node(1, "2-3")]);
        let vector = |(cpu, queue): (&u32, u32)| IrqVector {
            irq: 40 + queue,
            name: format!("eth0-TxRx-{queue}"),
            receive_queue: Some(queue),
            transmit_queue: Some(queue),
            affinity: Known::Value([*cpu].into_iter().collect()),
            effective: Known::Value(None),
            hint: Known::Value(None),
            handled: Vec::new(),
            managed: Known::unknown("made up"),
        };
        let vectors = Known::Value(interrupts.iter().zip(0..).map(vector).collect());
        path.irq.interfaces = vec![InterfaceVectors { interface: "eth0".into(), vectors }];
        path
    }

    #[test]
    fn queues_that_interrupt_the_other_node_are_named() {
        let crossed = two_nodes(&["2", "3", "0", "1"], &[0, 1, 2, 3]);
        assert_eq!(
            found(&crossed),
            [(
                Severity::Low,
                "4 of 4 CPUs send by transmit queues of eth0 that interrupt another NUMA node, though queues interrupt \
                 their own"
                    .to_owned()
            )]
        );
        assert!(found(&two_nodes(&["0", "1", "2", "3"], &[0, 1, 2, 3])).is_empty());
        // All interrupts on one node is the finding of another rule, and no mask fixes it.
        assert!(found(&two_nodes(&["0", "1", "2", "3"], &[0, 1, 0, 1])).is_empty());
        // An unused queue of the other node is for no CPU of this one; an unused queue of this node
        // is.
        assert!(found(&two_nodes(&["0-1", "2", "3", ""], &[0, 2, 3, 2])).is_empty());
        assert_eq!(found(&two_nodes(&["0-1", "2", "3", ""], &[0, 2, 3, 1])).len(), 1);
    }
}
