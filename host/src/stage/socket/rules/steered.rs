//! The choice of a socket in a reuseport group by CPU or program.

use crate::finding::{CostUnit, Rule, RuleMatch, Severity};
use crate::stage::HostView;
use crate::stage::socket::{ServiceSockets, SocketState, SteeringState};

pub(in crate::stage) const NOT_STEERED: Rule = Rule {
    id: "socket.not-steered",
    title: "A reuseport group is chosen from by hash, not by CPU",
    why: "The kernel picks a socket of the group by a hash of addresses and ports. NIC and kernel hash \
          differently, so two CPUs in softirq have packets for the same socket and wait for its lock, and a \
          thread gets packets from another CPU's cache. A program attached with SO_ATTACH_REUSEPORT_CBPF \
          that returns the CPU number picks the socket of that CPU, and no socket is shared.",
    effect: "2.54 to 4.25 million transactions/s on 20 cores.",
    published_ratio: Some(1.67),
    source: "T. Makita, Boost UDP Transaction Performance (2016)",
    kernels: "4.5 and later for UDP, 4.6 for TCP; without a program, by SO_INCOMING_CPU, 6.2 and later",
    remedy: "Let the server attach a program by CPU to its group (SO_ATTACH_REUSEPORT_CBPF; the library's \
             steer module does it), or set SO_INCOMING_CPU on each socket, and pin a thread to each CPU.",
    caveats: "Packets of a flow must stay with a socket while interrupts move, for example for QUIC without \
              a program of its own, or there are fewer sockets than CPUs that receive.",
    check: check_not_steered,
};

pub(in crate::stage) const MISMATCH: Rule = Rule {
    id: "socket.steering-mismatch",
    title: "A socket gets the packets of one CPU, and its thread runs on another",
    why: "SO_INCOMING_CPU marks a socket for packets processed on one CPU. This helps only if the thread of \
          the socket runs on that CPU too, and if packets are processed there at all.",
    effect: "4.25 to 5.05 million transactions/s on 20 cores from running each thread on the CPU of its socket.",
    published_ratio: Some(1.19),
    source: "T. Makita, Boost UDP Transaction Performance (2016)",
    kernels: "6.2 and later, which use SO_INCOMING_CPU in a reuseport group",
    remedy: "Pin the thread of each socket to the CPU of its SO_INCOMING_CPU.",
    caveats: "The thread is kept off that CPU on purpose, for example because softirq alone fills it.",
    check: check_mismatch,
};

fn check_not_steered(view: &HostView<'_>) -> Vec<RuleMatch> {
    let online = view.now.machine.online.value().map_or(1, crate::CpuSet::len);
    let is_by_hash = |service: &&ServiceSockets| {
        service.steering.value() == Some(&Some(SteeringState::Hash)) && online > 1 && view.matters(service)
    };
    let build_match = |service: &ServiceSockets| {
        let count = service.sockets.len();
        let title = format!("{} chooses among its {count} sockets by hash, not by CPU", service.name());
        RuleMatch::new(Severity::Medium, title)
            .costs_per(CostUnit::UdpDatagram)
            .evidence("sockets of the group", count, service.read_from.clone())
            .evidence("program that chooses", "none", "BPF iterator over UDP sockets")
    };
    view.udp_services().filter(is_by_hash).map(build_match).collect()
}

fn check_mismatch(view: &HostView<'_>) -> Vec<RuleMatch> {
    let services = view.udp_services().filter(|service| service.sockets.len() > 1 && view.matters(service));
    services.filter_map(|service| match_mismatch(view, service)).collect()
}

fn match_mismatch(view: &HostView<'_>, service: &ServiceSockets) -> Option<RuleMatch> {
    let receive_cpus = view.receive_cpus(service);
    let mut rule_match = RuleMatch::new(Severity::Medium, String::new()).costs_per(CostUnit::UdpDatagram);
    let (mut misplaced_count, mut silent_count) = (0, 0);
    for socket in &service.sockets {
        let Some(cpu) = socket.incoming_cpu() else { continue };
        let read_from = || format!("SO_INCOMING_CPU of socket {}", socket.inode);
        if receive_cpus.as_ref().is_some_and(|cpus| !cpus.contains(cpu)) {
            silent_count += 1;
            rule_match =
                rule_match.evidence("CPU a socket asks for, by which no packet comes", cpu, read_from());
        } else if let Some((tid, allowed)) = find_misplaced_thread(view, socket, cpu) {
            misplaced_count += 1;
            rule_match = rule_match
                .evidence(format!("CPU the socket of thread {tid} asks for"), cpu, read_from())
                .evidence(format!("CPUs thread {tid} may run on"), allowed, "/proc/PID/task/TID/status")
                .command(format!("taskset -pc {cpu} {tid}"));
        }
    }
    let (name, count) = (service.name(), service.sockets.len());
    rule_match.title = match (misplaced_count, silent_count) {
        (0, 0) => return None,
        (0, _) => {
            format!(
                "{silent_count} of {count} sockets of {name} ask for the packets of CPUs by which none come"
            )
        }
        _ => format!(
            "The threads of {misplaced_count} of {count} sockets of {name} may not run on the CPU their socket asks for"
        ),
    };
    Some(rule_match)
}

/// A thread of the socket, if none of its threads may run on this CPU.
fn find_misplaced_thread(view: &HostView<'_>, socket: &SocketState, cpu: u32) -> Option<(u32, String)> {
    let threads = view.serving_socket(socket.inode);
    let first = threads.first()?;
    let is_away = threads.iter().all(|thread| thread.allowed.value().is_some_and(|cpus| !cpus.contains(cpu)));
    is_away.then(|| (first.tid, first.allowed.value().map_or_else(String::new, ToString::to_string)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::socket::sample::{host, service, thread};
    use crate::{Known, PacketPath};

    fn group(cpus: [u32; 2], receive: &[u32]) -> PacketPath {
        let mut group = service(2);
        for (socket, cpu) in group.sockets.iter_mut().zip(cpus) {
            let options =
                super::super::super::SocketOptions { incoming_cpu: Some(cpu), ..Default::default() };
            socket.options = Known::Value(Some(options));
        }
        host(receive).with(group, vec![thread(51, 700, "0"), thread(52, 701, "1")])
    }

    #[test]
    fn not_steered_is_reported_only_for_groups_known_to_use_the_hash() {
        let mut path = host(&[]).with(service(2), Vec::new());
        assert!(NOT_STEERED.once(&path).is_empty());
        path.service().steering = Known::Value(Some(SteeringState::Hash));
        let matches = NOT_STEERED.once(&path);
        let title = "udp 10.0.0.1:53 (echo) chooses among its 2 sockets by hash, not by CPU";
        assert_eq!(matches[0].summary(), (Severity::Medium, title));
        for steering in [
            Known::Value(Some(SteeringState::Cpu)),
            Known::Value(Some(SteeringState::Program)),
            Known::unknown(""),
        ] {
            path.service().steering = steering;
            assert!(NOT_STEERED.once(&path).is_empty());
        }
        path.service().steering = Known::Value(Some(SteeringState::Hash));
        path.service().named = false;
        assert!(NOT_STEERED.once(&path).is_empty(), "the service is unnamed");
        path.service().named = true;
        path.machine.online = Known::Value([0].into_iter().collect());
        assert!(NOT_STEERED.once(&path).is_empty(), "there is one CPU");
    }

    #[test]
    fn threads_on_the_incoming_cpu_of_their_socket_are_not_reported() {
        assert!(MISMATCH.once(&group([0, 1], &[0, 1])).is_empty());
        assert!(MISMATCH.once(&group([0, 1], &[])).is_empty(), "the receiving CPUs are unknown");
    }

    #[test]
    fn an_incoming_cpu_without_packets_is_reported() {
        let matches = MISMATCH.once(&group([0, 1], &[0]));
        let title = "1 of 2 sockets of udp 10.0.0.1:53 (echo) ask for the packets of CPUs by which none come";
        assert_eq!(matches[0].title, title);
        assert_eq!(matches[0].evidence[0].read_from, "SO_INCOMING_CPU of socket 701");
    }
}
