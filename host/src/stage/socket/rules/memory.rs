//! The memory limit of all UDP sockets.

use crate::amount;
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::HostView;
use crate::stage::socket::memory::{LIMIT, USED};

/// Page size of most architectures; on other architectures the limit has fewer pages.
const PAGE_BYTES: u64 = 4096;

/// Share of the limit above which a burst uses up the rest.
const NEARLY_FULL: f64 = 0.8;

const COUNTERS: [&str; 2] = ["Udp.MemErrors", "Udp6MemErrors"];

pub(in crate::stage) const RULE: Rule = Rule {
    id: "socket.memory-full",
    title: "The memory for all UDP sockets is used up or too small",
    why: "All UDP sockets of a host share one limit, net.ipv4.udp_mem. A packet that would exceed it is dropped although the \
          receive buffer of its socket has room, and counted as MemErrors. A larger receive buffer makes that worse.",
    effect: "Each counted packet is a request without an answer.",
    published_ratio: None,
    source: "net/ipv4/udp.c, __udp_queue_rcv_skb and udp_rmem_schedule; Documentation/networking/ip-sysctl.rst, udp_mem",
    kernels: "2.6.25 and later; the counter MemErrors since 5.12",
    remedy: "Find the sockets with long receive queues (ss -uanm), and make their threads read faster or \
             their buffers smaller. If the queues are intended, raise net.ipv4.udp_mem (in pages) to the sum \
             of the receive buffers.",
    caveats: "The host has no memory to spare: the limit protects its other programs.",
    check: |view| check(view).into_iter().collect(),
};

impl HostView<'_> {
    /// Packets lost because all UDP memory was in use: per second between two readings, or since
    /// boot.
    pub(super) fn memory_loss(&self) -> Option<f64> {
        let count = |path: &crate::PacketPath| path.route.snmp_sum(&COUNTERS);
        let loss = if self.before.is_some() { self.rate(count)? } else { count(self.now)? as f64 };
        (loss > 0.0).then_some(loss)
    }
}

fn check(view: &HostView<'_>) -> Option<RuleMatch> {
    let loss = find_loss(view);
    let notable_loss = loss.clone().filter(|(severity, _)| *severity != Severity::Note);
    let found = notable_loss.or_else(|| find_high_use(view)).or_else(|| find_large_buffer(view)).or(loss);
    found.map(|(severity, title)| add_evidence(view, RuleMatch::new(severity, title)))
}

fn find_loss(view: &HostView<'_>) -> Option<(Severity, String)> {
    let lost_packets = view.memory_loss()?;
    let loss = amount::rate(lost_packets);
    Some(if view.before.is_some() {
        (
            if view.is_small_loss(lost_packets) { Severity::Note } else { Severity::High },
            format!("{loss} packets/s are lost because the memory of all UDP sockets is used up"),
        )
    } else {
        (
            if view.is_notable_loss(lost_packets as u64) { Severity::Low } else { Severity::Note },
            format!("{loss} packets were lost since boot because the memory of all UDP sockets was used up"),
        )
    })
}

fn find_high_use(view: &HostView<'_>) -> Option<(Severity, String)> {
    let memory = (*view.now.socket.udp_memory.value()?)?;
    let share = memory.used_pages as f64 / memory.limit_pages.max(1) as f64;
    let title = format!("UDP sockets use {:.0} % of the memory that they may use together", share * 100.0);
    (share >= NEARLY_FULL).then_some((Severity::Medium, title))
}

/// A socket whose queue may become larger than the limit for all sockets together.
fn find_large_buffer(view: &HostView<'_>) -> Option<(Severity, String)> {
    let memory = (*view.now.socket.udp_memory.value()?)?;
    let limit = memory.limit_pages.saturating_mul(PAGE_BYTES);
    let largest_buffer = |service: &&crate::stage::socket::ServiceSockets| {
        service.sockets.iter().filter_map(|socket| socket.receive_buffer_bytes).max()
    };
    let service = view.udp_services().filter(|service| view.matters(service)).max_by_key(largest_buffer)?;
    let buffer = largest_buffer(&service).filter(|buffer| *buffer > limit)?;
    let title = format!(
        "A receive buffer of {} has {buffer} bytes, and all UDP sockets together may use {limit}",
        service.name()
    );
    Some((Severity::Medium, title))
}

fn add_evidence(view: &HostView<'_>, rule_match: RuleMatch) -> RuleMatch {
    let rule_match = super::with_counters(rule_match, view.now, &COUNTERS);
    let Some(Some(memory)) = view.now.socket.udp_memory.value() else { return rule_match };
    rule_match.evidence("pages in use", memory.used_pages, USED).evidence(
        "pages that may be in use",
        memory.limit_pages,
        LIMIT,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::socket::UdpMemory;
    use crate::stage::socket::rules::buffer;
    use crate::stage::socket::sample::{host, later, service};
    use crate::{Known, PacketPath};

    fn path(errors: u64, used_pages: u64, limit_pages: u64) -> PacketPath {
        let mut path = host(&[]).with(service(1), Vec::new());
        path.route.snmp = Known::Value([(COUNTERS[0].to_owned(), errors)].into());
        path.service().sockets[0].drops = Some(errors);
        path.socket.udp_memory = Known::Value(Some(UdpMemory { limit_pages, used_pages }));
        path
    }

    #[test]
    fn memory_errors_are_not_reported_as_full_receive_buffers() {
        let (before, now) = (path(10, 94_000, 94_002), later(&path(32_150, 94_000, 94_002)));
        for (view, title) in [
            (
                HostView::twice(&before, &now),
                "3,214 packets/s are lost because the memory of all UDP sockets is used up",
            ),
            (
                HostView::once(&now),
                "32,150 packets were lost since boot because the memory of all UDP sockets was used up",
            ),
        ] {
            assert_eq!(RULE.titles(&view)[0].1, title);
            for rule in [buffer::RECEIVE_DROPS, buffer::SMALL] {
                assert!((rule.check)(&view).is_empty(), "{}", rule.id);
            }
        }
    }

    #[test]
    fn a_few_memory_errors_are_a_note_and_do_not_hide_high_use() {
        let severities = |errors, used_pages| {
            let (before, now) = (path(0, used_pages, 94_002), later(&path(errors, used_pages, 94_002)));
            [HostView::twice(&before, &now), HostView::once(&now)].map(|view| RULE.titles(&view)[0].0)
        };
        assert_eq!(severities(9, 100), [Severity::Note; 2]);
        assert_eq!(severities(10, 100), [Severity::High, Severity::Low]);
        assert_eq!(severities(9, 94_000), [Severity::Medium; 2]);
    }

    #[test]
    fn a_nearly_used_or_tiny_udp_mem_limit_is_reported_before_losses() {
        assert_eq!(RULE.titles(&HostView::once(&path(0, 80, 100)))[0].0, Severity::Medium);
        let title = "A receive buffer of udp 10.0.0.1:53 (echo) has 212992 bytes, and all UDP sockets together may use 40960";
        assert_eq!(RULE.titles(&HostView::once(&path(0, 0, 10))), [(Severity::Medium, title.to_owned())]);
        assert_eq!(RULE.titles(&HostView::once(&path(0, 258, 94_002))), []);
        let mut namespace = path(0, 0, 10);
        namespace.socket.udp_memory = Known::Value(None);
        assert_eq!(RULE.titles(&HostView::once(&namespace)), []);
    }
}
