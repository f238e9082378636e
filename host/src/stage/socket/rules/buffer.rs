//! Receive buffers and their losses.

use crate::amount;
use crate::finding::{Rule, RuleMatch, Severity};
use crate::setting::Setting;
use crate::stage::HostView;
use crate::stage::socket::load::RECEIVED;
use crate::stage::socket::{ServiceSockets, SocketState};

/// The kernel's default since Linux 3.x (`SK_RMEM_MAX` in include/net/sock.h), and a size far below
/// it, which holds fewer than a hundred small packets.
const DEFAULT_BYTES: u64 = 212_992;
const TINY_BYTES: u64 = 64 << 10;

/// The kernel doubles a requested size, so this is the most a process gets by default
/// (`net.core.rmem_max`).
const SMALL_BYTES: u64 = 2 * DEFAULT_BYTES;

/// The kernel's own limit since Linux 6.18 (`net.core.rmem_max`).
const AMPLE_BYTES: u64 = 4 << 20;

/// A merged datagram has up to 64 KiB of payload, and the kernel charges more than that.
const MERGED_BYTES: u64 = 128 << 10;

const ERRORS: [&str; 2] = ["Udp.RcvbufErrors", "Udp6RcvbufErrors"];

pub(in crate::stage) const RECEIVE_DROPS: Rule = Rule {
    id: "socket.receive-drops",
    title: "Packets are lost because a socket's receive buffer is full",
    why: "A packet that finds the receive buffer full is dropped, after all the work of receiving it. The \
          threads do not read packets as fast as they come, either all the time or during a burst. The \
          counter of a socket also includes the few packets with a wrong checksum. On Linux 6.18 and 6.19 it \
          also includes packets that /proc/net/snmp does not count (fixed by commit 820990d66577).",
    effect: "Each counted packet is a request without an answer.",
    published_ratio: None,
    source: "M. Majkowski, How to receive a million packets per second (2015); net/ipv4/udp.c, __udp_enqueue_schedule_skb",
    kernels: "2.6.27 and later (drops of a socket in /proc/net/udp)",
    remedy: "If the threads of the service use up their CPUs, give it more: a socket and a thread for each \
             CPU. If they are idle most of the time, the cause is bursts: give the socket a larger buffer \
             (SO_RCVBUF).",
    caveats: "The service sheds load on purpose.",
    check: check_receive_drops,
};

pub(in crate::stage) const SMALL: Rule = Rule {
    id: "socket.buffer-small",
    title: "A socket that loses packets has the default receive buffer, or a tiny one",
    why: "The default of 212,992 bytes holds about 90 to 280 small packets, because the kernel charges 768 \
          to 2,304 bytes per packet, depending on the driver. At a million packets/s that is 0.1 to 0.3 ms, \
          less than a thread may have to wait for a CPU.",
    effect: "Fewer packets lost in bursts. No gain if the threads are too slow for the rate.",
    published_ratio: None,
    source: "Linux, Documentation/networking/ip-sysctl and net/core/sock.c",
    kernels: "all; since 6.18 a server may request 4 MiB without privilege (net.core.rmem_max)",
    remedy: "Let the server request more (SO_RCVBUF, limited by net.core.rmem_max), or raise \
             net.core.rmem_default for new sockets, and restart the server.",
    caveats: "Latency matters more than loss: a longer queue is a longer wait. A larger default applies to \
              every socket of the host.",
    check: |view| view.udp_services().filter_map(|service| match_small(view, service)).collect(),
};

pub(in crate::stage) const GRO_SMALL: Rule = Rule {
    id: "socket.gro-buffer-small",
    title: "A socket accepts merged datagrams, and its receive buffer hardly holds one",
    why: "With UDP_GRO a thread gets up to 64 KiB of datagrams in one call. The receive buffer must hold \
          several of these, and the thread's own buffer a complete one. Otherwise the remaining datagrams \
          are truncated (MSG_TRUNC) without a counter: Envoy lost datagrams like this. The thread's own \
          buffer is not visible from outside.",
    effect: "No truncated datagrams.",
    published_ratio: None,
    source: "Linux 5.0, UDP_GRO; the Envoy project's report of datagrams lost to MSG_TRUNC",
    kernels: "5.0 and later (UDP_GRO)",
    remedy: "Give the socket a receive buffer of 1 MiB or more (SO_RCVBUF), and each recvmsg a buffer of 64 KiB.",
    caveats: "Only a few datagrams per second arrive.",
    check: |view| view.udp_services().filter_map(match_gro_small).collect(),
};

fn check_receive_drops(view: &HostView<'_>) -> Vec<RuleMatch> {
    let services = view.now.socket.services().iter();
    let matches: Vec<RuleMatch> = services.clone().filter_map(|service| match_drops(view, service)).collect();
    // A user who named one service does not want findings about other services.
    if matches.is_empty() && !services.clone().any(|service| service.named) {
        return match_host_drops(view).into_iter().collect();
    }
    matches
}

fn match_drops(view: &HostView<'_>, service: &ServiceSockets) -> Option<RuleMatch> {
    let drops = service.drops().filter(|drops| *drops > 0)?;
    let (severity, title) = match (view.before, view.loss_rate(service)) {
        (Some(_), rate) => {
            let rate = rate.filter(|rate| *rate > view.memory_loss().unwrap_or(0.0))?;
            let severity = if rate >= 1.0 { Severity::High } else { Severity::Medium };
            (
                severity,
                format!(
                    "{} loses {} packets/s: a receive buffer is full",
                    service.name(),
                    amount::rate(rate)
                ),
            )
        }
        (None, _) if drops as f64 <= view.memory_loss().unwrap_or(0.0) => return None,
        (None, _) => {
            let title = format!(
                "{} lost {} packets since its sockets were made",
                service.name(),
                amount::grouped(drops)
            );
            (severity_since_boot(view, drops), title)
        }
    };
    let losing_sockets = service.sockets.iter().filter(|socket| socket.drops.is_some_and(|drops| drops > 0));
    Some(losing_sockets.fold(RuleMatch::new(severity, title), |rule_match, socket| {
        let label = format!("packets that socket {} lost", socket.inode);
        let rule_match =
            rule_match.evidence(label, socket.drops.unwrap_or_default(), service.read_from.clone());
        let label = format!("bytes that wait in socket {}", socket.inode);
        rule_match.evidence(label, socket.queued_bytes, service.read_from.clone())
    }))
}

/// Losses of sockets outside the services: connected sockets, and sockets that are already closed.
fn match_host_drops(view: &HostView<'_>) -> Option<RuleMatch> {
    let errors = view.now.route.snmp_sum(&ERRORS).filter(|errors| *errors > 0)?;
    let (severity, title) = match view.before {
        Some(_) => {
            let rate = view.rate(|path| path.route.snmp_sum(&ERRORS)).filter(|rate| *rate > 0.0)?;
            let severity = if rate >= 1.0 { Severity::High } else { Severity::Medium };
            (severity, format!("UDP sockets lose {} packets/s to full receive buffers", amount::rate(rate)))
        }
        None => (
            severity_since_boot(view, errors),
            format!(
                "UDP sockets lost {} packets to full receive buffers since boot",
                amount::grouped(errors)
            ),
        ),
    };
    let rule_match = super::with_counters(RuleMatch::new(severity, title), view.now, &ERRORS);
    Some(super::with_counters(rule_match, view.now, &RECEIVED))
}

fn severity_since_boot(view: &HostView<'_>, lost_packets: u64) -> Severity {
    if view.is_notable_loss(lost_packets) { Severity::Low } else { Severity::Note }
}

fn match_small(view: &HostView<'_>, service: &ServiceSockets) -> Option<RuleMatch> {
    if match_drops(view, service).is_none() {
        return match_tiny(view, service);
    }
    let is_losing = |socket: &&SocketState| match view.before {
        Some(_) => view.socket_loss_rate(socket).is_some_and(|rate| rate > 0.0),
        None => socket.drops.is_some_and(|drops| drops > 0),
    };
    let smallest =
        service.sockets.iter().filter(is_losing).filter_map(|socket| socket.receive_buffer_bytes).min();
    let bytes = smallest.filter(|bytes| *bytes <= SMALL_BYTES)?;
    let severity = match view.before {
        Some(_) => Severity::Medium,
        None => severity_since_boot(view, service.drops().unwrap_or(0)),
    };
    let sockets = &view.now.socket;
    let title = format!("{} loses packets with a receive buffer of {bytes} bytes", service.name());
    let mut rule_match =
        RuleMatch::new(severity, title).evidence("receive buffer in bytes", bytes, service.read_from.clone());
    let sysctls = [
        ("rmem_max", &sockets.receive_buffer_max_bytes),
        ("rmem_default", &sockets.receive_buffer_default_bytes),
    ];
    for (name, value) in sysctls {
        let Some(Some(current)) = value.value() else { continue };
        rule_match =
            rule_match.evidence(format!("net.core.{name}"), *current, format!("/proc/sys/net/core/{name}"));
        // The default matters to sockets without a requested size, the maximum to sockets with one.
        if *current < AMPLE_BYTES && (name == "rmem_max" || *current == bytes) {
            let setting = Setting::sysctl(format!("net.core.{name}"));
            rule_match = rule_match.change(setting, Some(current), AMPLE_BYTES);
        }
    }
    Some(rule_match)
}

/// A buffer for a few dozen packets, because the default was lowered.
fn match_tiny(view: &HostView<'_>, service: &ServiceSockets) -> Option<RuleMatch> {
    let default = view.now.socket.receive_buffer_default_bytes.value().copied().flatten();
    let default = default.filter(|bytes| *bytes < TINY_BYTES && view.matters(service))?;
    let is_default = |socket: &SocketState| socket.receive_buffer_bytes == Some(default);
    if !service.sockets.iter().any(is_default) {
        return None;
    }
    let title = format!("{} has a receive buffer of {default} bytes, the lowered default", service.name());
    let rule_match = RuleMatch::new(Severity::Medium, title)
        .evidence("receive buffer in bytes", default, service.read_from.clone())
        .evidence("net.core.rmem_default", default, "/proc/sys/net/core/rmem_default");
    Some(rule_match.change(Setting::sysctl("net.core.rmem_default"), Some(default), DEFAULT_BYTES))
}

fn match_gro_small(service: &ServiceSockets) -> Option<RuleMatch> {
    let gro_sockets =
        service.sockets.iter().filter(|socket| socket.known_options().is_some_and(|options| options.gro));
    let bytes = gro_sockets
        .filter_map(|socket| socket.receive_buffer_bytes)
        .min()
        .filter(|bytes| *bytes < MERGED_BYTES)?;
    let title = format!(
        "{} accepts merged datagrams of up to 64 KiB, and its buffer has {bytes} bytes",
        service.name()
    );
    Some(RuleMatch::new(Severity::Medium, title).evidence("UDP_GRO", true, "getsockopt").evidence(
        "receive buffer in bytes",
        bytes,
        service.read_from.clone(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use crate::stage::socket::SocketOptions;
    use crate::stage::socket::sample::{host, later, service};
    use crate::{Known, PacketPath};

    fn path_with_drops(drops: u64) -> PacketPath {
        let mut path = host(&[]).with(service(1), Vec::new());
        path.service().sockets[0].drops = Some(drops);
        path.socket.receive_buffer_max_bytes = Known::Value(Some(212_992));
        path.socket.receive_buffer_default_bytes = Known::Value(Some(212_992));
        path
    }

    fn snmp(path: &mut PacketPath, received: u64, errors: u64) {
        let counters = [(RECEIVED[0].to_owned(), received), (ERRORS[0].to_owned(), errors)];
        path.route.snmp = Known::Value(BTreeMap::from(counters));
    }

    #[test]
    fn current_receive_drops_are_reported_as_a_rate() {
        let (before, now) = (path_with_drops(100), later(&path_with_drops(4600)));
        assert_eq!(RECEIVE_DROPS.twice(&before, &now)[0].severity, Severity::High);
        assert!(RECEIVE_DROPS.twice(&before, &later(&before)).is_empty(), "the drops are from before");
    }

    #[test]
    fn past_receive_drops_are_weighed_by_their_share() {
        let mut path = path_with_drops(1000);
        assert_eq!(RECEIVE_DROPS.once(&path)[0].severity, Severity::Low);
        let title = "udp 10.0.0.1:53 (echo) lost 1,000 packets since its sockets were made";
        assert_eq!(RECEIVE_DROPS.once(&path)[0].title, title);
        snmp(&mut path, 100_000_000, 1000);
        assert_eq!(RECEIVE_DROPS.once(&path)[0].severity, Severity::Note);
        assert!(RECEIVE_DROPS.once(&path_with_drops(0)).is_empty());
    }

    #[test]
    fn drops_of_sockets_outside_services_are_reported_for_the_host() {
        let (mut before, mut now) = (host(&[]), later(&host(&[])));
        snmp(&mut before, 10, 10);
        snmp(&mut now, 20, 4510);
        let matches = RECEIVE_DROPS.twice(&before, &now);
        assert_eq!(matches[0].title, "UDP sockets lose 450 packets/s to full receive buffers");
        assert_eq!(matches[0].evidence[0].read_from, "/proc/net/snmp");
        let title = "UDP sockets lost 4,510 packets to full receive buffers since boot";
        assert_eq!(RECEIVE_DROPS.once(&now)[0].title, title);
        let mut ipv6 = host(&[]);
        ipv6.route.snmp6 = Known::Value(Some(BTreeMap::from([(ERRORS[1].to_owned(), 7)])));
        let matches = RECEIVE_DROPS.once(&ipv6);
        assert_eq!(matches[0].title, "UDP sockets lost 7 packets to full receive buffers since boot");
        assert_eq!(matches[0].evidence[0].read_from, "/proc/net/snmp6");
        let now = now.with(service(1), Vec::new());
        assert!(RECEIVE_DROPS.once(&now).is_empty(), "a named service hides drops of other sockets");
    }

    #[test]
    fn the_default_buffer_is_reported_only_if_packets_are_lost() {
        let few = SMALL.once(&path_with_drops(9));
        assert_eq!(few[0].severity, Severity::Note);
        let matches = SMALL.once(&path_with_drops(10));
        let title = "udp 10.0.0.1:53 (echo) loses packets with a receive buffer of 212992 bytes";
        assert_eq!(matches[0].summary(), (Severity::Low, title));
        let settings: Vec<String> =
            matches[0].changes.iter().map(|change| change.setting.to_string()).collect();
        assert_eq!(settings, ["net.core.rmem_max", "net.core.rmem_default"]);
        assert_eq!(
            SMALL.twice(&path_with_drops(9), &later(&path_with_drops(10)))[0].severity,
            Severity::Medium
        );
        assert!(SMALL.once(&path_with_drops(0)).is_empty());
        let mut path = path_with_drops(9);
        path.service().sockets[0].receive_buffer_bytes = Some(8 << 20);
        assert!(SMALL.once(&path).is_empty());
        path.service().sockets[0].receive_buffer_bytes = None;
        assert!(SMALL.once(&path).is_empty(), "an unknown buffer size is not small");
    }

    #[test]
    fn a_lowered_default_buffer_is_reported_before_losses() {
        let mut path = path_with_drops(0);
        path.socket.receive_buffer_default_bytes = Known::Value(Some(4608));
        assert!(SMALL.once(&path).is_empty(), "the server set its own buffer size");
        path.service().sockets[0].receive_buffer_bytes = Some(4608);
        let matches = SMALL.once(&path);
        assert_eq!((matches[0].severity, matches[0].changes.len()), (Severity::Medium, 1));
    }

    #[test]
    fn a_udp_gro_buffer_of_64_kib_is_reported_as_too_small() {
        let mut path = path_with_drops(0);
        assert!(GRO_SMALL.once(&path).is_empty());
        let options = SocketOptions { gro: true, ..SocketOptions::default() };
        path.service().sockets[0].options = Known::Value(Some(options));
        assert!(GRO_SMALL.once(&path).is_empty());
        path.service().sockets[0].receive_buffer_bytes = Some(65_536);
        assert_eq!(GRO_SMALL.once(&path).len(), 1);
    }
}
