//! Threads on other CPUs than their packets.

use crate::CpuSet;
use crate::finding::{CostUnit, Rule, RuleMatch, Severity};
use crate::stage::socket::{ServiceSockets, SteeringState};
use crate::stage::thread::ServingThread;
use crate::stage::{HostView, PacketPath};

pub(in crate::stage) const FAR_NODE: Rule = Rule {
    id: "thread.far-node",
    title: "Serving threads run on another NUMA node than their packets",
    why: "A packet is in the memory of the node on which its softirq ran. A thread on another node fetches \
          packets and locks across the link between the nodes.",
    effect: "1.4 million packets/s with everything on one node, 1.0 million with the threads on the other; \
             for one thread 360,000 and an unsteady 330,000.",
    published_ratio: Some(1.4),
    source: "M. Majkowski, How to receive a million packets per second (2015)",
    kernels: "all; since 6.18 a UDP socket has a receive queue per node, which reduces the cost",
    remedy: "Pin the threads to CPUs of the node on which packets are processed, or spread interrupts to the node of the threads too.",
    caveats: "The service needs the memory or the devices of that node more than it needs packets.",
    check: check_far_node,
};

pub(in crate::stage) const NOT_WITH_QUEUE: Rule = Rule {
    id: "thread.not-with-queue",
    title: "Threads of a reuseport group are pinned to CPUs by which no packet comes",
    why: "With a socket and a thread for each CPU, the packets of a CPU are best answered on that CPU: \
          nothing moves between caches and no other CPU takes the lock. A thread on a CPU without packets \
          gets those of other CPUs, and the CPUs with packets have no thread.",
    effect: "4.25 to 5.05 million transactions/s on 20 cores from having each thread on the CPU of its packets.",
    published_ratio: Some(1.19),
    source: "T. Makita, Boost UDP Transaction Performance (2016)",
    kernels: "all",
    remedy: "Pin the threads to the CPUs on which packets are processed, or bring packets to the threads by RPS or by the affinity of \
             interrupts.",
    caveats: "Threads are kept off the CPUs of softirq so that these cannot starve them under overload.",
    check: check_not_with_queue,
};

pub(in crate::stage) const ON_SIBLING: Rule = Rule {
    id: "thread.on-sibling",
    title: "A serving thread is pinned to the sibling of a CPU in softirq",
    why: "Two hardware threads of a core share its execution units and first caches. If softirq keeps one of \
          them busy, the server on the other gets the rest of the core, and slows softirq down.",
    effect: "200,000 packets/s on the sibling; 430,000 on the same CPU, but nothing under overload; 360,000 \
             on another core of the node.",
    published_ratio: Some(1.8),
    source: "M. Majkowski, How to receive a million packets per second (2015)",
    kernels: "all",
    remedy: "Pin the thread to another core of the same node, or with one socket per CPU to the CPU on which \
             its packets are processed.",
    caveats: "All cores are busy, and both siblings process packets: then hyper-threading gained 17 % in \
              total.",
    check: check_on_sibling,
};

fn check_far_node(view: &HostView<'_>) -> Vec<RuleMatch> {
    let path = view.now;
    let is_far = |thread: &ServingThread, receive_cpus: &CpuSet| {
        let own_nodes = thread.allowed.value().and_then(|cpus| nodes_of(path, cpus));
        let packet_nodes = nodes_of(path, receive_cpus);
        packet_nodes.zip(own_nodes).is_some_and(|(packet_nodes, own_nodes)| {
            own_nodes.iter().all(|node| !packet_nodes.contains(node))
        })
    };
    let describe = |receive_cpus: &CpuSet| {
        let nodes = nodes_of(path, receive_cpus).map_or_else(String::new, |nodes| nodes.to_string());
        format!("run on another node than node {nodes}, where packets are processed")
    };
    match_services(view, |_| Some(Severity::Medium), is_far, describe)
}

fn check_not_with_queue(view: &HostView<'_>) -> Vec<RuleMatch> {
    let path = view.now;
    let is_away = |thread: &ServingThread, receive_cpus: &CpuSet| {
        let Some(cpus) = pinned_cpu(thread) else { return false };
        lacks_packets(receive_cpus, cpus)
            && !has_busy_sibling(path, receive_cpus, cpus)
            && shares_node(path, receive_cpus, cpus)
    };
    let severity = |service: &ServiceSockets| match (service.sockets.len(), service.steering.value()) {
        (0 | 1, _) => None,
        (_, Some(Some(SteeringState::Cpu))) => Some(Severity::Medium),
        _ => Some(Severity::Low),
    };
    match_services(view, severity, is_away, |_| "are pinned to CPUs by which no packet comes".to_owned())
}

fn check_on_sibling(view: &HostView<'_>) -> Vec<RuleMatch> {
    let is_on_sibling = |thread: &ServingThread, receive_cpus: &CpuSet| {
        pinned_cpu(thread).is_some_and(|cpus| {
            lacks_packets(receive_cpus, cpus) && has_busy_sibling(view.now, receive_cpus, cpus)
        })
    };
    let description = "are pinned to the sibling of a CPU that processes packets, and to no other";
    match_services(view, |_| Some(Severity::Medium), is_on_sibling, |_| description.to_owned())
}

/// The services that matter and have threads for which `selects` is true, with the CPUs of their
/// packets.
fn match_services(
    view: &HostView<'_>,
    severity: impl Fn(&ServiceSockets) -> Option<Severity>,
    selects: impl Fn(&ServingThread, &CpuSet) -> bool,
    describe: impl Fn(&CpuSet) -> String,
) -> Vec<RuleMatch> {
    let match_service = |service: &ServiceSockets| {
        let (severity, receive_cpus) = (severity(service)?, view.receive_cpus(service)?);
        let threads = view.threads_of(service);
        let selected_threads: Vec<&ServingThread> =
            threads.iter().copied().filter(|thread| selects(thread, &receive_cpus)).collect();
        if selected_threads.is_empty() {
            return None;
        }
        let subject =
            format!("{} of {} threads of {}", selected_threads.len(), threads.len(), service.name());
        let rule_match = RuleMatch::new(severity, format!("{subject} {}", describe(&receive_cpus)))
            .costs_per(CostUnit::UdpDatagram)
            .evidence(
                "CPUs on which packets meet the stack",
                receive_cpus.to_string(),
                "IRQ affinity and rps_cpus of all queues",
            );
        Some(super::with_allowed_cpus(rule_match, &selected_threads))
    };
    let services = view.udp_services().filter(|service| view.matters(service));
    RuleMatch::joined(services.filter_map(match_service))
}

fn pinned_cpu(thread: &ServingThread) -> Option<&CpuSet> {
    thread.allowed.value().filter(|cpus| cpus.len() == 1)
}

fn lacks_packets(receive_cpus: &CpuSet, cpus: &CpuSet) -> bool {
    cpus.iter().all(|cpu| !receive_cpus.contains(cpu))
}

/// Whether a sibling of one of these CPUs processes packets.
fn has_busy_sibling(path: &PacketPath, receive_cpus: &CpuSet, cpus: &CpuSet) -> bool {
    let siblings = cpus.iter().filter_map(|cpu| path.machine.siblings_of(cpu));
    siblings.flat_map(CpuSet::iter).any(|cpu| receive_cpus.contains(cpu))
}

/// Whether packets are processed on the node of these CPUs; otherwise `thread.far-node` reports it.
/// True if nodes are unknown.
fn shares_node(path: &PacketPath, receive_cpus: &CpuSet, cpus: &CpuSet) -> bool {
    match (nodes_of(path, receive_cpus), nodes_of(path, cpus)) {
        (Some(packet_nodes), Some(thread_nodes)) => {
            thread_nodes.iter().any(|node| packet_nodes.contains(node))
        }
        _ => true,
    }
}

/// `None` if the node of a CPU is unknown.
fn nodes_of(path: &PacketPath, cpus: &CpuSet) -> Option<CpuSet> {
    cpus.iter().map(|cpu| path.machine.node_of(cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::socket::sample::{host, service, thread};

    fn pair(receive: &[u32], first_cpus: &str, second_cpus: &str) -> PacketPath {
        host(receive).with(service(2), vec![thread(51, 700, first_cpus), thread(52, 701, second_cpus)])
    }

    #[test]
    fn threads_on_a_node_without_packets_are_reported() {
        let path = pair(&[0, 1], "2", "1").with_nodes();
        assert_eq!(FAR_NODE.once(&path).len(), 1);
        assert!(NOT_WITH_QUEUE.once(&path).is_empty(), "reported by the other rule");
        assert!(FAR_NODE.once(&pair(&[0, 2], "2", "1").with_nodes()).is_empty());
        assert!(FAR_NODE.once(&pair(&[0, 1], "0-3", "0-3").with_nodes()).is_empty());
        assert!(FAR_NODE.once(&pair(&[0, 1], "2", "3")).is_empty(), "nodes are unknown");
        assert!(FAR_NODE.once(&pair(&[], "2", "3").with_nodes()).is_empty(), "queues are unknown");
    }

    #[test]
    fn threads_pinned_to_cpus_without_packets_are_reported() {
        let path = pair(&[0, 1], "0", "3");
        assert_eq!(NOT_WITH_QUEUE.once(&path).len(), 1);
        assert_eq!(NOT_WITH_QUEUE.once(&path)[0].severity, Severity::Low);
        let mut cpu_steered = path;
        cpu_steered.service().steering = Known::Value(Some(SteeringState::Cpu));
        assert_eq!(NOT_WITH_QUEUE.once(&cpu_steered)[0].severity, Severity::Medium);
        assert!(NOT_WITH_QUEUE.once(&pair(&[0, 3], "0", "3")).is_empty());
        assert!(NOT_WITH_QUEUE.once(&pair(&[0, 1], "0", "2-3")).is_empty(), "not pinned to one CPU");
    }

    #[test]
    fn a_single_thread_on_another_core_than_softirq_is_not_reported() {
        let path = host(&[0]).with(service(1), vec![thread(51, 700, "2")]).with_siblings();
        assert!(NOT_WITH_QUEUE.once(&path).is_empty() && ON_SIBLING.once(&path).is_empty());
    }

    #[test]
    fn loopback_services_are_not_checked_against_receive_queues() {
        let mut path = pair(&[0], "0", "3");
        assert_eq!(NOT_WITH_QUEUE.once(&path).len(), 1);
        path.service().local.set_ip([127, 0, 0, 1].into());
        assert!(NOT_WITH_QUEUE.once(&path).is_empty());
    }

    #[test]
    fn a_thread_pinned_to_the_sibling_of_a_softirq_cpu_is_reported() {
        let pinned_to = |receive: &[u32], cpu: &str| {
            host(receive).with(service(1), vec![thread(51, 700, cpu)]).with_siblings()
        };
        assert_eq!(ON_SIBLING.once(&pinned_to(&[0], "1")).len(), 1);
        assert!(ON_SIBLING.once(&pinned_to(&[0, 1], "1")).is_empty(), "both siblings process packets");
        assert!(ON_SIBLING.once(&pinned_to(&[0], "0")).is_empty());
        assert!(ON_SIBLING.once(&pinned_to(&[0], "0-1")).is_empty(), "the thread may run elsewhere");
        let mut quiet = pinned_to(&[0], "1");
        quiet.service().named = false;
        assert!(ON_SIBLING.once(&quiet).is_empty());
    }
}
