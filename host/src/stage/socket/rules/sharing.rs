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
    check: shared,
};

fn shared(view: &HostView<'_>) -> Vec<RuleMatch> {
    view.udp_services().filter_map(|service| worst(view, service)).collect()
}

impl HostView<'_> {
    /// Whether a UDP service in scope was named, or has load or losses.
    pub fn has_busy_udp_service(&self) -> bool {
        self.udp_services().any(|service| self.matters(service))
    }

    /// Whether each busy UDP service in scope has one socket that several threads read, so that all
    /// its packets need one lock, on every CPU. False without a busy service.
    pub fn busy_services_share_a_socket(&self) -> bool {
        let shares = |service: &ServiceSockets| {
            service.sockets.len() == 1
                && worst(self, service).is_some_and(|matched| matched.severity > Severity::Note)
        };
        let mut busy = self.udp_services().filter(|service| self.matters(service)).peekable();
        busy.peek().is_some() && busy.all(shares)
    }
}

/// Checks the socket with the most threads.
fn worst(view: &HostView<'_>, service: &ServiceSockets) -> Option<RuleMatch> {
    let served = service.sockets.iter().map(|socket| (socket, view.readers_at_once(socket.inode)));
    let (socket, threads) = served.max_by_key(|(_, threads)| threads.len())?;
    let seen = threads.iter().filter(|thread| thread.was_seen()).count();
    let matters = view.matters(service);
    let severity = match (seen, threads.len()) {
        (2.., _) if matters => Severity::High,
        (2.., _) => Severity::Note,
        // Running threads may do other work.
        (_, 2..) if matters => Severity::Medium,
        _ => return None,
    };
    Some(matched(severity, service, socket, &threads, seen))
}

fn matched(
    severity: Severity,
    service: &ServiceSockets,
    socket: &SocketState,
    threads: &[&ServingThread],
    seen: usize,
) -> RuleMatch {
    let sockets = service.sockets.len();
    let which =
        if sockets == 1 { "one socket".to_owned() } else { format!("the same one of its {sockets} sockets") };
    let count = threads.len();
    let title = if seen >= 2 {
        format!("{count} threads serve {which} of {}", service.name())
    } else {
        format!("{count} threads run and may serve {which} of {}", service.name())
    };
    let mut matched = RuleMatch::new(severity, title)
        .costs_per(CostUnit::UdpDatagram)
        .evidence("threads that serve it", count, "/proc/PID/task/TID/syscall")
        .evidence("inode of the socket", socket.inode, service.read_from.clone());
    for thread in threads.iter().take(ServingThread::SHOWN) {
        let (does, read_from) = thread.sight();
        matched = matched.evidence(format!("thread {} {}", thread.name, thread.tid), does, read_from);
    }
    if let Some(drops) = socket.drops.filter(|drops| *drops > 0) {
        matched = matched.evidence("packets the socket lost", drops, service.read_from.clone());
    }
    matched
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PacketPath;
    use crate::stage::socket::sample::{host, service, thread};
    use crate::stage::thread::ServingEvidence;

    fn found(path: &PacketPath) -> Vec<(Severity, String)> {
        let matches = shared(&HostView::once(path));
        matches.into_iter().map(|matched| (matched.severity, matched.title)).collect()
    }

    fn two_threads() -> PacketPath {
        host(&[]).with(service(1), vec![thread(51, 700, "0-3"), thread(52, 700, "0-3")])
    }

    #[test]
    fn two_threads_seen_at_one_socket_share_it() {
        let title = "2 threads serve one socket of udp 10.0.0.1:53 (echo)".to_owned();
        assert_eq!(found(&two_threads()), [(Severity::High, title)]);
        let matched = shared(&HostView::once(&two_threads())).remove(0);
        let what: Vec<&str> = matched.evidence.iter().map(|item| item.what.as_str()).collect();
        let expected =
            ["threads that serve it", "inode of the socket", "thread worker 51", "thread worker 52"];
        assert_eq!(what, expected);
        assert_eq!(matched.evidence[2].value, "in recvfrom");
        assert_eq!(matched.evidence[2].read_from, "/proc/50/task/51/syscall");
    }

    #[test]
    fn a_socket_a_thread_is_not_shared() {
        let path = host(&[]).with(service(2), vec![thread(51, 700, "0"), thread(52, 701, "1")]);
        assert_eq!(found(&path), []);
    }

    #[test]
    fn the_same_socket_of_a_group_is_told() {
        let both = |tid| {
            let mut thread = thread(tid, 700, "0-3");
            thread.sockets.push(701);
            thread
        };
        let path = host(&[]).with(service(2), vec![both(51), both(52)]);
        assert_eq!(
            found(&path)[0].1,
            "2 threads serve the same one of its 2 sockets of udp 10.0.0.1:53 (echo)"
        );
    }

    #[test]
    fn threads_that_only_run_are_said_to_do_no_more() {
        let mut path = two_threads();
        for index in [0, 1] {
            path.thread_mut(index).how = ServingEvidence::Assumed;
            path.thread_mut(index).system_ticks = crate::Known::Value(100);
        }
        let title = "2 threads run and may serve one socket of udp 10.0.0.1:53 (echo)".to_owned();
        assert_eq!(found(&path), [(Severity::Medium, title)]);
        path.service().named = false;
        path.thread_mut(0).system_ticks = crate::Known::Value(1);
        path.thread_mut(1).system_ticks = crate::Known::Value(1);
        assert_eq!(found(&path), []);
    }

    #[test]
    fn a_thread_that_sleeps_or_computes_beside_the_reader_does_not_share() {
        let mut path = two_threads();
        path.thread_mut(0).system_ticks = crate::Known::Value(900);
        path.thread_mut(1).how = ServingEvidence::Assumed;
        assert_eq!(found(&path), [], "it waits in poll and takes no time");
        path.thread_mut(1).user_ticks = crate::Known::Value(900);
        path.thread_mut(1).system_ticks = crate::Known::Value(90);
        assert_eq!(found(&path), [], "it computes");
        path.thread_mut(1).system_ticks = crate::Known::Value(800);
        assert_eq!(found(&path)[0].0, Severity::Medium, "it takes as much time in the kernel");
    }

    #[test]
    fn a_thread_that_waited_at_the_other_reading_is_seen() {
        let (before, mut now) = (two_threads(), crate::stage::socket::sample::later(&two_threads()));
        now.thread_mut(0).how = ServingEvidence::Assumed;
        assert_eq!(shared(&HostView::twice(&before, &now))[0].severity, Severity::High);
    }

    #[test]
    fn threads_that_take_turns_are_one_reader_at_a_time() {
        let mut path = two_threads();
        for index in [0, 1] {
            path.thread_mut(index).how = ServingEvidence::Polling("epoll_pwait".to_owned());
            path.thread_mut(index).takes_turns_at = Some(4);
        }
        assert_eq!(found(&path), []);
        path.thread_mut(1).how = ServingEvidence::Assumed;
        path.thread_mut(1).takes_turns_at = None;
        assert_eq!(found(&path), [], "it runs, and may wait next");
        path.thread_mut(1).how = ServingEvidence::Polling("epoll_pwait".to_owned());
        path.thread_mut(1).takes_turns_at = Some(5);
        assert_eq!(found(&path)[0].0, Severity::High, "each has an epoll instance of its own");
    }

    #[test]
    fn busy_services_share_a_socket_only_where_none_has_more() {
        let shares = |path: &PacketPath| HostView::once(path).busy_services_share_a_socket();
        let mut path = two_threads();
        assert!(shares(&path));
        path.service().named = false;
        assert!(!shares(&path), "nobody asked for it, and it does nothing");
        assert!(!shares(&host(&[]).with(service(1), vec![thread(51, 700, "0-3")])));
        assert!(!shares(&host(&[]).with(service(2), vec![thread(51, 700, "0"), thread(52, 700, "1")])));
    }

    #[test]
    fn a_quiet_service_nobody_asked_about_is_a_note_and_a_clients_port_nothing() {
        let mut path = two_threads();
        path.service().named = false;
        assert_eq!(found(&path)[0].0, Severity::Note);
        path.service().local.set_port(40_000);
        assert_eq!(found(&path), []);
        path.socket.local_ports = crate::Known::Value((50_000, 60_000));
        assert_eq!(found(&path).len(), 1);
    }

    #[test]
    fn a_service_that_takes_time_matters_unasked() {
        let mut path = two_threads();
        path.service().named = false;
        path.thread_mut(0).system_ticks = crate::Known::Value(500);
        assert_eq!(found(&path)[0].0, Severity::High, "5 of 100 seconds since boot");
        assert!(
            shared(&HostView::twice(&path, &path)).iter().all(|matched| matched.severity == Severity::Note)
        );
    }
}
