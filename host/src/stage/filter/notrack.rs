//! Connection tracking of a UDP service's packets.

use std::collections::BTreeSet;

use super::{ConntrackState, FilterState, IpFamily, conntrack};
use crate::Setting;
use crate::amount;
use crate::finding::{CostUnit, Rule, RuleMatch, Severity};
use crate::setting::{NftFamily, SettingValue};
use crate::stage::socket::ServiceSockets;
use crate::stage::{HostView, PacketPath};

/// Fill level of the table above which a burst of new flows fills it.
const NEARLY_FULL: f64 = 0.9;

/// Packets, or packets per second, below which a loss is not reported.
const FEWEST_LOST: f64 = 0.5;

/// Name of the table that excludes a service's packets from tracking.
const TABLE: &str = "linerate_notrack";

/// With more services than this there are no commands, because a long list is not a remedy.
const MOST_PORTS: usize = 8;

pub(in crate::stage) const RULE: Rule = Rule {
    id: "filter.conntrack-for-udp",
    title: "Packets of a UDP service are tracked",
    why: "Connection tracking looks up each packet in its table, and creates an entry for each new flow, \
          which stays for at least 30 seconds. A service that answers many clients fills the table with \
          flows of two packets; when it is full, packets of new flows are dropped.",
    effect: "No lookup and no entry for each flow, and no packet lost to a full table.",
    published_ratio: None,
    source: "Linux Documentation/networking/nf_conntrack-sysctl.rst; net/netfilter/nf_conntrack_core.c, nf_conntrack_in",
    kernels: "all; before 4.10 packets are tracked as soon as the module is loaded, later if a rule requests \
              it",
    remedy: "Keep the service's packets from being tracked, both ways, by `notrack` rules at priority raw. A \
             rule that accepts established flows no longer matches them, so accept the port explicitly. If \
             tracking has to stay, raise nf_conntrack_max.",
    caveats: "The service is behind NAT on this host, or rules about the state of its flows are required.",
    check,
};

fn check(view: &HostView<'_>) -> Vec<RuleMatch> {
    let filter = &view.now.filter;
    let Some(Some(conntrack)) = filter.conntrack.value() else { return Vec::new() };
    if only_old_entries(view) {
        return Vec::new();
    }
    let lost = lost(view, conntrack);
    let full = fullness(conntrack).filter(|share| *share >= NEARLY_FULL);
    // A table that loses packets affects every service; otherwise only services with traffic
    // matter.
    let services: Vec<&ServiceSockets> = view
        .udp_services()
        .filter(|service| lost.is_some() || full.is_some() || view.matters(service))
        .collect();
    let Some(first) = services.first().filter(|_| filter.tracks() == Some(true)) else { return Vec::new() };
    let ports: BTreeSet<u16> = services.iter().map(|service| service.local.port()).collect();
    let severity = match (&lost, full) {
        (Some(ConntrackLoss { now: true, .. }), _) | (_, Some(_)) => Severity::High,
        (Some(_), _) => Severity::Medium,
        _ if perhaps_exempt(filter) => Severity::Note,
        _ => Severity::Medium,
    };
    let mut title = format!("Packets of {} are tracked as connections", first.name());
    if services.len() > 1 {
        title = format!("Packets of {} UDP services are tracked as connections", services.len());
    }
    if let Some(share) = full {
        title += &format!(", and the table is {:.0} % full", share * 100.0);
    }
    if let Some(lost) = &lost {
        title += &format!(", and tracking dropped {} packets {}", amount::rate(lost.packets), lost.when);
    }
    let mut matched = evidence(RuleMatch::new(severity, title), filter, conntrack);
    if lost.is_none() && full.is_none() {
        matched = matched.costs_per(CostUnit::UdpDatagram);
    }
    vec![remedy(matched, filter, &ports)]
}

/// Whether entries are the only sign of tracking, and no rule is left that could request it.
/// Entries outlive the last rule by minutes, but since Linux 4.10 the kernel tracks nothing without
/// such a rule.
fn only_old_entries(view: &HostView<'_>) -> bool {
    let filter = &view.now.filter;
    let hooks = filter.hooks.value().into_iter().flatten();
    let empty =
        |table: &super::IptablesTableState| table.content.value().is_some_and(|content| content.rules == 0);
    hooks.filter(|hook| hook.function.contains("conntrack_in")).count() == 0
        && filter.nftables.value().is_some_and(Vec::is_empty)
        && filter.iptables.value().is_some_and(|tables| tables.iter().all(empty))
        && view.now.machine.kernel_is_at_least(4, 10) == Some(true)
}

struct ConntrackLoss {
    packets: f64,
    when: &'static str,
    now: bool,
}

fn lost(view: &HostView<'_>, conntrack: &ConntrackState) -> Option<ConntrackLoss> {
    let drops = |path: &PacketPath| path.filter.conntrack.value()?.as_ref()?.drops();
    let lost = match view.before {
        Some(_) => ConntrackLoss { packets: view.rate(drops)?, when: "per second", now: true },
        None => ConntrackLoss { packets: conntrack.drops()? as f64, when: "since boot", now: false },
    };
    (lost.packets >= FEWEST_LOST).then_some(lost)
}

fn fullness(conntrack: &ConntrackState) -> Option<f64> {
    let (count, max) = (*conntrack.count.value()?, *conntrack.max.value()?);
    // 0 means no limit (nf_conntrack_alloc).
    (max > 0).then(|| count as f64 / max as f64)
}

/// Whether there are rules at the hook of `notrack` rules, which may exempt these packets already:
/// the rules themselves are not read.
fn perhaps_exempt(filter: &FilterState) -> bool {
    let raw = |table: &super::IptablesTableState| {
        table.name == "raw" && table.content.value().is_none_or(|content| content.rules > 0)
    };
    filter.iptables.value().is_some_and(|tables| tables.iter().any(raw))
        || filter.nftables.value().is_some_and(|tables| tables.iter().any(|table| table.before_tracking))
}

fn evidence(matched: RuleMatch, filter: &FilterState, conntrack: &ConntrackState) -> RuleMatch {
    let mut matched = matched;
    let hooks = filter.hooks.value().map_or(&[][..], Vec::as_slice);
    if let Some(hook) = hooks.iter().find(|hook| hook.function.contains("conntrack_in")) {
        let what = format!("function at the hook {} of {}", hook.hook, hook.family);
        matched = matched.evidence(what, hook.function.clone(), "nfnetlink, NFNL_MSG_HOOK_GET");
    }
    if let Some(count) = conntrack.count.value() {
        matched = matched.evidence("entries in the table", *count, conntrack::COUNT);
    }
    if let Some(max) = conntrack.max.value() {
        matched = matched.evidence("entries there can be", *max, conntrack::MAX);
    }
    match conntrack.drops() {
        Some(drops) => matched.evidence(
            "packets without an entry since boot: drop and insert_failed",
            drops,
            conntrack::STATISTICS,
        ),
        None => matched,
    }
}

fn remedy(matched: RuleMatch, filter: &FilterState, ports: &BTreeSet<u16>) -> RuleMatch {
    if ports.len() > MOST_PORTS {
        return matched;
    }
    let iptables = filter.iptables.value().is_some_and(|tables| !tables.is_empty());
    let nftables = filter.nftables.value().is_some_and(|tables| !tables.is_empty());
    let list: Vec<String> = ports.iter().map(u16::to_string).collect();
    if iptables && !nftables {
        let rule = |chain: &str, port: &str| Setting::IptablesRule {
            family: IpFamily::Ip,
            table: "raw".to_owned(),
            chain: chain.to_owned(),
            rule: format!("-p udp {port} -j NOTRACK"),
        };
        return list.iter().fold(matched, |matched, port| {
            matched
                .change(rule("PREROUTING", &format!("--dport {port}")), None, SettingValue::new("present"))
                .change(rule("OUTPUT", &format!("--sport {port}")), None, SettingValue::new("present"))
        });
    }
    let list = list.join(", ");
    let chain = |hook: &str, port: &str| {
        format!(
            "\tchain {hook} {{\n\t\ttype filter hook {hook} priority raw; policy accept;\n\t\tudp {port} {{ {list} }} notrack\n\t}}\n"
        )
    };
    let ruleset =
        format!("table inet {TABLE} {{\n{}{}}}", chain("prerouting", "dport"), chain("output", "sport"));
    let rule = |hook: &str, port: &str| {
        [
            format!("nft 'add chain inet {TABLE} {hook} {{ type filter hook {hook} priority raw; }}'"),
            format!("nft 'add rule inet {TABLE} {hook} udp {port} {{ {list} }} notrack'"),
        ]
    };
    let commands = std::iter::once(format!("nft add table inet {TABLE}"))
        .chain(rule("prerouting", "dport"))
        .chain(rule("output", "sport"));
    let known = filter.nftables.value().map(|tables| tables.iter().any(|table| table.name == TABLE));
    let from = (known == Some(false)).then(|| SettingValue::new(""));
    let matched = matched.change(
        Setting::NftTable { family: NftFamily::Inet, table: TABLE.to_owned() },
        from,
        SettingValue::new(ruleset),
    );
    commands.fold(matched, RuleMatch::command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::socket::sample::service;
    use crate::{Host, Known, Scope};

    const HOOK: (&str, &str) = (
        "/calls/nfnetlink/hooks.json",
        r#"[{"family": "ip", "hook": "prerouting", "priority": -200, "function": "ipv4_conntrack_in"}]"#,
    );
    const NO_TABLES: (&str, &str) = ("/calls/nfnetlink/tables.json", "[]");

    fn path(count: u64, drops: u32, named: bool, files: &[(&str, &str)]) -> PacketPath {
        let host = Host::scripted(
            [
                (conntrack::COUNT.to_owned(), count.to_string()),
                (conntrack::MAX.to_owned(), "1000".to_owned()),
                (conntrack::STATISTICS.to_owned(), format!("insert_failed drop\n0 {drops:x}\n")),
                ("/proc/uptime".to_owned(), format!("{} 1\n", 100 + drops)),
            ]
            .into_iter()
            .chain(files.iter().map(|(path, content)| ((*path).to_owned(), (*content).to_owned()))),
        );
        let mut path = PacketPath::observe(&host, &Scope::default());
        path.socket.services = Known::Value(vec![ServiceSockets { named, ..service(0) }]);
        path
    }

    fn found(path: &PacketPath) -> RuleMatch {
        check(&HostView::once(path)).pop().expect("a matched")
    }

    #[test]
    fn a_tracked_service_gets_rules_that_keep_it_untracked() {
        let matched = found(&path(10, 0, true, &[HOOK, NO_TABLES]));
        assert_eq!(matched.title, "Packets of udp 10.0.0.1:53 (echo) are tracked as connections");
        assert_eq!(matched.severity, Severity::Medium);
        assert_eq!(
            (&*matched.evidence[0].what, &matched.evidence[0].value),
            ("function at the hook prerouting of ip", &"ipv4_conntrack_in".into())
        );
        assert_eq!(
            matched.commands[2],
            "nft 'add rule inet linerate_notrack prerouting udp dport { 53 } notrack'"
        );
        assert_eq!(matched.changes[0].from, Some(SettingValue::new("")));
        assert!(matched.changes[0].to.as_str().contains("udp sport { 53 } notrack"));
        // Nobody named the service, and no traffic is known.
        assert!(check(&HostView::once(&path(10, 0, false, &[HOOK, NO_TABLES]))).is_empty());
    }

    #[test]
    fn a_table_that_fills_up_or_drops_weighs_most() {
        let full = found(&path(950, 0, false, &[HOOK, NO_TABLES]));
        assert_eq!(full.severity, Severity::High);
        assert!(full.title.ends_with("as connections, and the table is 95 % full"), "{}", full.title);
        let (before, now) =
            (path(10, 10, false, &[HOOK, NO_TABLES]), path(10, 30, false, &[HOOK, NO_TABLES]));
        let dropping = check(&HostView::twice(&before, &now)).pop().expect("a matched");
        assert_eq!(dropping.severity, Severity::High);
        assert!(dropping.title.ends_with("and tracking dropped 1 packets per second"), "{}", dropping.title);
        let once = found(&now);
        assert_eq!(once.severity, Severity::Medium);
        assert!(once.title.ends_with("dropped 30 packets since boot"), "{}", once.title);
    }

    #[test]
    fn iptables_hosts_get_iptables_rules_and_rules_before_tracking_make_it_a_note() {
        let tables = [
            ("/proc/net/ip_tables_names", "filter\nraw\n"),
            ("/calls/iptables/ip/filter.json", r#"{"rules": 4, "hooks": 3}"#),
            ("/calls/iptables/ip/raw.json", r#"{"rules": 2, "hooks": 2}"#),
        ];
        let matched = found(&path(10, 0, true, &[HOOK, NO_TABLES, tables[0], tables[1], tables[2]]));
        assert_eq!(matched.severity, Severity::Note);
        let typed = |change: &crate::SettingChange| change.setting.command(&change.to);
        let typed: Vec<String> = matched.changes.iter().filter_map(typed).collect();
        assert_eq!(typed[0], "iptables -t raw -A PREROUTING -p udp --dport 53 -j NOTRACK");
        assert_eq!(typed[1], "iptables -t raw -A OUTPUT -p udp --sport 53 -j NOTRACK");
    }

    #[test]
    fn a_chain_before_tracking_makes_it_a_note_and_one_after_does_not() {
        let table = |content| ("/calls/nfnetlink/tables.json", content);
        let raw =
            table(r#"[{"family": "ip", "name": "raw", "rules": 1, "hooks": 1, "before_tracking": true}]"#);
        assert_eq!(found(&path(10, 0, true, &[HOOK, raw])).severity, Severity::Note);
        let after = table(r#"[{"family": "ip", "name": "filter", "rules": 9, "hooks": 3}]"#);
        assert_eq!(found(&path(10, 0, true, &[HOOK, after])).severity, Severity::Medium);
    }

    #[test]
    fn without_hooks_known_entries_tell() {
        assert_eq!(found(&path(10, 0, true, &[NO_TABLES])).severity, Severity::Medium);
        assert!(check(&HostView::once(&path(0, 0, true, &[NO_TABLES]))).is_empty());
    }

    #[test]
    fn entries_that_outlive_the_last_rule_are_no_tracking() {
        let mut gone = path(10, 0, true, &[NO_TABLES]);
        gone.filter.nftables = Known::Value(Vec::new());
        gone.filter.iptables = Known::Value(Vec::new());
        gone.machine.kernel = Known::Value("6.18.44".to_owned());
        assert!(check(&HostView::once(&gone)).is_empty());
        gone.machine.kernel = Known::Value("4.4.0".to_owned());
        assert_eq!(check(&HostView::once(&gone)).len(), 1, "there the module is enough");
    }

    #[test]
    fn where_nothing_is_tracked_or_served_it_is_left_alone() {
        let no_hook = ("/calls/nfnetlink/hooks.json", "[]");
        assert!(check(&HostView::once(&path(0, 0, true, &[no_hook, NO_TABLES]))).is_empty());
        let mut tcp = path(10, 0, true, &[HOOK, NO_TABLES]);
        tcp.socket.services = Known::Value(Vec::new());
        assert!(check(&HostView::once(&tcp)).is_empty());
        let mut unloaded = path(10, 0, true, &[HOOK, NO_TABLES]);
        unloaded.filter.conntrack = Known::Value(None);
        assert!(check(&HostView::once(&unloaded)).is_empty());
    }
}
