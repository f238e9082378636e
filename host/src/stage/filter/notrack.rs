//! Connection tracking of a UDP service's packets.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{ConntrackState, FilterState, IpFamily, IptablesTableState, conntrack};
use crate::Setting;
use crate::amount;
use crate::finding::{CostUnit, Rule, RuleMatch, Severity};
use crate::process::PORT_PROXIES;
use crate::setting::{NftFamily, SettingValue};
use crate::stage::socket::ServiceSockets;
use crate::stage::socket::load::IP_PACKETS;
use crate::stage::{HostView, PacketPath};

/// Fill level of the table above which a burst of new flows fills it.
const NEARLY_FULL: f64 = 0.9;

/// Packets per second below which a loss is not reported.
const FEWEST_LOST: f64 = 0.5;

/// Below this share of received packets, or this number, losses since boot are not a current
/// problem.
const PART_SINCE_BOOT: f64 = 0.001;
const LEAST_SINCE_BOOT: u64 = 1_000;

/// Name of the table that excludes a service's packets from tracking.
const TABLE: &str = "linerate_notrack";

/// Forwarded packets also pass prerouting. NAT skips packets that are not tracked (nf_nat_inet_fn in
/// net/netfilter/nf_nat_core.c), so a rule there is limited to local addresses.
const REQUESTS: &str = "fib daddr type local udp dport";
const REPLIES: &str = "udp sport";

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
    remedy: "Keep the service's packets from being tracked, both ways, by `notrack` rules at priority raw. The \
             rule for requests is limited to local addresses, because NAT of forwarded packets requires \
             tracking. A rule that accepts established flows no longer matches them, so accept the port \
             explicitly. If tracking has to stay, raise nf_conntrack_max. linerate proposes no rules where rules \
             of NAT may send requests for other ports or addresses to the service.",
    caveats: "The service, or an address of it, is behind NAT or IPVS on this host, such as a port that Docker \
              or Podman publishes, or a service address of Kubernetes; or rules about the state of its flows \
              are required.",
    check: |view| check(view).into_iter().collect(),
};

fn check(view: &HostView<'_>) -> Option<RuleMatch> {
    let filter = &view.now.filter;
    let conntrack = filter.conntrack.value()?.as_ref()?;
    if has_only_old_entries(view) {
        return None;
    }
    let loss = conntrack_loss(view, conntrack);
    let fill = fill_level(conntrack).filter(|share| *share >= NEARLY_FULL);
    // A table that loses packets affects every service; otherwise only services with traffic
    // matter.
    let services: Vec<&ServiceSockets> = view
        .udp_services()
        .filter(|service| loss.is_some() || fill.is_some() || view.matters(service))
        .collect();
    let service = services.first().filter(|_| filter.tracks() == Some(true))?;
    let may_be_exempt = may_be_exempt(filter, &services);
    let severity = match (&loss, fill) {
        (Some(ConntrackLoss { now: true, .. }), _) | (_, Some(_)) => Severity::High,
        (Some(_), _) => Severity::Medium,
        _ if may_be_exempt => Severity::Note,
        _ => Severity::Medium,
    };
    let is_full = loss.is_some() || fill.is_some();
    let mut title = match services.len() {
        // Other packets may fill the table.
        _ if is_full && may_be_exempt => "Connections are tracked".to_owned(),
        1 => format!("Packets of {} are tracked as connections", service.name()),
        count => format!("Packets of {count} UDP services are tracked as connections"),
    };
    if let Some(share) = fill {
        title += &format!(", and the table is {:.0} % full", share * 100.0);
    }
    if let Some(loss) = &loss {
        title += &format!(", and tracking dropped {} packets {}", amount::rate(loss.packets), loss.when);
    }
    let mut rule_match = add_evidence(RuleMatch::new(severity, title), filter, conntrack);
    if !is_full {
        rule_match = rule_match.costs_per(CostUnit::UdpDatagram);
    }
    Some(if is_full && may_be_exempt { rule_match } else { add_remedy(rule_match, filter, &services) })
}

/// Whether entries are the only sign of tracking, and no rule is left that could request it.
/// Entries outlive the last rule by minutes, but since Linux 4.10 the kernel tracks nothing without
/// such a rule.
fn has_only_old_entries(view: &HostView<'_>) -> bool {
    let filter = &view.now.filter;
    let hooks = filter.hooks.value().into_iter().flatten();
    let is_empty =
        |table: &IptablesTableState| table.content.value().is_some_and(|content| content.rules == 0);
    hooks.filter(|hook| hook.function.contains("conntrack_in")).count() == 0
        && filter.nftables.value().is_some_and(Vec::is_empty)
        && filter.iptables.value().is_some_and(|tables| tables.iter().all(is_empty))
        && view.now.machine.kernel_is_at_least((4, 10)) == Some(true)
}

struct ConntrackLoss {
    packets: f64,
    when: &'static str,
    now: bool,
}

fn conntrack_loss(view: &HostView<'_>, conntrack: &ConntrackState) -> Option<ConntrackLoss> {
    let drops = |path: &PacketPath| path.filter.conntrack.value()?.as_ref()?.drops();
    if view.before.is_some() {
        let packets = view.rate(drops).filter(|rate| *rate >= FEWEST_LOST)?;
        return Some(ConntrackLoss { packets, when: "per second", now: true });
    }
    let drops = conntrack.drops().filter(|drops| *drops >= LEAST_SINCE_BOOT)? as f64;
    let received = view.now.route.snmp_sum(&IP_PACKETS).unwrap_or(0) as f64;
    let is_current = drops >= received * PART_SINCE_BOOT;
    is_current.then_some(ConntrackLoss { packets: drops, when: "since boot", now: false })
}

fn fill_level(conntrack: &ConntrackState) -> Option<f64> {
    let (count, max) = (*conntrack.count.value()?, *conntrack.max.value()?);
    // 0 means no limit (nf_conntrack_alloc).
    (max > 0).then(|| count as f64 / max as f64)
}

/// Modules of rules that change destinations: DNAT, REDIRECT and NETMAP.
const DESTINATION_NAT: [&str; 5] = ["nft_nat", "nft_redir", "xt_NETMAP", "xt_REDIRECT", "xt_nat"];

/// Whether rules of NAT may send packets for other ports or addresses to these services: the rules
/// themselves are not read. The replies have to be tracked, or they leave with the wrong source.
fn may_be_translated(filter: &FilterState, services: &[&ServiceSockets]) -> bool {
    let is_destination_nat = |name: &String| DESTINATION_NAT.iter().any(|prefix| name.starts_with(prefix));
    // If NAT is a module, the rules that change destinations are modules, too.
    if let Some(Some(modules)) = filter.modules.value()
        && modules.contains("nf_nat")
        && !modules.iter().any(is_destination_nat)
    {
        return false;
    }
    filter.iptables.value().is_none()
        || has_iptables_rules(filter, services, "nat")
        || filter.nftables.value().is_none_or(|tables| tables.iter().any(|table| table.destination_nat))
}

/// Whether there are rules at the hook of `notrack` rules, which may exempt these packets already:
/// the rules themselves are not read.
fn may_be_exempt(filter: &FilterState, services: &[&ServiceSockets]) -> bool {
    has_iptables_rules(filter, services, "raw")
        || filter.nftables.value().is_some_and(|tables| tables.iter().any(|table| table.before_tracking))
}

/// Whether an iptables table of this name has rules, or may have, for packets of these services.
fn has_iptables_rules(filter: &FilterState, services: &[&ServiceSockets], name: &str) -> bool {
    let has_rules = |table: &IptablesTableState| {
        table.name == name
            && services.iter().any(|service| families(service).contains(&table.family))
            && table.content.value().is_none_or(|content| content.rules > 0)
    };
    filter.iptables.value().is_some_and(|tables| tables.iter().any(has_rules))
}

/// The protocols of the packets that a service receives.
fn families(service: &ServiceSockets) -> &'static [IpFamily] {
    match service.local.ip() {
        IpAddr::V6(address) if address.is_unspecified() => &[IpFamily::Ip, IpFamily::Ip6],
        IpAddr::V6(address) if address.to_ipv4_mapped().is_none() => &[IpFamily::Ip6],
        _ => &[IpFamily::Ip],
    }
}

fn add_evidence(rule_match: RuleMatch, filter: &FilterState, conntrack: &ConntrackState) -> RuleMatch {
    let mut rule_match = rule_match;
    let hooks = filter.hooks.value().map_or(&[][..], Vec::as_slice);
    if let Some(hook) = hooks.iter().find(|hook| hook.function.contains("conntrack_in")) {
        let label = format!("function at the hook {} of {}", hook.hook, hook.family);
        rule_match = rule_match.evidence(label, hook.function.clone(), "nfnetlink, NFNL_MSG_HOOK_GET");
    }
    rule_match
        .evidence_if("entries in the table", conntrack.count.value().copied(), conntrack::COUNT)
        .evidence_if("entries there can be", conntrack.max.value().copied(), conntrack::MAX)
        .evidence_if("packets without an entry since boot", conntrack.drops(), conntrack::STATISTICS)
}

/// Whether a container engine holds the sockets. NAT sends the packets of such a port to a container,
/// and NAT requires tracking.
fn is_published_port(service: &ServiceSockets) -> bool {
    let mut owners = service.processes.value().into_iter().flatten();
    owners.any(|owner| PORT_PROXIES.contains(&owner.name.as_str()))
}

fn add_remedy(rule_match: RuleMatch, filter: &FilterState, services: &[&ServiceSockets]) -> RuleMatch {
    let published_ports: BTreeSet<u16> = services
        .iter()
        .filter(|service| is_published_port(service))
        .map(|service| service.local.port())
        .collect();
    let services: Vec<&ServiceSockets> =
        services.iter().copied().filter(|service| !published_ports.contains(&service.local.port())).collect();
    let ports: BTreeSet<u16> = services.iter().map(|service| service.local.port()).collect();
    if ports.is_empty() || ports.len() > MOST_PORTS || may_be_translated(filter, &services) {
        return rule_match;
    }
    let iptables = filter.iptables.value().is_some_and(|tables| !tables.is_empty());
    let nftables = filter.nftables.value().is_some_and(|tables| !tables.is_empty());
    if iptables && !nftables {
        return add_iptables_rules(rule_match, &services);
    }
    let port_list = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    let mut ruleset = format!("table inet {TABLE} {{\n");
    let mut commands = vec![format!("nft add table inet {TABLE}")];
    for (hook, port) in [("prerouting", REQUESTS), ("output", REPLIES)] {
        let chain = format!("type filter hook {hook} priority raw;");
        let rule = format!("{port} {{ {port_list} }} notrack");
        ruleset += &format!("\tchain {hook} {{\n\t\t{chain} policy accept;\n\t\t{rule}\n\t}}\n");
        commands.push(format!("nft 'add chain inet {TABLE} {hook} {{ {chain} }}'"));
        commands.push(format!("nft 'add rule inet {TABLE} {hook} {rule}'"));
    }
    ruleset.push('}');
    let table_exists = filter.nftables.value().map(|tables| tables.iter().any(|table| table.name == TABLE));
    let from = (table_exists == Some(false)).then(|| SettingValue::new(""));
    let rule_match = rule_match.change(
        Setting::NftTable { family: NftFamily::Inet, table: TABLE.to_owned() },
        from,
        ruleset,
    );
    commands.into_iter().fold(rule_match, RuleMatch::command)
}

fn add_iptables_rules(mut rule_match: RuleMatch, services: &[&ServiceSockets]) -> RuleMatch {
    for family in [IpFamily::Ip, IpFamily::Ip6] {
        let rule = |chain: &str, port: String| Setting::IptablesRule {
            family,
            table: "raw".to_owned(),
            chain: chain.to_owned(),
            rule: format!("-p udp {port} -j NOTRACK"),
        };
        let of_family = services.iter().filter(|service| families(service).contains(&family));
        let ports: BTreeSet<u16> = of_family.map(|service| service.local.port()).collect();
        for port in ports {
            // See REQUESTS.
            let requests = format!("--dport {port} -m addrtype --dst-type LOCAL");
            rule_match = rule_match.change(rule("PREROUTING", requests), None::<&str>, "present").change(
                rule("OUTPUT", format!("--sport {port}")),
                None::<&str>,
                "present",
            );
        }
    }
    rule_match
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::filter::{IptablesTable, NftTable};
    use crate::stage::socket::SocketOwner;
    use crate::stage::socket::sample::service;

    const HOOK: (&str, &str) = (
        "/calls/nfnetlink/hooks.json",
        r#"[{"family": "ip", "hook": "prerouting", "priority": -200, "function": "ipv4_conntrack_in"}]"#,
    );
    const NO_TABLES: (&str, &str) = ("/calls/nfnetlink/tables.json", "[]");

    fn path(count: u64, drops: u32, named: bool, files: &[(&str, &str)]) -> PacketPath {
        let mut path = PacketPath::scripted(
            [
                (conntrack::COUNT.to_owned(), count.to_string()),
                (conntrack::MAX.to_owned(), "1000".to_owned()),
                (conntrack::STATISTICS.to_owned(), format!("insert_failed drop\n0 {drops:x}\n")),
                ("/proc/uptime".to_owned(), format!("{} 1\n", 100 + drops)),
            ]
            .into_iter()
            .chain(files.iter().map(|(path, content)| ((*path).to_owned(), (*content).to_owned()))),
        );
        path.socket.services = Known::Value(vec![ServiceSockets { named, ..service(0) }]);
        path
    }

    fn rule_match(path: &PacketPath) -> RuleMatch {
        RULE.once(path).pop().expect("a match")
    }

    #[test]
    fn a_conntrack_table_nearly_full_or_dropping_is_high_severity() {
        let full = rule_match(&path(950, 0, false, &[HOOK, NO_TABLES]));
        assert_eq!(full.severity, Severity::High);
        assert!(full.title.ends_with("as connections, and the table is 95 % full"), "{full:?}");
        let (before, now) =
            (path(10, 10, false, &[HOOK, NO_TABLES]), path(10, 30, false, &[HOOK, NO_TABLES]));
        let drop_match = RULE.twice(&before, &now).pop().expect("a match");
        assert_eq!(drop_match.severity, Severity::High);
        assert!(drop_match.title.ends_with("and tracking dropped 1 packets per second"), "{drop_match:?}");
        let since_boot = rule_match(&path(10, 3_000, false, &[HOOK, NO_TABLES]));
        assert_eq!(since_boot.severity, Severity::Medium);
        assert!(since_boot.title.ends_with("dropped 3,000 packets since boot"), "{since_boot:?}");
        assert!(RULE.once(&now).is_empty(), "30 packets since boot are few");
    }

    #[test]
    fn iptables_hosts_get_iptables_rules_and_only_a_note_with_raw_rules() {
        let tables = [
            ("/proc/net/ip_tables_names", "filter\nraw\n"),
            ("/calls/iptables/ip/filter.json", r#"{"rules": 4, "hooks": 3}"#),
            ("/calls/iptables/ip/raw.json", r#"{"rules": 2, "hooks": 2}"#),
        ];
        let rule_match = rule_match(&path(10, 0, true, &[HOOK, NO_TABLES, tables[0], tables[1], tables[2]]));
        assert_eq!(rule_match.severity, Severity::Note);
        let commands = rule_match.change_commands();
        let requests = "-A PREROUTING -p udp --dport 53 -m addrtype --dst-type LOCAL -j NOTRACK";
        assert_eq!(commands[0], format!("iptables -t raw {requests}"));
        assert_eq!(commands[1], "iptables -t raw -A OUTPUT -p udp --sport 53 -j NOTRACK");
    }

    #[test]
    fn ports_published_to_containers_stay_tracked() {
        for (holder, ports) in [("conmon", "5353"), ("docker-proxy", "5353"), ("unbound", "53, 5353")] {
            let mut path = path(950, 0, true, &[HOOK, NO_TABLES]);
            let mut published = service(0);
            published.processes = Known::Value(vec![SocketOwner { pid: 60, name: holder.to_owned() }]);
            let other = ServiceSockets { local: ([10, 0, 0, 1], 5353).into(), ..service(0) };
            path.socket.services = Known::Value(vec![published.clone(), other]);
            let found = rule_match(&path);
            let ruleset = found.changes[0].to.as_str();
            assert!(ruleset.contains(&format!("dport {{ {ports} }} notrack")), "{holder}: {ruleset}");
            path.socket.services = Known::Value(vec![published]);
            let found = rule_match(&path);
            assert_eq!((found.severity, found.changes.is_empty()), (Severity::High, holder != "unbound"));
        }
    }

    #[test]
    fn there_are_no_rules_where_nat_may_send_packets_to_the_service() {
        let nat = |rules: u32, modules: &[&str]| {
            let mut path = path(10, 0, true, &[HOOK, NO_TABLES]);
            let content = Known::Value(IptablesTable { rules, hooks: 4 });
            let table = IptablesTableState { family: IpFamily::Ip, name: "nat".into(), content };
            path.filter.iptables = Known::Value(vec![table]);
            let modules = modules.iter().map(|name| (*name).to_owned()).collect();
            path.filter.modules = Known::Value(Some(modules));
            path
        };
        let has_changes = |path: &PacketPath| !rule_match(path).changes.is_empty();
        assert!(!has_changes(&nat(3, &[])), "NAT may be built in");
        assert!(!has_changes(&nat(3, &["nf_nat", "xt_REDIRECT"])));
        assert!(has_changes(&nat(3, &["nf_nat", "xt_MASQUERADE"])), "rules change sources only");
        assert!(has_changes(&nat(0, &["nf_nat", "xt_REDIRECT"])), "the table is empty");
        let mut nft = nat(0, &["nf_nat", "nft_nat"]);
        nft.filter.nftables.expect_mut().push(NftTable { destination_nat: true, ..NftTable::default() });
        assert!(!has_changes(&nft));
    }

    #[test]
    fn iptables_rules_are_for_the_protocols_of_the_service() {
        let tables = [
            ("/proc/net/ip_tables_names", "raw\n"),
            ("/calls/iptables/ip/raw.json", r#"{"rules": 2, "hooks": 2}"#),
        ];
        let mut path = path(10, 0, true, &[HOOK, NO_TABLES, tables[0], tables[1]]);
        for (local, families, severity) in [
            ("192.0.2.1:53", &["ip"][..], Severity::Note),
            ("[::ffff:192.0.2.1]:53", &["ip"], Severity::Note),
            ("[::]:53", &["ip", "ip6"], Severity::Note),
            ("[2001:db8::1]:53", &["ip6"], Severity::Medium),
        ] {
            path.service().local = local.parse().expect("an address");
            let rule_match = rule_match(&path);
            let family = |change: &crate::SettingChange| match &change.setting {
                Setting::IptablesRule { family, .. } => family.to_string(),
                other => panic!("{other}"),
            };
            let changed: BTreeSet<String> = rule_match.changes.iter().map(family).collect();
            assert!(changed.iter().eq(families), "{local}: {changed:?}");
            assert_eq!(rule_match.severity, severity, "{local}");
        }
    }

    #[test]
    fn only_chains_before_conntrack_lower_the_severity_to_note() {
        let table = |content| ("/calls/nfnetlink/tables.json", content);
        let raw =
            table(r#"[{"family": "ip", "name": "raw", "rules": 1, "hooks": 1, "before_tracking": true}]"#);
        assert_eq!(rule_match(&path(10, 0, true, &[HOOK, raw])).severity, Severity::Note);
        let full = rule_match(&path(950, 0, true, &[HOOK, raw]));
        assert_eq!(full.summary(), (Severity::High, "Connections are tracked, and the table is 95 % full"));
        assert!(full.changes.is_empty() && full.commands.is_empty());
        let after = table(r#"[{"family": "ip", "name": "filter", "rules": 9, "hooks": 3}]"#);
        assert_eq!(rule_match(&path(10, 0, true, &[HOOK, after])).severity, Severity::Medium);
    }

    #[test]
    fn conntrack_entries_imply_tracking_if_hooks_are_unknown() {
        assert_eq!(rule_match(&path(10, 0, true, &[NO_TABLES])).severity, Severity::Medium);
        assert!(RULE.once(&path(0, 0, true, &[NO_TABLES])).is_empty());
    }

    #[test]
    fn conntrack_entries_without_rules_count_only_on_old_kernels() {
        let mut without_rules = path(10, 0, true, &[NO_TABLES]);
        without_rules.filter.nftables = Known::Value(Vec::new());
        without_rules.filter.iptables = Known::Value(Vec::new());
        without_rules.machine.kernel = Known::Value("6.18.44".to_owned());
        assert!(RULE.once(&without_rules).is_empty());
        without_rules.machine.kernel = Known::Value("4.4.0".to_owned());
        assert_eq!(RULE.once(&without_rules).len(), 1, "on old kernels the module suffices");
    }

    #[test]
    fn hosts_without_tracking_or_udp_services_have_no_finding() {
        let no_hook = ("/calls/nfnetlink/hooks.json", "[]");
        assert!(RULE.once(&path(0, 0, true, &[no_hook, NO_TABLES])).is_empty());
        // Nobody named the service, and no traffic is known.
        assert!(RULE.once(&path(10, 0, false, &[HOOK, NO_TABLES])).is_empty());
        let mut without_service = path(10, 0, true, &[HOOK, NO_TABLES]);
        without_service.socket.services = Known::Value(Vec::new());
        assert!(RULE.once(&without_service).is_empty());
        let mut without_conntrack = path(10, 0, true, &[HOOK, NO_TABLES]);
        without_conntrack.filter.conntrack = Known::Value(None);
        assert!(RULE.once(&without_conntrack).is_empty());
    }
}
