//! An indirection table with several times more entries for some queues than for others.

use super::{ScaledInterface, scaled_interfaces, table_call};
use crate::finding::{Rule, RuleMatch, Severity};
use crate::setting::{Setting, table_value};

pub(in crate::stage) const RULE: Rule = Rule {
    id: "rss.table-uneven",
    title: "The indirection table gives some queues several times the packets of others",
    why: "Every entry of the table gets an equal part of the hash values, so a queue's share of the packets \
          is its share of the entries. The queue with most entries is full while others have room, and its \
          CPU limits the host.",
    effect: "Throughput is limited by the fullest queue: with an even table each of N queues gets one Nth.",
    published_ratio: None,
    source: "Documentation/networking/scaling.rst of the kernel",
    kernels: "2.6.36 and later",
    remedy: "Give each queue the same number of entries.",
    caveats: "Queues were weighted on purpose, for example for CPUs of different speed or with other work.",
    check: |view| scaled_interfaces(view).filter_map(|nic| match_interface(&nic)).collect(),
};

/// At this ratio to a fair share, the queue with the most entries halves the capacity of the host.
const GROSS: f64 = 2.0;

fn match_interface(nic: &ScaledInterface<'_>) -> Option<RuleMatch> {
    if !nic.is_uneven()? {
        return None;
    }
    let interface = nic.interface();
    let entries = nic.entries()?;
    let table = nic.rss.entries()?;
    let (most_queue, most) = entries.iter().max_by_key(|(_, count)| **count)?;
    let (least_queue, least) = entries.iter().min_by_key(|(_, count)| **count)?;
    let ratio = *most as f64 * entries.len() as f64 / table.len() as f64;
    let severity = if ratio >= GROSS { Severity::Medium } else { Severity::Low };
    let title = format!(
        "The indirection table of {interface} gives queue {most_queue} {most} of its {} entries and queue {least_queue} \
         {least}",
        table.len()
    );
    let by_queue: serde_json::Value =
        entries.iter().map(|(queue, count)| (format!("rx-{queue}"), serde_json::json!(count))).collect();
    let queues: Vec<u32> = entries.keys().copied().collect();
    let even_table: Vec<u32> = queues.iter().copied().cycle().take(table.len()).collect();
    let setting = Setting::RssTable { interface: interface.to_owned() };
    let rule_match = RuleMatch::new(severity, title).costs_packets_of(interface).evidence(
        "entries by receive queue",
        by_queue,
        table_call(interface),
    );
    Some(rule_match.change(setting, Some(table_value(table)), table_value(&even_table)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::SettingValue;
    use crate::stage::PacketPath;
    use crate::stage::rss::sample;

    fn path(table: Vec<u32>) -> PacketPath {
        let mut path = sample::path(20, 20);
        path.rss[0].table = Known::Value(Some(table));
        path
    }

    fn matches(table: Vec<u32>) -> Vec<RuleMatch> {
        RULE.once(&path(table))
    }

    #[test]
    fn a_queue_with_several_times_the_table_entries_is_reported() {
        // `ethtool -X eth0 weight 6 1 1` on a table of 8.
        let rule_match = matches(vec![0, 0, 0, 0, 0, 0, 1, 2]).remove(0);
        let title = "The indirection table of eth0 gives queue 0 6 of its 8 entries and queue 1 1";
        assert_eq!(rule_match.summary(), (Severity::Medium, title));
        assert_eq!(rule_match.evidence[0].value["rx-0"], 6);
        assert_eq!(
            (rule_match.changes[0].from.clone(), &rule_match.changes[0].to),
            (Some(SettingValue::new("0,0,0,0,0,0,1,2")), &SettingValue::new("equal 3"))
        );
        let mut slight: Vec<u32> = (0..16).cycle().take(128).collect();
        slight.splice(..5, [1; 5]);
        slight.retain(|queue| *queue != 0);
        slight.extend([0, 0, 0]);
        assert_eq!(matches(slight)[0].severity, Severity::Low);
    }

    #[test]
    fn rounding_differences_in_the_table_are_not_reported() {
        assert!(matches((0..20).cycle().take(128).collect()).is_empty());
        assert!(matches(vec![0, 1, 2, 3, 4, 0, 1, 2]).is_empty());
        assert!(matches(vec![0; 128]).is_empty());
        assert!(matches(Vec::new()).is_empty());
    }
}
