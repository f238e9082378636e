//! Compares the sockets of a reuseport group with each other, and with the CPUs of their packets.

use crate::finding::{CostUnit, Rule, RuleMatch, Severity};
use crate::stage::HostView;
use crate::stage::socket::{ServiceSockets, SocketState};

/// CPU time of the busiest socket's threads above which the group is checked.
const BUSY: f64 = 0.2;

/// A socket is idle if its threads use less than this share of the CPU time of the busiest socket's
/// threads.
const IDLE_SHARE: f64 = 0.1;

pub(in crate::stage) const IMBALANCE: Rule = Rule {
    id: "socket.group-imbalance",
    title: "Some sockets of a reuseport group do the work, others get nothing",
    why: "A hash of addresses and ports selects the socket. Few clients have few hashes, and some sockets \
          get none of them. With steering by CPU, a socket gets nothing if no packets come by its CPU. The \
          kernel does not count the packets of a UDP socket: the rule compares the CPU time of its threads, \
          and its losses.",
    effect: "Hashes collided in one published case: two of four sockets got nothing, and half of the server's capacity \
             was lost.",
    published_ratio: None,
    source: "M. Majkowski, How to receive a million packets per second (2015)",
    kernels: "3.9 and later (SO_REUSEPORT)",
    remedy: "Steer the group by CPU (socket.not-steered) and spread packets over all CPUs (the findings of \
             rss, irq and softirq). With few clients, more source ports or destination addresses help.",
    caveats: "There are only a few clients, for example in a test with one source port.",
    check: check_imbalance,
};

pub(in crate::stage) const BELOW_QUEUES: Rule = Rule {
    id: "socket.group-below-queues",
    title: "Fewer sockets than CPUs that receive packets for them",
    why: "Each CPU on which packets meet the network stack puts them into a socket's queue under that \
          socket's lock. With fewer sockets than such CPUs, several of them wait for the same lock, and the \
          threads of these sockets limit the rate however many CPUs receive.",
    effect: "Four sockets received 1.1 million packets/s, one socket 480,000.",
    published_ratio: Some(2.29),
    source: "M. Majkowski, How to receive a million packets per second (2015)",
    kernels: "3.9 and later (SO_REUSEPORT)",
    remedy: "Let the server open as many sockets with SO_REUSEPORT, each with its thread, as there are CPUs \
             that receive; or let fewer CPUs receive.",
    caveats: "The rate is low enough for the existing threads, or the service must leave CPUs to others.",
    check: check_below_queues,
};

fn check_imbalance(view: &HostView<'_>) -> Vec<RuleMatch> {
    let groups = view.udp_services().filter(|service| service.sockets.len() > 1);
    groups.filter_map(|service| match_imbalance(view, service)).collect()
}

fn match_imbalance(view: &HostView<'_>, service: &ServiceSockets) -> Option<RuleMatch> {
    view.before?;
    let loads: Vec<(&SocketState, f64)> = service
        .sockets
        .iter()
        .map(|socket| Some((socket, exclusive_cpus(view, socket)?)))
        .collect::<Option<_>>()?;
    let busiest = loads.iter().map(|(_, cpus)| *cpus).fold(0.0, f64::max);
    let idle_count = loads.iter().filter(|(_, cpus)| *cpus < busiest * IDLE_SHARE).count();
    if busiest < BUSY || idle_count == 0 {
        return None;
    }
    let severity = if view.loses(service) { Severity::High } else { Severity::Medium };
    let title = format!(
        "{idle_count} of {} sockets of {} get next to nothing while one uses {:.0} % of a CPU",
        loads.len(),
        service.name(),
        busiest * 100.0
    );
    let rule_match = RuleMatch::new(severity, title);
    Some(loads.into_iter().fold(rule_match, |rule_match, (socket, cpus)| {
        let label = format!("percent of a CPU that the threads of socket {} use", socket.inode);
        let loss_rate = view.socket_loss_rate(socket).filter(|rate| *rate > 0.0).map(f64::round);
        let loss_label = format!("packets/s that socket {} loses", socket.inode);
        rule_match.evidence(label, (cpus * 1000.0).round() / 10.0, "/proc/PID/task/TID/stat").evidence_if(
            loss_label,
            loss_rate,
            &service.read_from,
        )
    }))
}

/// CPU time of the threads that serve only this socket; `None` without such threads.
fn exclusive_cpus(view: &HostView<'_>, socket: &SocketState) -> Option<f64> {
    let threads = view.serving_socket(socket.inode);
    if threads.is_empty() || threads.iter().any(|thread| thread.sockets.len() != 1) {
        return None;
    }
    threads.into_iter().map(|thread| view.cpus_used(thread)).sum()
}

fn check_below_queues(view: &HostView<'_>) -> Vec<RuleMatch> {
    let services = view.udp_services().filter(|service| view.matters(service));
    RuleMatch::joined(services.filter_map(|service| match_below_queues(view, service)))
}

fn match_below_queues(view: &HostView<'_>, service: &ServiceSockets) -> Option<RuleMatch> {
    let cpus = view.receive_cpus(service)?;
    if service.sockets.len() >= cpus.len() || shares_one_socket(view, service) {
        return None;
    }
    let severity = match view.loss_rate(service) {
        Some(rate) if rate > 0.0 => Severity::Medium,
        _ => Severity::Low,
    };
    let sockets = match service.sockets.len() {
        1 => "1 socket".to_owned(),
        count => format!("{count} sockets"),
    };
    let title = format!("{} has {sockets}, and its packets come by {} CPUs", service.name(), cpus.len());
    let read_from = "IRQ affinity and rps_cpus of all queues";
    let holder = match service.processes.value().and_then(|owners| owners.first()) {
        Some(owner) => format!("/proc/{}/fd", owner.pid),
        None => service.local.to_string(),
    };
    Some(
        RuleMatch::new(severity, title)
            .costs_per(CostUnit::UdpDatagram)
            .evidence("sockets", service.sockets.len(), format!("{}, {holder}", service.read_from))
            .evidence("CPUs on which packets meet the stack", cpus.to_string(), read_from),
    )
}

/// A group of one socket with several reading threads; `socket.shared-by-threads` reports it.
fn shares_one_socket(view: &HostView<'_>, service: &ServiceSockets) -> bool {
    matches!(service.sockets.as_slice(), [socket] if view.readers_at_once(socket.inode).len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PacketPath;
    use crate::stage::socket::SocketOwner;
    use crate::stage::socket::sample::{host, later, service, thread};
    use crate::stage::thread::rules::unpinned::UNPINNED;
    use crate::{Known, stage::thread::ServingEvidence};

    fn pair() -> PacketPath {
        host(&[0, 1, 2]).with(service(2), vec![thread(51, 700, "0"), thread(52, 701, "1")])
    }

    fn with_ticks(ticks: [u64; 2]) -> PacketPath {
        let mut path = later(&pair());
        for (index, ticks) in ticks.into_iter().enumerate() {
            path.thread_mut(index).system_ticks = Known::Value(ticks);
        }
        path
    }

    #[test]
    fn an_idle_socket_next_to_a_busy_socket_is_reported() {
        let (before, mut now) = (pair(), with_ticks([800, 3]));
        let matches = IMBALANCE.twice(&before, &now);
        let title =
            "1 of 2 sockets of udp 10.0.0.1:53 (echo) get next to nothing while one uses 80 % of a CPU";
        assert_eq!(matches[0].summary(), (Severity::Medium, title));
        now.service().sockets[0].drops = Some(500);
        let matches = IMBALANCE.twice(&before, &now);
        assert_eq!(matches[0].severity, Severity::High);
        assert!(
            matches[0]
                .evidence
                .iter()
                .any(|item| item.what == "packets/s that socket 700 loses" && item.value == 50.0)
        );
    }

    #[test]
    fn balanced_or_idle_groups_are_not_reported() {
        let before = pair();
        for ticks in [[800, 300], [3, 0], [0, 0]] {
            assert!(IMBALANCE.twice(&before, &with_ticks(ticks)).is_empty(), "{ticks:?}");
        }
        assert!(IMBALANCE.once(&with_ticks([800, 0])).is_empty(), "one reading has no rates");
    }

    #[test]
    fn threads_serving_several_sockets_do_not_count_as_imbalance() {
        let (before, mut now) = (pair(), with_ticks([800, 0]));
        now.thread_mut(0).sockets.push(701);
        assert!(IMBALANCE.twice(&before, &now).is_empty());
    }

    #[test]
    fn a_process_with_several_addresses_has_too_few_sockets_once() {
        let at = |port: u16, pid: u32| {
            let processes = Known::Value(vec![SocketOwner { pid, name: "sfu".to_owned() }]);
            ServiceSockets { local: ([10, 0, 0, 1], port).into(), processes, ..service(1) }
        };
        let mut path = host(&[0, 1]).with(at(10_000, 50), vec![thread(51, 700, "0-3")]);
        path.socket.services.expect_mut().extend([at(10_002, 50), at(10_004, 60)]);
        assert_eq!(BELOW_QUEUES.once(&path).len(), 2);
        assert_eq!(UNPINNED.once(&path).len(), 1, "one thread");
    }

    #[test]
    fn enough_quiet_or_shared_sockets_are_not_reported_as_too_few() {
        let group_of =
            |count, receive: &[u32]| host(receive).with(service(count), vec![thread(51, 700, "0")]);
        assert!(BELOW_QUEUES.once(&group_of(2, &[0, 1])).is_empty());
        assert!(BELOW_QUEUES.once(&group_of(1, &[])).is_empty(), "the receiving CPUs are unknown");
        let mut path = group_of(1, &[0, 1]);
        assert_eq!(BELOW_QUEUES.once(&path).len(), 1);
        path.service().named = false;
        assert!(BELOW_QUEUES.once(&path).is_empty());
        path.service().named = true;
        let mut second = thread(52, 700, "0");
        second.how = ServingEvidence::Assumed;
        second.system_ticks = Known::Value(100);
        path.thread.serving.expect_mut().push(second);
        assert!(BELOW_QUEUES.once(&path).is_empty(), "reported by socket.shared-by-threads");
    }
}
