//! Tables without rules that each packet passes.

use std::collections::BTreeSet;

use super::{FilterState, IptablesTableState, NftTable};
use crate::finding::{CostUnit, Rule, RuleMatch, Severity};
use crate::stage::HostView;
use crate::{Known, Setting};

pub(in crate::stage) const RULE: Rule = Rule {
    id: "filter.hooks-without-rules",
    title: "Tables without a rule are at netfilter's hooks",
    why: "A table's chains are called at each of their hooks, for each packet, with or without rules. \
          Stopped firewall services and tools that only list rules leave such tables behind.",
    effect: "5.18 to 5.38 M transactions/s with iptables' modules unloaded (3.0 % of CPU in nf_iterate, no rule loaded).",
    published_ratio: Some(5.38 / 5.18),
    source: "T. Makita, Boost UDP Transaction Performance, LinuxCon Japan 2016",
    kernels: "all; measured on 4.6",
    remedy: "Unload the modules of empty iptables tables, and delete empty nftables tables.",
    caveats: "A firewall service, a container engine or a load balancer owns the tables and will fill them, or a chain's \
             policy drops packets.",
    check: |view| check(view).into_iter().collect(),
};

/// An empty table, the source of its rule count, its number of hooks, and the command that removes
/// it.
struct EmptyTable {
    name: String,
    read_from: &'static str,
    hooks: u32,
    removal: Option<TableRemoval>,
}

enum TableRemoval {
    Change(Setting),
    Command(String),
}

fn check(view: &HostView<'_>) -> Option<RuleMatch> {
    let tables = empty_tables(&view.now.filter);
    let hooks: u32 = tables.iter().map(|table| table.hooks).sum();
    let names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
    let title = match names.as_slice() {
        [] => return None,
        [name] => format!("The table {name} holds no rule and is at {} all the same", count_of_hooks(hooks)),
        _ => format!(
            "{} tables hold no rule and are at {} all the same: {}",
            names.len(),
            count_of_hooks(hooks),
            names.join(", ")
        ),
    };
    let mut rule_match = RuleMatch::new(Severity::Low, title).costs_per(CostUnit::IpPacket);
    for table in tables {
        rule_match = rule_match.evidence(format!("rules in {}", table.name), 0, table.read_from);
        rule_match = match table.removal {
            Some(TableRemoval::Change(setting)) => rule_match.change(setting, None::<&str>, ""),
            Some(TableRemoval::Command(command)) => rule_match.command(command),
            None => rule_match,
        };
    }
    Some(rule_match)
}

fn count_of_hooks(hooks: u32) -> String {
    if hooks == 1 { "a hook".to_owned() } else { format!("{hooks} hooks") }
}

fn empty_tables(filter: &FilterState) -> Vec<EmptyTable> {
    let modules = filter.modules.value().and_then(Option::as_ref);
    let iptables = filter.iptables.value().map_or(&[][..], Vec::as_slice);
    let nftables = filter.nftables.value().map_or(&[][..], Vec::as_slice);
    let iptables = iptables.iter().filter_map(|table| empty_iptables(table, modules));
    iptables.chain(nftables.iter().filter_map(empty_nftables)).collect()
}

fn empty_iptables(table: &IptablesTableState, modules: Option<&BTreeSet<String>>) -> Option<EmptyTable> {
    let Known::Value(content) = table.content else { return None };
    let module = format!("{}table_{}", table.family, table.name);
    (content.rules == 0 && content.hooks > 0).then(|| EmptyTable {
        name: format!("iptables {} {}", table.family, table.name),
        read_from: "getsockopt IPT_SO_GET_INFO",
        hooks: content.hooks,
        // Built-in parts cannot be unloaded.
        removal: modules
            .is_some_and(|modules| modules.contains(&module))
            .then(|| TableRemoval::Command(format!("modprobe -r {module}"))),
    })
}

fn empty_nftables(table: &NftTable) -> Option<EmptyTable> {
    let NftTable { family, name, rules, hooks, drops, dormant, .. } = table;
    (*rules == 0 && *hooks > 0 && !drops && !dormant).then(|| EmptyTable {
        name: format!("nftables {family} {name}"),
        read_from: "nfnetlink, NFT_MSG_GETCHAIN",
        hooks: *hooks,
        removal: Some(match family.parse() {
            Ok(family) => TableRemoval::Change(Setting::NftTable { family, table: name.clone() }),
            Err(_) => TableRemoval::Command(format!("nft delete table {family} {name}")),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PacketPath;

    fn matches(files: &[(&str, &str)]) -> Vec<RuleMatch> {
        RULE.once(&PacketPath::scripted(files.iter().copied()))
    }

    #[test]
    fn empty_tables_are_deleted_or_their_loaded_modules_unloaded() {
        let tables =
            r#"[{"family": "inet", "name": "fw", "hooks": 3}, {"family": "ip", "name": "nat", "hooks": 4}]"#;
        let matches = matches(&[
            ("/calls/nfnetlink/tables.json", tables),
            (
                "/proc/modules",
                "iptable_filter 16384 0 - Live 0x0\nip_tables 28672 1 iptable_filter, Live 0x0\n",
            ),
            ("/proc/net/ip_tables_names", "filter\nraw\n"),
            ("/calls/iptables/ip/filter.json", r#"{"rules": 0, "hooks": 3}"#),
            ("/calls/iptables/ip/raw.json", r#"{"rules": 0, "hooks": 2}"#),
        ]);
        assert_eq!(matches[0].change_commands(), ["nft delete table inet fw", "nft delete table ip nat"]);
        assert_eq!(matches[0].commands, ["modprobe -r iptable_filter"], "raw is built in");
    }

    #[test]
    fn used_dormant_hookless_and_unreadable_tables_are_not_reported() {
        let tables = r#"[{"family": "inet", "name": "rules", "hooks": 3, "rules": 1},
            {"family": "inet", "name": "policy", "hooks": 1, "drops": true},
            {"family": "inet", "name": "off", "hooks": 1, "dormant": true},
            {"family": "inet", "name": "sets"}]"#;
        let matches = matches(&[
            ("/calls/nfnetlink/tables.json", tables),
            ("/proc/net/ip_tables_names", "filter\nnat\n"),
            ("/calls/iptables/ip/filter.json", r#"{"rules": 4, "hooks": 3}"#),
            ("/calls/iptables/ip/nat.json", r#"{"errno": 1}"#),
        ]);
        assert!(matches.is_empty(), "{matches:?}");
    }
}
