//! Source validation by the reverse-path filter.

use super::{InterfaceRoute, RouteState, conf_name, conf_path, snmp};
use crate::amount;
use crate::finding::{CostUnit, Rule, RuleMatch, Severity};
use crate::stage::{HostView, PacketPath};
use crate::{Known, Setting};

/// Since this version, disabling `rp_filter` alone saves the second lookup (fib_validate_source in
/// net/ipv4/fib_frontend.c, commit 6e617de84e87). Earlier versions also required `accept_local`.
const CHEAP_WITHOUT_ACCEPT_LOCAL: (u32, u32) = (4, 15);

const STRICT: u32 = 1;

/// With more interfaces than this that have the value of `all`, such as those of containers, there
/// are no changes.
const MOST_OTHERS: usize = 8;

const DROPPED: &str = "TcpExt.IPReversePathFilter";
const RECEIVED: &str = "Ip.InReceives";

/// Share of received packets above which the filter's drops are reported.
const NOTABLE_SHARE: f64 = 0.001;

pub(in crate::stage) const VALIDATION: Rule = Rule {
    id: "route.source-validation",
    title: "Each packet's source is looked up too",
    why: "With rp_filter on, in either mode, the kernel looks up the route of each IPv4 packet a second \
          time, from its destination back to its source, and drops the packet if that does not lead back to \
          its interface. The larger value of `all` and of the interface is in effect. Before Linux 4.15 the \
          second lookup is skipped only if accept_local is also on, because it also guards against packets \
          from the host's own addresses; later kernels check that in a hash table instead.",
    effect: "5.38 to 5.49 M transactions/s (1.8 % of CPU in the second fib_table_lookup).",
    published_ratio: Some(5.49 / 5.38),
    source: "T. Makita, Boost UDP Transaction Performance, LinuxCon Japan 2016; net/ipv4/fib_frontend.c",
    kernels: "all; accept_local matters before 4.15. IPv4 only",
    remedy: "Set rp_filter to 0 for `all` and for the interface; before Linux 4.15 also accept_local to 1 for the interface. \
             First give other interfaces the value of `all`, so that the value in effect for them stays.",
    caveats: "The host routes for others, has several uplinks, its filter drops packets \
              (route.reverse-path-drops), or nothing in front of it drops packets with forged sources: a UDP service that answers them can be used for reflection attacks. If the \
              network filters at its edge (BCP 38), the host need not.",
    check: |view| check_validation(view).into_iter().collect(),
};

fn check_validation(view: &HostView<'_>) -> Option<RuleMatch> {
    let needs_accept_local = view.now.machine.kernel_is_at_least(CHEAP_WITHOUT_ACCEPT_LOCAL) == Some(false);
    let is_costly = |interface: &&InterfaceRoute| match interface.rp_filter.value() {
        Some(0) => needs_accept_local && interface.accept_local == Known::Value(false),
        Some(_) => true,
        None => false,
    };
    let interfaces: Vec<&InterfaceRoute> = view.now.route.interfaces.iter().filter(is_costly).collect();
    if interfaces.is_empty() {
        return None;
    }
    // A router needs the filter, and at a low rate the second lookup costs nothing.
    let is_router = view.now.route.snmp("Ip.Forwarding") == Some(1);
    let is_idle = view.now.socket.services.value().is_some()
        && !view.udp_services().any(|service| view.matters(service));
    let severity = if is_router || is_idle { Severity::Note } else { Severity::Low };
    let names: Vec<&str> = interfaces.iter().map(|interface| interface.interface.as_str()).collect();
    let title = format!("The route of each IPv4 packet is looked up twice on {}", names.join(", "));
    let rule_match = RuleMatch::new(severity, title).costs_per(CostUnit::IpPacket);
    let rule_match = add_global_filter(rule_match, &view.now.route);
    let rule_match = interfaces
        .iter()
        .fold(rule_match, |rule_match, interface| add_interface(rule_match, interface, needs_accept_local));
    // A filter that drops packets may protect the host: `DROPS` proposes a weaker mode.
    let has_changes = dependent_interfaces(&view.now.route).is_some() && check_drops(view).is_none();
    Some(if has_changes { rule_match } else { RuleMatch { changes: Vec::new(), ..rule_match } })
}

/// Other interfaces, whose value in effect is that of `all`, with their own smaller values. `None`
/// if `all` has to stay, so that the values of interfaces have no effect.
fn dependent_interfaces(route: &RouteState) -> Option<Vec<(&str, u32)>> {
    let Some(all) = route.rp_filter_all.value().copied().filter(|all| *all != 0) else {
        return Some(Vec::new());
    };
    let others = route.rp_filter_others.value()?;
    // New interfaces would become strict. A change of `default` also changes existing interfaces.
    if others.get("default").is_some_and(|default| *default == STRICT && all > STRICT) {
        return None;
    }
    let others = others.iter().filter(|(name, own)| *name != "default" && **own < all);
    let dependent: Vec<(&str, u32)> = others.map(|(name, own)| (name.as_str(), *own)).collect();
    (dependent.len() <= MOST_OTHERS).then_some(dependent)
}

fn add_global_filter(rule_match: RuleMatch, route: &RouteState) -> RuleMatch {
    let Some(all) = route.rp_filter_all.value().copied().filter(|all| *all != 0) else { return rule_match };
    let change = |rule_match: RuleMatch, name: &str, from: u32, to: u32| {
        rule_match.evidence(format!("rp_filter of {name}"), from, conf_path(name, "rp_filter")).change(
            Setting::sysctl(conf_name(name, "rp_filter")),
            Some(from),
            to,
        )
    };
    let others = dependent_interfaces(route).unwrap_or_default().into_iter();
    let rule_match = others.fold(rule_match, |rule_match, (name, own)| change(rule_match, name, own, all));
    change(rule_match, "all", all, 0)
}

fn add_interface(rule_match: RuleMatch, interface: &InterfaceRoute, needs_accept_local: bool) -> RuleMatch {
    let name = &interface.interface;
    let mut rule_match = rule_match;
    if let Some(own_value) = interface.rp_filter_own.value() {
        rule_match =
            rule_match.evidence(format!("rp_filter of {name}"), *own_value, conf_path(name, "rp_filter"));
        if *own_value != 0 {
            rule_match = rule_match.change(Setting::sysctl(conf_name(name, "rp_filter")), Some(own_value), 0);
        }
    }
    if needs_accept_local && interface.accept_local == Known::Value(false) {
        rule_match = rule_match
            .evidence(format!("accept_local of {name}"), 0, conf_path(name, "accept_local"))
            .change(Setting::sysctl(conf_name(name, "accept_local")), Some(0), 1);
    }
    rule_match
}

pub(in crate::stage) const DROPS: Rule = Rule {
    id: "route.reverse-path-drops",
    title: "The reverse-path filter drops packets",
    why: "A packet whose source is routed by another interface than it came by is dropped in strict mode \
          (1), one whose source has no route in loose mode (2). On a host with several uplinks, whose \
          replies leave by another interface, legitimate clients are dropped, and only this counter shows \
          it.",
    effect: "The counted packets reach the service, if they are legitimate.",
    published_ratio: None,
    source: "Linux Documentation/networking/ip-sysctl.rst, rp_filter; RFC 3704",
    kernels: "3.10 and later for the counter",
    remedy: "Find out whose packets they are (`log_martians` names them), then set loose mode (2) if the \
             routing is asymmetric on purpose.",
    caveats: "The packets are forged: the filter does its work.",
    check: |view| check_drops(view).into_iter().collect(),
};

fn check_drops(view: &HostView<'_>) -> Option<RuleMatch> {
    let counter = |name: &'static str| move |path: &PacketPath| path.route.snmp(name);
    let dropped_and_received =
        |read: &dyn Fn(&'static str) -> Option<f64>| Some((read(DROPPED)?, read(RECEIVED)?));
    let since_boot = |name: &'static str| view.now.route.snmp(name).map(|value| value as f64);
    let (when, severity, counts) = match view.before {
        Some(_) => ("per second", Severity::Medium, dropped_and_received(&|name| view.rate(counter(name)))),
        None => ("since boot", Severity::Low, dropped_and_received(&since_boot)),
    };
    let (dropped, received) = counts.filter(|(dropped, received)| *dropped > received * NOTABLE_SHARE)?;
    let severity = if view.is_small_loss(dropped) { Severity::Note } else { severity };
    let title = format!(
        "The reverse-path filter dropped {} of {} packets {when}",
        amount::rate(dropped),
        amount::rate(received)
    );
    let rule_match = RuleMatch::new(severity, title)
        .evidence(format!("{DROPPED}, {when}"), dropped, snmp::NETSTAT)
        .evidence(format!("{RECEIVED}, {when}"), received, snmp::SNMP);
    let is_strict = |interface: &&InterfaceRoute| interface.rp_filter == Known::Value(1);
    let add_strict_interface =
        |rule_match: RuleMatch, interface: &InterfaceRoute| {
            let name = &interface.interface;
            rule_match
                .evidence(format!("rp_filter in effect on {name}"), 1, conf_path(name, "rp_filter"))
                .change(Setting::sysctl(conf_name(name, "rp_filter")), interface.rp_filter_own.value(), 2)
        };
    Some(view.now.route.interfaces.iter().filter(is_strict).fold(rule_match, add_strict_interface))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, Scope};

    fn host(kernel: &str, all: &str, own: &str, accept_local: &str, forwarding: u32) -> PacketPath {
        let files = [
            ("/proc/sys/kernel/osrelease".to_owned(), kernel.to_owned()),
            (conf_path("all", "rp_filter"), all.to_owned()),
            (conf_path("all", "accept_local"), "0".to_owned()),
            (conf_path("ens1f0", "rp_filter"), own.to_owned()),
            (conf_path("ens1f0", "accept_local"), accept_local.to_owned()),
            (snmp::SNMP.to_owned(), format!("Ip: Forwarding\nIp: {forwarding}\n")),
        ];
        let host = Host::scripted(files);
        let mut path = PacketPath::observe(&host, &Scope::default());
        path.route = super::super::RouteState::observe(&host, &["ens1f0"]);
        path
    }

    #[test]
    fn disabling_validation_also_sets_accept_local_before_linux_4_15() {
        let half_fixed = VALIDATION.once(&host("4.6.3", "0", "0", "0", 2));
        assert_eq!(half_fixed[0].change_commands(), ["sysctl -w net.ipv4.conf.ens1f0.accept_local=1"]);
        let loose = VALIDATION.once(&host("6.1.0", "0", "2", "0", 2));
        assert_eq!(loose[0].change_commands(), ["sysctl -w net.ipv4.conf.ens1f0.rp_filter=0"]);
        assert!(VALIDATION.once(&host("6.1.0", "0", "0", "0", 2)).is_empty());
    }

    #[test]
    fn source_validation_is_not_reported_if_off_and_a_note_on_routers() {
        assert!(VALIDATION.once(&host("4.6.3", "0", "0", "1", 2)).is_empty());
        assert_eq!(VALIDATION.once(&host("4.6.3", "1", "1", "0", 1))[0].severity, Severity::Note);
        assert!(VALIDATION.once(&host("4.6.3", "x", "1", "0", 2)).is_empty());
        // Without a kernel version the effect of accept_local is unknown.
        assert!(VALIDATION.once(&host("", "0", "0", "0", 2)).is_empty());
    }

    #[test]
    fn lowering_all_keeps_the_value_in_effect_of_other_interfaces() {
        for (all, others, expected) in [
            ("2", &[("bond0", "1"), ("eth0.100", "0"), ("wg0", "2")][..], &["bond0=2", "eth0/100=2"][..]),
            ("1", &[("docker0", "0"), ("default", "0")], &["docker0=1"]),
            ("2", &[("default", "2"), ("docker0", "2")], &[]),
            ("0", &[("default", "1"), ("docker0", "1")], &[]),
        ] {
            let path = with_others(all, others);
            let expected_others: Vec<String> = expected
                .iter()
                .map(|value| format!("sysctl -w net.ipv4.conf.{}", value.replace('=', ".rp_filter=")))
                .collect();
            let mut expected = expected_others;
            if all != "0" {
                expected.push("sysctl -w net.ipv4.conf.all.rp_filter=0".to_owned());
            }
            expected.push("sysctl -w net.ipv4.conf.ens1f0.rp_filter=0".to_owned());
            assert_eq!(VALIDATION.once(&path)[0].change_commands(), expected, "{all} {others:?}");
        }
    }

    #[test]
    fn source_validation_has_no_changes_if_all_has_to_stay() {
        let many: Vec<String> = (0..9).map(|number| format!("veth{number}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "0")).collect();
        for others in [&[("default", "1")][..], many.as_slice(), &[("eth1", "on")]] {
            let matches = VALIDATION.once(&with_others("2", others));
            assert_eq!(
                (matches[0].severity, matches[0].change_commands()),
                (Severity::Low, Vec::<String>::new()),
                "{others:?}"
            );
        }
    }

    /// Linux 6.1 with this value of `all` and these other interfaces; ens1f0 has 1.
    fn with_others(all: &str, others: &[(&str, &str)]) -> PacketPath {
        let mut path = host("6.1.0", all, "1", "0", 2);
        let own = [("all", all), ("ens1f0", "1"), ("lo", "0")];
        let files = own.iter().chain(others).map(|(name, value)| (conf_path(name, "rp_filter"), *value));
        path.route =
            RouteState { snmp: path.route.snmp, ..RouteState::observe(&Host::scripted(files), &["ens1f0"]) };
        path
    }

    #[test]
    fn source_validation_is_a_note_without_a_udp_service() {
        let mut path = host("6.1.0", "2", "2", "0", 2);
        assert_eq!(VALIDATION.once(&path)[0].severity, Severity::Low);
        path.socket.services = Known::Value(Vec::new());
        assert_eq!(VALIDATION.once(&path)[0].severity, Severity::Note);
    }

    fn drop_reading(uptime: &str, drops: u64, received: u64) -> PacketPath {
        let files = [
            ("/proc/uptime".to_owned(), format!("{uptime} 1.0\n")),
            (snmp::SNMP.to_owned(), format!("Ip: InReceives\nIp: {received}\n")),
            (snmp::NETSTAT.to_owned(), format!("TcpExt: IPReversePathFilter\nTcpExt: {drops}\n")),
            (conf_path("all", "rp_filter"), "0".to_owned()),
            (conf_path("ens1f0", "rp_filter"), "1".to_owned()),
        ];
        let host = Host::scripted(files);
        let mut path = PacketPath::observe(&host, &Scope::default());
        path.route = super::super::RouteState::observe(&host, &["ens1f0"]);
        path
    }

    #[test]
    fn current_reverse_path_drops_outweigh_drops_since_boot() {
        let (before, now) = (drop_reading("10.0", 100, 1000), drop_reading("12.0", 300, 3000));
        assert_eq!(DROPS.twice(&before, &now)[0].severity, Severity::Medium);
        let since_boot = DROPS.once(&now);
        let title = "The reverse-path filter dropped 300 of 3,000 packets since boot";
        assert_eq!(since_boot[0].summary(), (Severity::Low, title));
        assert!(VALIDATION.once(&now)[0].changes.is_empty(), "the filter is not switched off meanwhile");
        let single = drop_reading("12.0", 101, 1900);
        assert_eq!(DROPS.twice(&before, &single)[0].severity, Severity::Note);
        assert_eq!(DROPS.once(&drop_reading("10.0", 1, 900))[0].severity, Severity::Note);
    }

    #[test]
    fn old_or_rare_reverse_path_drops_are_not_reported() {
        let (before, now) = (drop_reading("10.0", 300, 1000), drop_reading("12.0", 300, 3000));
        assert!(DROPS.twice(&before, &now).is_empty());
        assert!(DROPS.once(&drop_reading("10.0", 3, 1_000_000)).is_empty());
        assert!(DROPS.once(&drop_reading("10.0", 0, 0)).is_empty());
    }
}
