//! Queues without an entry in the indirection table.

use super::balance::QueueBalance;
use super::{ScaledInterface, scaled, table_call};
use crate::CpuSet;
use crate::finding::{Rule, RuleMatch, Severity};
use crate::setting::{Setting, SettingValue, table_value};
use crate::stage::HostView;

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
    check,
};

/// Drivers of hardware whose tables can name only some of its queues: entries of four bits in the
/// 82599 and X540 (`ixgbe_rss_indir_tbl_max`, drivers/net/ethernet/intel/ixgbe/ixgbe.h, Linux 6.18;
/// kernels of 2016 do not report it).
const LIMITS: [(&str, u32); 1] = [("ixgbe", 16)];

fn check(view: &HostView<'_>) -> Vec<RuleMatch> {
    scaled(view).filter_map(|scaled| of_interface(view, &scaled)).collect()
}

fn of_interface(view: &HostView<'_>, scaled: &ScaledInterface<'_>) -> Option<RuleMatch> {
    let missed = still_without_packets(view, scaled, scaled.missed()?);
    if missed.is_empty() {
        return None;
    }
    let interface = scaled.interface();
    let entries = scaled.entries()?;
    let reached: CpuSet = entries.keys().copied().collect();
    let left: CpuSet = missed.iter().copied().collect();
    let title = format!(
        "{interface} has {} receive queues, but its indirection table reaches {} of them: nothing comes into {}",
        scaled.queues,
        entries.len(),
        if missed.len() == 1 { format!("queue {left}") } else { format!("queues {left}") },
    );
    let table = scaled.rss.entries()?;
    let matched = RuleMatch::new(severity(view, interface, &reached, missed.len()), title)
        .evidence("receive queues", scaled.queues, format!("/sys/class/net/{interface}/queues"))
        .evidence("queues named in the table", reached.to_string(), table_call(interface))
        .evidence("entries of the table", table.len(), table_call(interface));
    let matched = match scaled.rss.counts() {
        Some(counts) => {
            let packets: u64 =
                counts.iter().filter(|item| missed.contains(&item.queue)).map(|item| item.packets).sum();
            matched.evidence(
                format!("packets that queues {left} took in, since boot"),
                packets,
                counts.first()?.read_from.clone(),
            )
        }
        None => matched,
    };
    if !can_name_all(scaled, entries.len()) {
        return Some(matched);
    }
    let equal = SettingValue::new(format!("equal {}", scaled.queues));
    Some(matched.change(
        Setting::RssTable { interface: interface.to_owned() },
        Some(table_value(table)),
        equal,
    ))
}

/// With two readings, a queue that receives packets is reached by other means, such as flow
/// director or accelerated RFS.
fn still_without_packets(
    view: &HostView<'_>,
    scaled: &ScaledInterface<'_>,
    mut missed: Vec<u32>,
) -> Vec<u32> {
    if let Some(balance) = QueueBalance::of(view, scaled).filter(|balance| balance.rates) {
        let takes = |queue: u32| balance.queues.iter().any(|(other, rate)| *other == queue && *rate > 0.0);
        missed.retain(|queue| !takes(*queue));
    }
    missed
}

/// More queues than CPUs have no use, so only CPUs without a queue count. A CPU does not count if
/// RPS hands it packets of reached queues. It is a note if the online CPUs are unknown, or with RPS
/// the CPUs of a reached queue.
fn severity(view: &HostView<'_>, interface: &str, reached: &CpuSet, missed: usize) -> Severity {
    let path = view.now;
    let rps = |queue| path.softirq.rps_cpus(interface, queue);
    let is_unknown = |queue| rps(queue).is_none() || path.stack_cpus(interface, queue).is_none();
    let with_rps = reached.iter().any(|queue| rps(queue).is_some_and(|cpus| !cpus.is_empty()));
    let served: CpuSet = reached
        .iter()
        .filter_map(|queue| path.stack_cpus(interface, queue))
        .flat_map(CpuSet::into_iter)
        .collect();
    let has_work = |online: &CpuSet| {
        reached.len() >= online.len()
            || online.iter().all(|cpu| served.contains(cpu))
            || (with_rps && reached.iter().any(is_unknown))
    };
    if path.machine.online.value().is_none_or(has_work) {
        Severity::Note
    } else if reached.len() <= missed {
        Severity::High
    } else {
        Severity::Medium
    }
}

/// Whether a table can name every queue: by its number of entries, the driver's limit, and known
/// hardware.
fn can_name_all(scaled: &ScaledInterface<'_>, reached: usize) -> bool {
    let size = scaled.rss.entries().map_or(0, <[u32]>::len);
    let told = scaled.rss.table_queues.value().copied().flatten();
    let driver =
        scaled.link.driver.value().and_then(Option::as_ref).map_or("", |driver| driver.name.as_str());
    let limited = LIMITS.iter().any(|(name, most)| *name == driver && reached == *most as usize);
    size >= scaled.queues as usize && told.is_none_or(|told| told >= scaled.queues) && !limited
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::PacketPath;
    use crate::stage::rss::{NtupleRule, sample};
    use crate::stage::softirq::{InterfaceRps, RpsQueue};

    /// A host with this many queues, of which the table names the first ones.
    fn path(cpus: u32, queues: u32, reached: u32) -> PacketPath {
        let mut path = sample::path(cpus, queues);
        path.rss[0].table = Known::Value(Some((0..reached).cycle().take(128).collect()));
        path
    }

    fn found(path: &PacketPath) -> Vec<RuleMatch> {
        check(&HostView::once(path))
    }

    #[test]
    fn queues_out_of_the_table_are_named_and_put_into_it() {
        let matched = found(&path(20, 20, 16)).remove(0);
        assert_eq!(
            matched.title,
            "eth0 has 20 receive queues, but its indirection table reaches 16 of them: nothing comes into queues 16-19"
        );
        assert_eq!(matched.severity, Severity::Medium);
        assert_eq!(matched.evidence[1].value, "0-15");
        let change = &matched.changes[0];
        assert_eq!(change.setting.command(&change.to).as_deref(), Some("ethtool -X eth0 equal 20"));
        assert_eq!(change.from, Some(SettingValue::new("equal 16")));
        assert_eq!(found(&path(8, 8, 1))[0].severity, Severity::High);
    }

    #[test]
    fn hardware_that_cannot_name_more_is_not_asked_to() {
        let mut ixgbe = path(20, 20, 16);
        if let Known::Value(Some(driver)) = &mut ixgbe.link[0].driver {
            driver.name = "ixgbe".into();
        }
        assert_eq!(found(&ixgbe)[0].changes, []);
        let mut told = path(20, 20, 8);
        told.rss[0].table_queues = Known::Value(Some(8));
        assert_eq!(found(&told)[0].changes, []);
        let mut small = path(20, 20, 8);
        small.rss[0].table = Known::Value(Some((0..16).collect()));
        assert_eq!(found(&small)[0].changes, []);
    }

    #[test]
    fn queues_beyond_the_cpus_are_told_by_the_way() {
        assert_eq!(found(&path(16, 20, 16))[0].severity, Severity::Note);
    }

    #[test]
    fn queues_are_told_by_the_way_whose_cpus_get_packets_by_rps() {
        let with_rps = |of: &dyn Fn(u32) -> Vec<u32>| {
            let mut path = path(20, 20, 16);
            let queue = |queue| RpsQueue {
                queue,
                cpus: Known::Value(of(queue).into_iter().collect()),
                flow_count: Known::Value(0),
            };
            path.softirq.rps = vec![InterfaceRps {
                interface: "eth0".into(),
                queues: Known::Value((0..20).map(queue).collect()),
                gro_flush_timeout_ns: Known::Value(None),
                napi_defer_hard_irqs: Known::Value(None),
                threaded: Known::Value(None),
            }];
            found(&path)[0].severity
        };
        let half = |queue: u32| if queue < 4 { vec![queue, queue + 16] } else { vec![queue] };
        assert_eq!(with_rps(&half), Severity::Note);
        // RPS of a queue without packets helps nobody.
        assert_eq!(with_rps(&|queue| vec![queue]), Severity::Medium);
        let mut unknown = path(20, 20, 16);
        unknown.machine.online = Known::unknown("empty");
        assert_eq!(found(&unknown)[0].severity, Severity::Note);
    }

    #[test]
    fn queues_that_get_packets_otherwise_are_not_missed() {
        assert!(found(&sample::path(20, 20)).is_empty());
        let rule = |queue, rss_context| NtupleRule {
            location: 1,
            flow: "udp4".into(),
            queue,
            rss_context,
            destination_port: Some(53),
        };
        let mut ruled = path(4, 4, 3);
        ruled.rss[0].ntuple = Known::Value(Some(vec![rule(Some(3), false)]));
        assert!(found(&ruled).is_empty());
        let mut context = path(4, 4, 2);
        context.rss[0].ntuple = Known::Value(Some(vec![rule(None, true)]));
        assert!(found(&context).is_empty());
        let mut before = path(4, 4, 3);
        before.rss[0].queues = sample::counts(&[1_000_000; 4]);
        let now = sample::later(&before, &[20_000, 20_000, 20_000, 900]);
        assert!(check(&HostView::twice(&before, &now)).is_empty());
        let now = sample::later(&before, &[20_000, 20_000, 20_000, 0]);
        assert!(check(&HostView::twice(&before, &now))[0].title.ends_with("nothing comes into queue 3"));
    }

    #[test]
    fn what_is_unknown_down_or_software_is_not_judged() {
        let mut unknown = path(4, 4, 2);
        unknown.rss[0].table = Known::unknown("no privilege");
        assert!(found(&unknown).is_empty());
        let mut unknown = path(4, 4, 2);
        unknown.rss[0].ntuple = Known::unknown("no privilege");
        assert!(found(&unknown).is_empty());
        let mut down = path(4, 4, 2);
        down.link[0].up = Known::Value(false);
        assert!(found(&down).is_empty());
    }
}
