//! Improvements of later kernels for UDP services.

use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::HostView;
use crate::stage::machine::KernelVersion;

/// In ascending order: version, change, source. Only changes that affect the throughput, latency or
/// observability of a UDP service.
const LATER: &[(KernelVersion, &str, &str)] = &[
    ((4, 5), "a program chooses the socket of a reuseport group (SO_ATTACH_REUSEPORT_CBPF)", "socket(7)"),
    (
        (4, 12),
        "early demux can be switched off for UDP alone (udp_early_demux)",
        "Documentation/networking/ip-sysctl.rst",
    ),
    (
        (4, 13),
        "the reader of a socket has a queue of its own and meets the softirq at its lock less often",
        "net/ipv4/udp.c, first_packet_length and reader_queue",
    ),
    (
        (4, 15),
        "without rp_filter no second route lookup, also with accept_local off",
        "net/ipv4/fib_frontend.c, fib_validate_source",
    ),
    ((4, 18), "one call sends many datagrams (UDP_SEGMENT)", "udp(7)"),
    ((5, 0), "one call receives many datagrams of a flow (UDP_GRO)", "udp(7)"),
    (
        (5, 8),
        "interrupts can be put off while a busy application polls (napi_defer_hard_irqs)",
        "Documentation/networking/napi.rst",
    ),
    (
        (5, 11),
        "the service polls its queue instead of being interrupted (SO_PREFER_BUSY_POLL)",
        "Documentation/networking/napi.rst",
    ),
    (
        (5, 12),
        "NAPI can run in threads that the scheduler places (threaded)",
        "Documentation/networking/napi.rst",
    ),
    (
        (5, 12),
        "a host that forwards UDP can merge datagrams on the way (rx-udp-gro-forwarding)",
        "net/ipv4/udp_offload.c, udp_gro_receive",
    ),
    (
        (6, 2),
        "SO_INCOMING_CPU is heeded when a reuseport group's socket is chosen",
        "net/core/sock_reuseport.c",
    ),
    (
        (6, 9),
        "packets and drops of each queue under the same names for all drivers (qstats-get)",
        "Documentation/netlink/specs/netdev.yaml",
    ),
    ((6, 9), "an application sets busy polling for one epoll instance (EPIOCSPARAMS)", "fs/eventpoll.c"),
    (
        (6, 13),
        "defer-hard-irqs, gro-flush-timeout and irq-suspend-timeout are set per NAPI instance (netdev-genl, napi-set)",
        "Documentation/netlink/specs/netdev.yaml",
    ),
    (
        (6, 13),
        "interrupts stay suspended while the service keeps up (irq-suspend-timeout), and connected sockets are found by a hash of both ends: 0.29 to 1.89 Mpps with 500 on one port",
        "Documentation/networking/napi.rst; net/ipv4/udp.c, udp4_lib_lookup4",
    ),
    (
        (6, 18),
        "47 % more packets through a socket that 16 CPUs flood; a service under attack answers 11 % more",
        "merge ce463e435757 and commit b650bf0977d3",
    ),
    (
        (6, 18),
        "receive queues of a socket by NUMA node, drop counters apart from what readers write, a server may ask for 4 MiB of receive buffer without privilege (rmem_max); the default stays 212,992 bytes",
        "net/ipv4/udp.c and include/net/sock.h",
    ),
    (
        (6, 18),
        "buffers of received datagrams go back to the CPU that made them (skb_attempt_defer_free): 18.5 to 55.9 Gbit/s per receiving thread in netperf UDP_STREAM",
        "commit 6471658dc66c",
    ),
    (
        (6, 19),
        "packets enter a qdisc without its lock: about twice the packets for half the cycles where many CPUs send",
        "net/core/dev.c, __dev_xmit_skb",
    ),
    (
        (6, 19),
        "a CPU takes back up to 128 buffers at once instead of 64, also when packets were sent (skb_defer_max)",
        "commit 86b721bb0b4c",
    ),
    (
        (6, 19),
        "a kernel thread can busy poll one NAPI instance: p99 from 21.2 to 13.0 us at 32,000 packets/s",
        "Documentation/networking/napi.rst, threaded busy polling",
    ),
];

pub(in crate::stage) const RULE: Rule = Rule {
    id: "machine.kernel-age",
    title: "Later kernels do more for UDP",
    why: "The receive and transmit paths of UDP keep changing. The listed changes came after this kernel and \
          affect services of many small datagrams; some work automatically, others require support in the \
          service.",
    effect: "Listed with each change if somebody measured it.",
    published_ratio: None,
    source: "Linux documentation and sources, listed with each change",
    kernels: "all",
    remedy: "Consider a newer kernel before you work around problems that it fixes.",
    caveats: "The kernel is a distribution's: distributions (RHEL above all) backport later changes under an \
              older version number.",
    check: |view| check(view).into_iter().collect(),
};

fn check(view: &HostView<'_>) -> Option<RuleMatch> {
    let machine = &view.now.machine;
    let kernel = machine.kernel.value()?;
    let is_missing =
        |(version, ..): &&(KernelVersion, &str, &str)| machine.kernel_is_at_least(*version) == Some(false);
    let missing_changes: Vec<_> = LATER.iter().filter(is_missing).collect();
    let ((major, minor), ..) = missing_changes.last()?;
    let title = match missing_changes.len() {
        1 => {
            format!("Linux {major}.{minor}, later than {kernel}, brought one change that helps UDP services")
        }
        count => format!(
            "{count} changes that help UDP services came after Linux {kernel}, the last with {major}.{minor}"
        ),
    };
    let mut rule_match = RuleMatch::new(Severity::Note, title).evidence(
        "kernel",
        kernel.clone(),
        "/proc/sys/kernel/osrelease",
    );
    for ((major, minor), change, source) in missing_changes {
        rule_match = rule_match.evidence(format!("Linux {major}.{minor}"), *change, *source);
    }
    Some(rule_match)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PacketPath;

    fn matches(release: &str) -> Vec<RuleMatch> {
        RULE.once(&PacketPath::scripted([("/proc/sys/kernel/osrelease", release)]))
    }

    #[test]
    fn newest_and_unparsable_kernel_releases_have_no_finding() {
        for release in ["6.19.0", "7.0.0-rc1", "", "next"] {
            assert!(matches(release).is_empty(), "{release}");
        }
    }

    #[test]
    fn kernel_changes_are_sorted_by_version() {
        assert!(LATER.is_sorted_by_key(|(version, ..)| version));
    }
}
