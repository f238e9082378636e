//! A server's only thread on the CPU that processes all packets.

use crate::CpuSet;
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::socket::ServiceSockets;
use crate::stage::softirq::traffic;
use crate::stage::spread;
use crate::stage::{HostView, PacketPath};

pub(in crate::stage) const RULE: Rule = Rule {
    id: "softirq.livelock-risk",
    title: "The server's only thread shares its CPUs with all softirqs",
    why: "Softirqs have priority over threads. When more packets come than the CPU can process, the softirq \
          fills the socket's buffer and the thread that should empty it does not run: the host is busy with \
          packets that it then drops, and answers almost none.",
    effect: "At five times its capacity, a server on the softirqs' CPU fell from 270,000 to 11,000 \
             transactions/s (4 %). Up to the limit the same CPU is the best place: 430 kpps, compared with \
             360 kpps on another core of the node.",
    published_ratio: None,
    source: "measured with a paced load in network namespaces on Linux 6.18; M. Majkowski, How to receive a million \
             packets per second, 2015",
    kernels: "all",
    remedy: "Let the thread run on another CPU of the same node too, or give the service more threads and \
             sockets on other CPUs. With threaded NAPI (Linux 5.12) the scheduler shares the CPU between \
             both. A server on linerate's engine can refuse early the requests that it could not answer in \
             time (serve --overload protect, docs/overload.md).",
    caveats: "The load can never exceed the capacity of the service.",
    check,
};

fn check(view: &HostView<'_>) -> Vec<RuleMatch> {
    let Some(usable) = spread::usable_cpus(view.now) else { return Vec::new() };
    RuleMatch::joined(view.udp_services().filter_map(|service| match_service(view, service, &usable)))
}

fn match_service(view: &HostView<'_>, service: &ServiceSockets, usable: &CpuSet) -> Option<RuleMatch> {
    let path = view.now;
    if service.local.ip().is_loopback() {
        return None;
    }
    let &[thread] = view.threads_of(service).as_slice() else { return None };
    let allowed = thread.allowed.value()?;
    let (interface, cpus) = path.link.iter().find_map(|link| {
        let cpus = path.softirq_cpus(&link.interface)?;
        (cpus == *allowed).then_some((link.interface.as_str(), cpus))
    })?;
    let other_cpus: CpuSet = usable.iter().filter(|cpu| !cpus.contains(*cpu)).collect();
    if other_cpus.is_empty() {
        return None;
    }
    let severity = if traffic::is_quiet(view, interface) { Severity::Low } else { Severity::High };
    let cpus_word = if cpus.len() == 1 { "CPU" } else { "CPUs" };
    let title = format!(
        "The only thread of {} on {} may run on {cpus_word} {allowed} only, where all packets of {interface} are processed",
        thread.name, service.local
    );
    let near_cpus = nearest_cpus(path, &other_cpus, &cpus);
    let status = format!("/proc/{}/task/{}/status", thread.pid, thread.tid);
    Some(
        RuleMatch::new(severity, title)
            .costs_packets_of(interface)
            .evidence("CPUs the thread may run on", allowed.to_string(), status)
            .evidence(
                format!("CPUs that process packets of {interface}"),
                cpus.to_string(),
                format!("/proc/irq/*/smp_affinity, {}", super::rps_files(interface)),
            )
            .command(format!("taskset -pc {near_cpus} {}", thread.tid)),
    )
}

/// The other CPUs of the same node, or all other CPUs.
fn nearest_cpus(path: &PacketPath, other_cpus: &CpuSet, cpus: &CpuSet) -> CpuSet {
    let node = cpus.iter().next().and_then(|cpu| path.machine.node_of(cpu));
    let near_cpus: CpuSet = other_cpus.iter().filter(|cpu| path.machine.node_of(*cpu) == node).collect();
    if near_cpus.is_empty() { other_cpus.clone() } else { near_cpus }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::irq::sample::{SampleMachine, path};
    use crate::stage::socket::SocketProtocol;
    use crate::stage::socket::sample::{service, thread};

    fn with_server(machine: &SampleMachine<'_>, local: &str, allowed: &[&str]) -> PacketPath {
        let mut path = path(machine);
        let local = local.parse().expect("an address");
        path.socket.services = Known::Value(vec![ServiceSockets { local, ..service(1) }]);
        let threads = (40..).zip(allowed).map(|(tid, allowed)| thread(tid, 700, allowed));
        path.thread.serving = Known::Value(threads.collect());
        path
    }

    #[test]
    fn movable_or_several_threads_and_spread_packets_are_no_livelock_risk() {
        let one_queue = SampleMachine { vectors: &[0], ..SampleMachine::PLAIN };
        for (machine, local, allowed) in [
            (one_queue.clone(), "0.0.0.0:53", &["0-3"][..]),
            (one_queue.clone(), "0.0.0.0:53", &["1"]),
            (one_queue.clone(), "0.0.0.0:53", &["0", "0"]),
            (one_queue.clone(), "127.0.0.1:53", &["0"]),
            (SampleMachine::PLAIN, "0.0.0.0:53", &["0"]),
            (SampleMachine::PLAIN, "0.0.0.0:53", &["0-3"]),
            (SampleMachine { rps: &["1-3"], ..one_queue.clone() }, "0.0.0.0:53", &["0"]),
            (SampleMachine { nodes: &["0"], ..one_queue.clone() }, "0.0.0.0:53", &["0"]),
            (
                SampleMachine { files: &[("/sys/class/net/eth0/threaded", "1\n")], ..one_queue.clone() },
                "0.0.0.0:53",
                &["0"],
            ),
        ] {
            assert!(RULE.once(&with_server(&machine, local, allowed)).is_empty(), "{machine:?}");
        }
    }

    #[test]
    fn livelock_risk_is_low_severity_at_low_traffic() {
        let files = [("/proc/uptime", "1000.0 1.0\n"), ("/sys/class/net/eth0/statistics/rx_packets", "5\n")];
        let machine = SampleMachine { vectors: &[0], files: &files, ..SampleMachine::PLAIN };
        let path = with_server(&machine, "0.0.0.0:53", &["0"]);
        assert_eq!(RULE.once(&path)[0].severity, Severity::Low);
    }

    #[test]
    fn a_thread_on_several_addresses_is_one_livelock_risk() {
        let mut path =
            with_server(&SampleMachine { vectors: &[0], ..SampleMachine::PLAIN }, "10.0.0.1:53", &["0"]);
        let other = ServiceSockets { local: ([10, 0, 0, 2], 53).into(), ..service(1) };
        let tcp = ServiceSockets { protocol: SocketProtocol::Tcp, ..other.clone() };
        path.socket.services.expect_mut().extend([other, tcp]);
        assert_eq!(RULE.once(&path).len(), 1);
        path.socket.services.expect_mut().drain(..2);
        assert!(RULE.once(&path).is_empty(), "TCP");
    }
}
