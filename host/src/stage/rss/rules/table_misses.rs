//! Queues without an entry in the indirection table.

use super::balance::QueueBalance;
use super::{ScaledInterface, scaled_interfaces, table_call};
use crate::CpuSet;
use crate::finding::{Rule, RuleMatch, Severity};
use crate::setting::{Setting, SettingValue, table_value};
use crate::stage::{HostView, spread};

pub(in crate::stage) const RULE: Rule = Rule {
    id: "rss.table-misses-queues",
    title: "The indirection table leaves out some of the receive queues",
    why: "The hash of a packet chooses an entry of the table, and the entry a queue. A queue that no entry \
          names gets nothing, and the CPU of its interrupt takes no packet. The causes are a change of the \
          number of channels, a manual change, or hardware whose entries are too small for more queues.",
    effect: "The missing queues get packets: 20 instead of 16 CPUs process packets. If the hardware cannot \
             name them, RPS gives their CPUs some of the other queues' packets.",
    published_ratio: None,
    source: "T. Makita, Boost UDP Transaction Performance, LinuxCon Japan 2016 (queues 16 to 19 of an 82599 saw nothing)",
    kernels: "2.6.36 and later",
    remedy: "Name all queues in the table. Intel's 82599 and X540 name at most 16: give the other CPUs \
             packets by RPS, or use no more channels than that.",
    caveats: "Queues are kept out of the table on purpose, for AF_XDP or an application of their own.",
    check: |view| scaled_interfaces(view).filter_map(|nic| match_interface(view, &nic)).collect(),
};

/// Drivers of hardware whose tables can name only some of its queues: entries of four bits in the
/// 82599 and X540 (`ixgbe_rss_indir_tbl_max`, drivers/net/ethernet/intel/ixgbe/ixgbe.h, Linux 6.18;
/// kernels of 2016 do not report it).
const LIMITS: [(&str, u32); 1] = [("ixgbe", 16)];

fn match_interface(view: &HostView<'_>, nic: &ScaledInterface<'_>) -> Option<RuleMatch> {
    let missed_queues = queues_without_packets(view, nic, nic.missed_queues()?);
    if missed_queues.is_empty() {
        return None;
    }
    let interface = nic.interface();
    let entries = nic.entries()?;
    let reached_queues: CpuSet = entries.keys().copied().collect();
    let missed_set: CpuSet = missed_queues.iter().copied().collect();
    let title = format!(
        "{interface} has {} receive queues, but its indirection table reaches {} of them: nothing comes into {}",
        nic.queues,
        entries.len(),
        if missed_queues.len() == 1 { format!("queue {missed_set}") } else { format!("queues {missed_set}") },
    );
    let table = nic.rss.entries()?;
    let rule_match = RuleMatch::new(severity(view, interface, &reached_queues, missed_queues.len()), title)
        .costs_packets_of(interface)
        .evidence("receive queues", nic.queues, format!("/sys/class/net/{interface}/queues"))
        .evidence("queues named in the table", reached_queues.to_string(), table_call(interface))
        .evidence("entries of the table", table.len(), table_call(interface));
    let rule_match = match nic.rss.counts() {
        Some(counts) => {
            let packets: u64 = counts
                .iter()
                .filter(|item| missed_queues.contains(&item.queue))
                .map(|item| item.packets)
                .sum();
            rule_match.evidence(
                format!("packets that queues {missed_set} took in, since boot"),
                packets,
                counts.first()?.read_from.clone(),
            )
        }
        None => rule_match,
    };
    let is_enough = |usable: CpuSet| entries.len() >= usable.len();
    if !can_name_all(nic, entries.len()) || spread::usable_cpus(view.now).is_some_and(is_enough) {
        return Some(rule_match);
    }
    let even_table = SettingValue::new(format!("equal {}", nic.queues));
    Some(rule_match.change(
        Setting::RssTable { interface: interface.to_owned() },
        Some(table_value(table)),
        even_table,
    ))
}

/// The queues that no entry of the table and no rule names, and that receive no packets. Empty if
/// unknown.
pub(in crate::stage) fn silent_queues(view: &HostView<'_>, interface: &str) -> Vec<u32> {
    let nic = scaled_interfaces(view).find(|nic| nic.interface() == interface);
    nic.and_then(|nic| Some(queues_without_packets(view, &nic, nic.missed_queues()?))).unwrap_or_default()
}

/// With two readings, a queue that receives packets is reached by other means, such as flow
/// director or accelerated RFS.
fn queues_without_packets(view: &HostView<'_>, nic: &ScaledInterface<'_>, mut queues: Vec<u32>) -> Vec<u32> {
    if let Some(balance) = QueueBalance::from_view(view, nic).filter(|balance| balance.rates) {
        let has_packets =
            |queue: u32| balance.queues.iter().any(|(other, rate)| *other == queue && *rate > 0.0);
        queues.retain(|queue| !has_packets(*queue));
    }
    queues
}

/// More queues than CPUs have no use, so only CPUs without a queue count. A CPU does not count if it
/// is isolated, or if RPS hands it packets of reached queues. It is a note if the online CPUs are
/// unknown, or with RPS the CPUs of a reached queue.
fn severity(view: &HostView<'_>, interface: &str, reached_queues: &CpuSet, missed_count: usize) -> Severity {
    let path = view.now;
    let rps_cpus = |queue| path.softirq.rps_cpus(interface, queue);
    let is_unknown = |queue| rps_cpus(queue).is_none() || path.stack_cpus(interface, queue).is_none();
    let with_rps = reached_queues.iter().any(|queue| rps_cpus(queue).is_some_and(|cpus| !cpus.is_empty()));
    let served_cpus: CpuSet = reached_queues
        .iter()
        .filter_map(|queue| path.stack_cpus(interface, queue))
        .flat_map(CpuSet::into_iter)
        .collect();
    let all_have_work = |usable: CpuSet| {
        reached_queues.len() >= usable.len()
            || usable.iter().all(|cpu| served_cpus.contains(cpu))
            || (with_rps && reached_queues.iter().any(is_unknown))
    };
    if spread::usable_cpus(path).is_none_or(all_have_work) {
        Severity::Note
    } else if reached_queues.len() <= missed_count {
        Severity::High
    } else {
        Severity::Medium
    }
}

/// Whether a table can name every queue: by its number of entries, the driver's limit, and known
/// hardware.
fn can_name_all(nic: &ScaledInterface<'_>, reached_count: usize) -> bool {
    let size = nic.rss.entries().map_or(0, <[u32]>::len);
    let table_limit = nic.rss.table_queues.value().copied().flatten();
    let driver = nic.link.driver.value().and_then(Option::as_ref).map_or("", |driver| driver.name.as_str());
    let is_limited = LIMITS.iter().any(|(name, limit)| *name == driver && reached_count == *limit as usize);
    size >= nic.queues as usize
        && table_limit.is_none_or(|table_limit| table_limit >= nic.queues)
        && !is_limited
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::PacketPath;
    use crate::stage::link::DeviceKind;
    use crate::stage::rss::{NtupleRule, sample};

    /// A host with this many queues, of which only the first `table_queues` are in the table.
    fn path(cpus: u32, queues: u32, table_queues: u32) -> PacketPath {
        let mut path = sample::path(cpus, queues);
        path.rss[0].table = Known::Value(Some((0..table_queues).cycle().take(128).collect()));
        path
    }

    #[test]
    fn queues_missing_from_the_rss_table_are_added() {
        let rule_match = RULE.once(&path(20, 20, 16)).remove(0);
        assert_eq!(rule_match.severity, Severity::Medium);
        assert_eq!(rule_match.change_commands(), ["ethtool -X eth0 equal 20"]);
        assert_eq!(rule_match.changes[0].from, Some(SettingValue::new("equal 16")));
        assert_eq!(RULE.once(&path(8, 8, 1))[0].severity, Severity::High);
    }

    #[test]
    fn no_change_is_proposed_beyond_the_rss_table_limit_of_the_hardware() {
        let mut ixgbe = path(20, 20, 16);
        ixgbe.link[0].driver = sample::driver("ixgbe");
        assert_eq!(RULE.once(&ixgbe)[0].changes, []);
        let mut driver_limit = path(20, 20, 8);
        driver_limit.rss[0].table_queues = Known::Value(Some(8));
        assert_eq!(RULE.once(&driver_limit)[0].changes, []);
        let mut short_table = path(20, 20, 8);
        short_table.rss[0].table = Known::Value(Some((0..16).collect()));
        assert_eq!(RULE.once(&short_table)[0].changes, []);
    }

    #[test]
    fn unreached_queues_beyond_the_usable_cpus_are_a_note_without_a_change() {
        let mut isolated = path(16, 16, 4);
        isolated.irq.isolated = Known::Value(Some((4..16).collect()));
        for path in [path(16, 20, 16), isolated] {
            let rule_match = RULE.once(&path).remove(0);
            assert_eq!((rule_match.severity, rule_match.changes), (Severity::Note, Vec::new()));
        }
    }

    #[test]
    fn unreached_queues_are_a_note_if_rps_reaches_their_cpus() {
        let with_rps = |targets: &dyn Fn(u32) -> Vec<u32>| {
            let mut path = path(20, 20, 16);
            path.softirq.rps = sample::rps((0..20).map(|queue| targets(queue).into_iter().collect()));
            RULE.once(&path)[0].severity
        };
        let half = |queue: u32| if queue < 4 { vec![queue, queue + 16] } else { vec![queue] };
        assert_eq!(with_rps(&half), Severity::Note);
        // RPS of a queue without packets helps nobody.
        assert_eq!(with_rps(&|queue| vec![queue]), Severity::Medium);
        let mut unknown = path(20, 20, 16);
        unknown.machine.online = Known::unknown("empty");
        assert_eq!(RULE.once(&unknown)[0].severity, Severity::Note);
    }

    #[test]
    fn queues_reached_by_table_rule_or_traffic_are_not_reported() {
        assert!(RULE.once(&sample::path(20, 20)).is_empty());
        let in_context = || NtupleRule { queue: None, rss_context: true, ..sample::ntuple_rule(0) };
        for rule in [sample::ntuple_rule(3), in_context()] {
            let mut with_rule = path(4, 4, 3);
            with_rule.rss[0].ntuple = Known::Value(Some(vec![rule]));
            assert!(RULE.once(&with_rule).is_empty(), "{:?}", with_rule.rss[0].ntuple);
        }
        let mut before = path(4, 4, 3);
        before.rss[0].queues = sample::counts(&[1_000_000; 4]);
        let now = sample::later(&before, &[20_000, 20_000, 20_000, 900]);
        assert!(RULE.twice(&before, &now).is_empty());
        let now = sample::later(&before, &[20_000, 20_000, 20_000, 0]);
        assert!(RULE.twice(&before, &now)[0].title.ends_with("nothing comes into queue 3"));
    }

    #[test]
    fn unknown_tables_unknown_rules_and_down_links_are_not_reported() {
        RULE.assert_no_match(
            &path(4, 4, 2),
            &[
                |path| path.rss[0].table = Known::unknown("no privilege"),
                |path| path.rss[0].ntuple = Known::unknown("no privilege"),
                |path| path.link[0].up = Known::Value(false),
                |path| path.link[0].device = Known::Value(DeviceKind::Software),
            ],
        );
    }
}
