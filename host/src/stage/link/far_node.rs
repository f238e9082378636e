//! Whether packets are processed on the NUMA node of their NIC.

use std::collections::BTreeSet;

use super::LinkState;
use crate::finding::{Rule, RuleMatch};
use crate::stage::irq::rules::add_spread_changes;
use crate::stage::thread::ServingThread;
use crate::stage::{HostView, spread};
use crate::{CpuSet, Severity};

pub(in crate::stage) const RULE: Rule = Rule {
    id: "link.far-node",
    title: "Packets are processed on another NUMA node than that of their NIC",
    why: "A NIC writes packets and descriptors into the memory or cache of its own node. CPUs of another \
          node fetch each over the interconnect, which costs about 40 ns more per cache miss.",
    effect: "1,000,000 to 1,400,000 packets/s when four receivers were moved to the NIC's node.",
    published_ratio: Some(1.4),
    source: "M. Majkowski, How to receive a million packets per second (2015)",
    kernels: "all",
    remedy: "Send the interrupts of its queues to CPUs of its node first, and have the service's threads run there; or let the \
             service listen on a NIC of the node it runs on.",
    caveats: "The CPUs of the NIC's node are kept for another NIC, or the service's threads are bound to the \
              other node. If irqbalance runs, first make it leave these interrupts alone, or it reverts the \
              change.",
    check: |view| view.links_up().filter_map(|link| match_interface(view, link)).collect(),
};

fn match_interface(view: &HostView<'_>, link: &LinkState) -> Option<RuleMatch> {
    let machine = &view.now.machine;
    let nic_node = link.node.value().copied().flatten()?;
    let node_cpus = machine.cpus_of(nic_node).filter(|cpus| !cpus.is_empty())?;
    let cpus = polling_cpus(view, link)?;
    let usable = spread::usable_cpus(view.now)?;
    let is_near = cpus.iter().any(|cpu| node_cpus.contains(cpu));
    // If all CPUs of its node are isolated, the interrupts are on another node on purpose.
    if cpus.is_empty() || is_near || !node_cpus.iter().any(|cpu| usable.contains(cpu)) {
        return None;
    }
    let nodes: BTreeSet<u32> = cpus.iter().map(|cpu| machine.node_of(cpu)).collect::<Option<_>>()?;
    if are_threads_bound(view, &nodes) {
        return None;
    }
    let node_names: Vec<String> = nodes.iter().map(u32::to_string).collect();
    let title = format!(
        "{} is on NUMA node {nic_node}, and the interrupts of its queues go to CPUs of node {} only",
        link.interface,
        node_names.join(" and ")
    );
    let rule_match = RuleMatch::new(Severity::Medium, title)
        .costs_packets_of(&link.interface)
        .evidence(
            "NUMA node of the NIC",
            nic_node,
            format!("/sys/class/net/{}/device/numa_node", link.interface),
        )
        .evidence("CPUs of its queues", cpus.to_string(), "/proc/irq/*/effective_affinity_list")
        .evidence(
            "CPUs of its node",
            node_cpus.to_string(),
            format!("/sys/devices/system/node/node{nic_node}/cpulist"),
        );
    Some(add_spread_changes(rule_match, view.now, &link.interface))
}

/// Whether the threads of all services that matter may run on these nodes only, so that their packets
/// belong there.
fn are_threads_bound(view: &HostView<'_>, nodes: &BTreeSet<u32>) -> bool {
    let services = view.udp_services().filter(|service| view.matters(service));
    let threads: Vec<&ServingThread> = services.flat_map(|service| view.threads_of(service)).collect();
    let is_inside = |cpu| view.now.machine.node_of(cpu).is_some_and(|node| nodes.contains(&node));
    let is_bound =
        |thread: &&ServingThread| thread.allowed.value().is_some_and(|allowed| allowed.iter().all(is_inside));
    !threads.is_empty() && threads.iter().all(is_bound)
}

/// The CPUs that poll the receive queues of the interface; `None` unless all CPUs are known.
fn polling_cpus(view: &HostView<'_>, link: &LinkState) -> Option<CpuSet> {
    let queues = *link.receive_queues.value()?;
    let cpu_sets = (0..queues).map(|queue| view.now.napi_cpus(&link.interface, queue));
    let cpu_sets: Option<Vec<CpuSet>> = cpu_sets.collect();
    cpu_sets.map(|sets| sets.into_iter().flat_map(CpuSet::into_iter).collect())
}
