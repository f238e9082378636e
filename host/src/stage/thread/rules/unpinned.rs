//! Threads without CPU affinity.

use crate::CpuSet;
use crate::finding::{CostUnit, Rule, RuleMatch, Severity};
use crate::stage::HostView;
use crate::stage::socket::ServiceSockets;
use crate::stage::thread::ServingThread;

pub(in crate::stage) const UNPINNED: Rule = Rule {
    id: "thread.unpinned",
    title: "Serving threads may run on every CPU",
    why: "The scheduler moves a thread that may run everywhere, regardless of where its packets are \
          processed. On another CPU, each packet is fetched from the first CPU's cache, and the thread may \
          end up on a CPU that is busy with softirqs.",
    effect: "4.25 to 5.05 million transactions/s on 20 cores, once each socket has the packets of one CPU. A \
             single thread received 197,000 to 350,000 packets/s unpinned, and 360,000 to 370,000 pinned.",
    published_ratio: Some(1.19),
    source: "T. Makita, Boost UDP Transaction Performance (2016); M. Majkowski, How to receive a million packets per second (2015)",
    kernels: "all",
    remedy: "Pin each thread to a CPU of its own: that of its socket if the group is steered by CPU. Many \
             servers have an option for it (nsd server-cpu-affinity, CPUAffinity= of systemd for all threads \
             together).",
    caveats: "The CPUs are shared with work that must not wait, or the service has more threads than CPUs.",
    check: check_unpinned,
};

fn check_unpinned(view: &HostView<'_>) -> Vec<RuleMatch> {
    let Some(online) = view.now.machine.online.value().filter(|online| online.len() > 1) else {
        return Vec::new();
    };
    let services = view.udp_services().filter(|service| view.matters(service));
    RuleMatch::joined(services.filter_map(|service| match_unpinned(view, service, online)))
}

fn match_unpinned(view: &HostView<'_>, service: &ServiceSockets, online: &CpuSet) -> Option<RuleMatch> {
    let threads = view.threads_of(service);
    let is_unpinned = |thread: &&&ServingThread| {
        thread.allowed.value().is_some_and(|cpus| online.iter().all(|cpu| cpus.contains(cpu)))
    };
    let unpinned_threads: Vec<&ServingThread> = threads.iter().filter(is_unpinned).copied().collect();
    // Of threads that take turns, only those seen at their turn are known. Those that Go starts would
    // inherit the CPU.
    if unpinned_threads.is_empty() || view.takes_turns(service) || threads.len() > online.len() {
        return None;
    }
    // While threads wait for the same socket, their CPUs matter less.
    let severity = match (service.sockets.len(), threads.len()) {
        (2.., _) => Severity::Medium,
        // The scheduler places a single thread well enough if the thread keeps up.
        (_, 1) if !view.loses(service) => Severity::Note,
        _ => Severity::Low,
    };
    let title = match (unpinned_threads.len(), threads.len()) {
        (1, 1) => format!("The thread of {} may run on all {} CPUs", service.name(), online.len()),
        (2, 2) => format!("Both threads of {} may run on all {} CPUs", service.name(), online.len()),
        (count, all) if count == all => {
            format!("All {all} threads of {} may run on all {} CPUs", service.name(), online.len())
        }
        (count, all) => {
            format!("{count} of {all} threads of {} may run on all {} CPUs", service.name(), online.len())
        }
    };
    let target_cpus = choose_cpus(view, service, &unpinned_threads, online);
    let rule_match = RuleMatch::new(severity, title).costs_per(CostUnit::UdpDatagram);
    let rule_match = super::with_allowed_cpus(rule_match, &unpinned_threads);
    // The softirqs of all packets would leave a server's only thread no time under overload.
    let takes_all_packets = |cpu: u32| {
        let cpus = Some(CpuSet::from_iter([cpu]));
        view.now.link.iter().any(|link| view.now.softirq_cpus(&link.interface) == cpus)
    };
    let targets = unpinned_threads.iter().zip(target_cpus);
    let targets = targets.filter(|(_, cpu)| threads.len() > 1 || !takes_all_packets(*cpu));
    Some(targets.fold(rule_match, |rule_match, (thread, cpu)| {
        rule_match.command(format!("taskset -pc {cpu} {}", thread.tid))
    }))
}

/// A CPU for each thread: the CPU that its socket requests, otherwise the CPUs with packets in
/// turn, otherwise any CPU.
fn choose_cpus(
    view: &HostView<'_>,
    service: &ServiceSockets,
    threads: &[&ServingThread],
    online: &CpuSet,
) -> Vec<u32> {
    let requested_cpu = |thread: &ServingThread| {
        let socket = service.sockets.iter().find(|socket| thread.sockets == [socket.inode])?;
        socket.incoming_cpu().filter(|cpu| online.contains(*cpu))
    };
    let receive_cpus = view.receive_cpus(service).filter(|cpus| cpus.len() >= threads.len());
    let cpus: Vec<u32> = receive_cpus.as_ref().unwrap_or(online).iter().collect();
    let cpu_cycle = cpus.iter().cycle().copied();
    threads.iter().zip(cpu_cycle).map(|(thread, cpu)| requested_cpu(thread).unwrap_or(cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::socket::sample::{host, service, thread};
    use crate::{Known, PacketPath};

    fn pair(first_cpus: &str, second_cpus: &str) -> PacketPath {
        host(&[]).with(service(2), vec![thread(51, 700, first_cpus), thread(52, 701, second_cpus)])
    }

    #[test]
    fn cpus_that_receive_packets_are_assigned_first() {
        let threads = || vec![thread(51, 700, "0-3"), thread(52, 701, "0-3")];
        let matches = UNPINNED.once(&host(&[2, 3]).with(service(2), threads()));
        assert_eq!(matches[0].commands, ["taskset -pc 2 51", "taskset -pc 3 52"]);
        let mut path = host(&[2, 3]).with(service(2), threads());
        let options = crate::stage::socket::SocketOptions { incoming_cpu: Some(3), ..Default::default() };
        path.service().sockets[0].options = Known::Value(Some(options));
        assert_eq!(UNPINNED.once(&path)[0].commands[0], "taskset -pc 3 51");
    }

    #[test]
    fn the_only_thread_is_not_pinned_to_the_cpu_of_all_packets() {
        let commands = |receive: &[u32], threads: &[u32]| {
            let threads = threads.iter().map(|tid| thread(*tid, 700, "0-3")).collect();
            let mut path = host(receive).with(service(1), threads);
            path.softirq.rps[0].threaded = Known::Value(Some(false));
            UNPINNED.once(&path).remove(0).commands
        };
        assert_eq!(commands(&[2], &[51]), Vec::<String>::new());
        assert_eq!(commands(&[2, 3], &[51]), ["taskset -pc 2 51"]);
        assert_eq!(commands(&[2], &[51, 52]), ["taskset -pc 0 51", "taskset -pc 1 52"]);
    }

    #[test]
    fn threads_that_take_turns_are_not_pinned() {
        let mut path = pair("0-3", "0-3");
        for index in [0, 1] {
            let thread = path.thread_mut(index);
            (thread.sockets, thread.takes_turns_at) = (vec![700], Some(4));
        }
        assert!(UNPINNED.once(&path).is_empty());
        path.thread_mut(1).takes_turns_at = Some(5);
        assert_eq!(UNPINNED.once(&path)[0].commands.len(), 2, "an epoll instance per thread");
    }

    #[test]
    fn threads_with_an_affinity_or_unknown_cpus_are_not_reported() {
        assert!(UNPINNED.once(&pair("0", "1")).is_empty());
        assert!(UNPINNED.once(&pair("0-2", "0-2")).is_empty());
        let mut path = pair("0-3", "0-3");
        path.thread_mut(0).allowed = Known::unknown("gone");
        path.thread_mut(1).allowed = Known::unknown("gone");
        assert!(UNPINNED.once(&path).is_empty(), "an unknown affinity is not all CPUs");
    }

    #[test]
    fn more_threads_than_cpus_one_cpu_or_quiet_services_are_not_reported() {
        let many = (0..5).map(|tid| thread(51 + tid, 700 + u64::from(tid), "0-3")).collect();
        assert!(UNPINNED.once(&host(&[]).with(service(5), many)).is_empty());
        UNPINNED.assert_no_match(
            &pair("0-3", "0-3"),
            &[
                |path| path.machine.online = Known::Value([0].into_iter().collect()),
                |path| path.service().named = false,
            ],
        );
    }

    #[test]
    fn unpinned_threads_of_a_shared_socket_are_low_severity() {
        let path = host(&[]).with(service(1), vec![thread(51, 700, "0-127"), thread(52, 700, "1")]);
        let matches = UNPINNED.once(&path);
        let title = "1 of 2 threads of udp 10.0.0.1:53 (echo) may run on all 4 CPUs";
        assert_eq!(matches[0].summary(), (Severity::Low, title));
    }
}
