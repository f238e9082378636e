//! One socket for several threads.

use crate::finding::{CostUnit, Rule, RuleMatch, Severity};
use crate::stage::HostView;
use crate::stage::socket::{ServiceSockets, SocketState};
use crate::stage::thread::ServingThread;

pub(in crate::stage) const SHARED_BY_THREADS: Rule = Rule {
    id: "socket.shared-by-threads",
    title: "Several threads serve one UDP socket",
    why: "A UDP socket has one receive queue and one lock. Every CPU in softirq that has a packet for it \
          takes that lock, and so does every thread that takes a packet out. More threads then wait more \
          without receiving more; with all CPUs in softirq they receive almost nothing.",
    effect: "480,000 packets/s with threads that share a socket, 1.1 million with four SO_REUSEPORT sockets. \
             On 20 cores, 270,000 transactions/s with one socket; 2.54 million with one socket per thread \
             and interrupts on all CPUs.",
    published_ratio: Some(2.29),
    source: "M. Majkowski, How to receive a million packets per second (2015); T. Makita, Boost UDP Transaction Performance \
             (2016)",
    kernels: "3.9 and later (SO_REUSEPORT)",
    remedy: "Let the server open a socket for each thread with SO_REUSEPORT. Many servers have an option for \
             it (unbound so-reuseport, nsd reuseport, a number of listeners or of UDP sockets). If it has none, run \
             copies of it: linerate boost run --replicas N -- COMMAND.",
    caveats: "The protocol keeps state in a thread that packets of other flows must reach too, or one thread is enough. A flow \
             moves to another socket when sockets are added to the group or closed.",
    check: |view| view.udp_services().filter_map(|service| match_busiest_socket(view, service)).collect(),
};

impl HostView<'_> {
    /// Whether a UDP service in scope was named, or has load or losses.
    pub fn has_busy_udp_service(&self) -> bool {
        self.udp_services().any(|service| self.matters(service))
    }

    /// Whether each busy UDP service in scope has one socket that several threads read, so that all
    /// its packets need one lock, on every CPU. False without a busy service.
    pub fn busy_services_share_a_socket(&self) -> bool {
        let shares_socket = |service: &ServiceSockets| {
            service.sockets.len() == 1
                && match_busiest_socket(self, service)
                    .is_some_and(|rule_match| rule_match.severity > Severity::Note)
        };
        let mut busy_services = self.udp_services().filter(|service| self.matters(service)).peekable();
        busy_services.peek().is_some() && busy_services.all(shares_socket)
    }
}

/// Checks the socket with the most threads.
fn match_busiest_socket(view: &HostView<'_>, service: &ServiceSockets) -> Option<RuleMatch> {
    let socket_threads = service.sockets.iter().map(|socket| (socket, view.readers_at_once(socket.inode)));
    let (socket, threads) = socket_threads.max_by_key(|(_, threads)| threads.len())?;
    let observed_count = threads.iter().filter(|thread| thread.was_seen()).count();
    let is_important = view.matters(service);
    let severity = match (observed_count, threads.len()) {
        (2.., _) if is_important => Severity::High,
        (2.., _) => Severity::Note,
        // Running threads may do other work.
        (_, 2..) if is_important => Severity::Medium,
        _ => return None,
    };
    Some(build_match(severity, service, socket, &threads, observed_count))
}

fn build_match(
    severity: Severity,
    service: &ServiceSockets,
    socket: &SocketState,
    threads: &[&ServingThread],
    observed_count: usize,
) -> RuleMatch {
    let sockets = service.sockets.len();
    let socket_text =
        if sockets == 1 { "one socket".to_owned() } else { format!("the same one of its {sockets} sockets") };
    let count = threads.len();
    let title = if observed_count >= 2 {
        format!("{count} threads serve {socket_text} of {}", service.name())
    } else {
        format!("{count} threads run and may serve {socket_text} of {}", service.name())
    };
    let mut rule_match = RuleMatch::new(severity, title)
        .costs_per(CostUnit::UdpDatagram)
        .evidence("threads that serve it", count, "/proc/PID/task/TID/syscall")
        .evidence("inode of the socket", socket.inode, service.read_from.clone());
    for thread in threads.iter().take(ServingThread::SHOWN) {
        let (evidence, read_from) = thread.describe_evidence();
        rule_match =
            rule_match.evidence(format!("thread {} {}", thread.name, thread.tid), evidence, read_from);
    }
    let drops = socket.drops.filter(|drops| *drops > 0);
    rule_match.evidence_if("packets the socket lost", drops, &service.read_from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::socket::sample::{host, later, service, thread};
    use crate::stage::thread::ServingEvidence;
    use crate::{Known, PacketPath};

    fn matches(path: &PacketPath) -> Vec<(Severity, String)> {
        SHARED_BY_THREADS.titles(&HostView::once(path))
    }

    fn two_threads() -> PacketPath {
        host(&[]).with(service(1), vec![thread(51, 700, "0-3"), thread(52, 700, "0-3")])
    }

    #[test]
    fn one_socket_per_thread_is_not_shared() {
        let path = host(&[]).with(service(2), vec![thread(51, 700, "0"), thread(52, 701, "1")]);
        assert_eq!(matches(&path), []);
    }

    #[test]
    fn a_thread_seen_at_another_socket_in_the_other_reading_does_not_share() {
        let before = host(&[]).with(service(2), vec![thread(51, 700, "0"), thread(52, 701, "1")]);
        let mut now = later(&before);
        for index in [0, 1] {
            let thread = now.thread_mut(index);
            thread.how = ServingEvidence::Assumed;
            thread.sockets = vec![700, 701];
            thread.system_ticks = Known::Value(100);
        }
        assert_eq!(SHARED_BY_THREADS.titles(&HostView::twice(&before, &now)), []);
    }

    #[test]
    fn two_threads_on_the_same_sockets_of_a_group_are_reported() {
        let thread_on_both = |tid| {
            let mut thread = thread(tid, 700, "0-3");
            thread.sockets.push(701);
            thread
        };
        let path = host(&[]).with(service(2), vec![thread_on_both(51), thread_on_both(52)]);
        assert_eq!(
            matches(&path)[0].1,
            "2 threads serve the same one of its 2 sockets of udp 10.0.0.1:53 (echo)"
        );
    }

    #[test]
    fn running_threads_are_reported_as_possibly_sharing() {
        let mut path = two_threads();
        for index in [0, 1] {
            path.thread_mut(index).how = ServingEvidence::Assumed;
            path.thread_mut(index).system_ticks = crate::Known::Value(100);
        }
        let title = "2 threads run and may serve one socket of udp 10.0.0.1:53 (echo)".to_owned();
        assert_eq!(matches(&path), [(Severity::Medium, title)]);
        path.service().named = false;
        path.thread_mut(0).system_ticks = crate::Known::Value(1);
        path.thread_mut(1).system_ticks = crate::Known::Value(1);
        assert_eq!(matches(&path), []);
    }

    #[test]
    fn sleeping_or_computing_threads_do_not_share_the_socket() {
        let mut path = two_threads();
        path.thread_mut(0).system_ticks = crate::Known::Value(900);
        path.thread_mut(1).how = ServingEvidence::Assumed;
        assert_eq!(matches(&path), [], "the second thread waits in poll and uses no CPU time");
        path.thread_mut(1).user_ticks = crate::Known::Value(900);
        path.thread_mut(1).system_ticks = crate::Known::Value(90);
        assert_eq!(matches(&path), [], "the second thread computes");
        path.thread_mut(1).system_ticks = crate::Known::Value(800);
        assert_eq!(matches(&path)[0].0, Severity::Medium, "the second thread uses as much kernel time");
    }

    #[test]
    fn a_thread_that_waited_in_either_reading_counts_as_sharing() {
        let (before, mut now) = (two_threads(), crate::stage::socket::sample::later(&two_threads()));
        now.thread_mut(0).how = ServingEvidence::Assumed;
        assert_eq!(SHARED_BY_THREADS.twice(&before, &now)[0].severity, Severity::High);
    }

    #[test]
    fn threads_taking_turns_on_one_epoll_do_not_share_the_socket() {
        let mut path = two_threads();
        for index in [0, 1] {
            path.thread_mut(index).how = ServingEvidence::Polling("epoll_pwait".to_owned());
            path.thread_mut(index).takes_turns_at = Some(4);
        }
        assert_eq!(matches(&path), []);
        path.thread_mut(1).how = ServingEvidence::Assumed;
        path.thread_mut(1).takes_turns_at = None;
        assert_eq!(matches(&path), [], "the second thread runs and may wait next");
        path.thread_mut(1).how = ServingEvidence::Polling("epoll_pwait".to_owned());
        path.thread_mut(1).takes_turns_at = Some(5);
        assert_eq!(matches(&path)[0].0, Severity::High, "each thread has its own epoll instance");
    }

    #[test]
    fn busy_services_share_a_socket_only_with_one_socket_and_two_threads() {
        let is_shared = |path: &PacketPath| HostView::once(path).busy_services_share_a_socket();
        let mut path = two_threads();
        assert!(is_shared(&path));
        path.service().named = false;
        assert!(!is_shared(&path), "the service is unnamed and idle");
        assert!(!is_shared(&host(&[]).with(service(1), vec![thread(51, 700, "0-3")])));
        assert!(!is_shared(&host(&[]).with(service(2), vec![thread(51, 700, "0"), thread(52, 700, "1")])));
    }

    #[test]
    fn sharing_is_a_note_for_quiet_services_and_ignored_on_client_ports() {
        let mut path = two_threads();
        path.service().named = false;
        assert_eq!(matches(&path)[0].0, Severity::Note);
        path.service().local.set_port(40_000);
        assert_eq!(matches(&path), []);
        path.socket.local_ports = crate::Known::Value((50_000, 60_000));
        assert_eq!(matches(&path).len(), 1);
    }

    #[test]
    fn sharing_in_an_unnamed_busy_service_is_high_severity() {
        let mut path = two_threads();
        path.service().named = false;
        path.thread_mut(0).system_ticks = crate::Known::Value(500);
        assert_eq!(matches(&path)[0].0, Severity::High, "5 of 100 seconds since boot");
        let idle_matches = SHARED_BY_THREADS.twice(&path, &path);
        assert_eq!(idle_matches[0].severity, Severity::Note, "no load between the readings");
    }
}
