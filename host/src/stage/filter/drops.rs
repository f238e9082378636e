//! Packets that rules drop; the kernel has no named counter for them.

use super::FilterState;
use crate::PacketPath;
use crate::amount;
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::HostView;

pub(in crate::stage) const RULE: Rule = Rule {
    id: "filter.rule-drops",
    title: "Firewall rules or blackhole routes drop packets that the host received",
    why: "A packet that a rule drops at prerouting or input, or that a blackhole route drops, was received, but no \
          socket gets it and no counter of the IP layer names it. The number of such packets is the packets received \
          minus those that were delivered, forwarded or counted as an error.",
    effect: "If they belong to the service: each is a request without an answer.",
    published_ratio: None,
    source: "net/ipv4/ip_input.c, ip_rcv_core and ip_local_deliver_finish; RFC 4293, ipSystemStats",
    kernels: "all; IPv4 only",
    remedy: "See which packets and which rule: `linerate drops --port PORT` counts them by port and reason, `nft list ruleset` and \
             `iptables -nvL` show the counters of rules, `ip route show table all type blackhole` the routes. Change a \
             limit that is too low for the service.",
    caveats: "The rules are meant to drop these packets.",
    check: |view| find_unaccounted_drops(view).into_iter().collect(),
};

const RECEIVED: &str = "Ip.InReceives";

/// Counters that account for packets that IP received.
const ACCOUNTED: [&str; 11] = [
    "Ip.InDelivers",
    "Ip.ForwDatagrams",
    // To be forwarded, and larger than the MTU (ip_forward in net/ipv4/ip_forward.c). The same
    // failure of an own packet only makes the result smaller.
    "Ip.FragFails",
    "Ip.InHdrErrors",
    "Ip.InAddrErrors",
    "Ip.InUnknownProtos",
    "Ip.InDiscards",
    "Ip.ReasmReqds",
    "IpExt.InNoRoutes",
    "IpExt.InTruncatedPkts",
    "TcpExt.IPReversePathFilter",
];

/// Packets per second below which nothing is reported, because two files are read one after the
/// other, and some multicast packets without a member are not counted anywhere.
const FEWEST: f64 = 20.0;

/// Share of received packets that a service is likely to notice.
const MANY: f64 = 0.01;

fn find_unaccounted_drops(view: &HostView<'_>) -> Option<RuleMatch> {
    if !has_rules(&view.now.filter) || may_forward_by_ipvs(&view.now.filter) {
        return None;
    }
    let earlier = unaccounted_packets(view.before?)?;
    let growth = unaccounted_packets(view.now)?.checked_sub(earlier).filter(|growth| *growth > 0)?;
    let drop_rate = growth as f64 / view.seconds()?;
    let receive_rate = view.rate(|path| path.route.snmp(RECEIVED))?;
    if drop_rate < FEWEST {
        return None;
    }
    let affects_service = drop_rate >= receive_rate * MANY && view.has_busy_udp_service();
    let severity = if affects_service { Severity::Medium } else { Severity::Note };
    let title = format!(
        "Firewall rules or blackhole routes drop {} of {} IPv4 packets/s that were received",
        amount::rate(drop_rate),
        amount::rate(receive_rate)
    );
    let counters =
        "/proc/net/snmp and netstat: InReceives without all that was delivered, forwarded or an error";
    Some(
        RuleMatch::new(severity, title)
            .evidence("packets/s that no counter accounts for", drop_rate.round(), counters)
            .command(inspection_command(view)),
    )
}

fn inspection_command(view: &HostView<'_>) -> String {
    match view.udp_services().find(|service| service.named) {
        Some(service) => format!("linerate drops --port {}", service.local.port()),
        None => "nft list ruleset".to_owned(),
    }
}

/// Received packets that no counter accounts for. Only the growth of this number is meaningful.
fn unaccounted_packets(path: &PacketPath) -> Option<i128> {
    let count = |name: &str| path.route.snmp(name).map(i128::from);
    let mut packets = count(RECEIVED)?;
    for name in ACCOUNTED {
        packets -= count(name).unwrap_or(0);
    }
    // A reassembled datagram is delivered once, and its fragments were counted separately.
    Some(packets + count("Ip.ReasmOKs").unwrap_or(0))
}

fn has_rules(filter: &FilterState) -> bool {
    let nftables = filter.nftables.value().is_some_and(|tables| {
        tables.iter().any(|table| table.hooks > 0 && !table.dormant && (table.rules > 0 || table.drops))
    });
    let iptables = filter.iptables.value().is_some_and(|tables| {
        tables.iter().any(|table| table.content.value().is_none_or(|content| content.rules > 0))
    });
    nftables || iptables
}

// At the input hook IPVS takes a packet and sends it to a server itself, which no counter of the IP
// layer counts (ip_vs_in_hook, net/netfilter/ipvs/ip_vs_core.c, Linux 6.18). All of its functions
// at hooks have this prefix. If their names are unknown, the loaded module decides.
fn may_forward_by_ipvs(filter: &FilterState) -> bool {
    match filter.hooks.value() {
        Some(hooks) if hooks.iter().all(|hook| !hook.function.is_empty()) => {
            hooks.iter().any(|hook| hook.function.starts_with("ip_vs_"))
        }
        _ => filter.modules.value().and_then(Option::as_ref).is_some_and(|names| names.contains("ip_vs")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::filter::{NetfilterHook, NftTable};
    use crate::stage::socket::sample::{host, later, service};

    fn path(received: u64, delivered: u64, errors: u64) -> PacketPath {
        let mut path = host(&[]).with(service(1), Vec::new());
        let counters = [(RECEIVED, received), ("Ip.InDelivers", delivered), ("Ip.InHdrErrors", errors)];
        path.route.snmp = Known::Value(counters.map(|(name, value)| (name.to_owned(), value)).into());
        let table = NftTable { rules: 1, hooks: 1, ..NftTable::default() };
        path.filter.nftables = Known::Value(vec![table]);
        path.filter.iptables = Known::Value(Vec::new());
        path
    }

    fn matches(before: &PacketPath, now: &PacketPath) -> Vec<RuleMatch> {
        RULE.twice(before, &later(now))
    }

    #[test]
    fn packets_too_large_to_forward_are_no_firewall_drops() {
        let with_failures = |mut path: PacketPath, failures: u64| {
            path.route.snmp.expect_mut().insert("Ip.FragFails".to_owned(), failures);
            path
        };
        let before = with_failures(path(500, 400, 0), 7);
        assert!(matches(&before, &with_failures(path(100_500, 90_400, 0), 10_007)).is_empty());
    }

    #[test]
    fn packets_that_ipvs_takes_are_no_firewall_drops() {
        let (before, mut now) = (path(500, 400, 0), path(100_500, 90_400, 0));
        let hook = |function: &str| NetfilterHook {
            family: "ip".into(),
            hook: "input".into(),
            interface: None,
            priority: 98,
            function: function.into(),
            module: String::new(),
        };
        // The second is of older kernels.
        for function in ["ip_vs_in_hook", "ip_vs_remote_request4"] {
            now.filter.hooks = Known::Value(vec![hook("nf_hook"), hook(function)]);
            assert!(matches(&before, &now).is_empty(), "{function}");
        }
        now.filter.modules = Known::Value(Some(["ip_vs".to_owned()].into()));
        now.filter.hooks = Known::Value(vec![hook("nf_hook")]);
        assert_eq!(matches(&before, &now).len(), 1, "IPVS has no service");
        for hooks in [Known::unknown("the kernel is old"), Known::Value(vec![hook("")])] {
            now.filter.hooks = hooks;
            assert!(matches(&before, &now).is_empty(), "{:?}", now.filter.hooks);
        }
    }

    #[test]
    fn header_errors_rare_losses_and_missing_rules_are_no_firewall_drops() {
        assert!(matches(&path(0, 0, 0), &path(100_000, 90_000, 10_000)).is_empty());
        assert!(matches(&path(0, 0, 0), &path(100_000, 99_900, 0)).is_empty());
        let rule_match = matches(&path(0, 0, 0), &path(1_000_000, 999_000, 0)).remove(0);
        assert_eq!(rule_match.severity, Severity::Note);
        assert_eq!(rule_match.commands, ["linerate drops --port 53"]);
        let mut now = path(100_000, 90_000, 0);
        now.filter.nftables = Known::Value(Vec::new());
        assert!(matches(&path(0, 0, 0), &now).is_empty());
        assert!(RULE.once(&path(100_000, 90_000, 0)).is_empty());
    }
}
