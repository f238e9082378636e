//! Packets lost because a CPU's backlog was full.

use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::HostView;
use crate::stage::softirq::load;

pub(in crate::stage) const RULE: Rule = Rule {
    id: "softirq.backlog-drops",
    title: "Packets are lost at a full backlog",
    why: "Packets that RPS hands to a CPU, and those of veth, tun and the loopback, wait in that CPU's \
          backlog, which holds net.core.netdev_max_backlog of them. Packets that arrive while it is full are \
          lost. A longer backlog bridges peaks, but does not help if the CPU cannot keep up.",
    effect: "No losses at peaks. If the CPU is full all the time, losses only start later, and packets wait \
             longer.",
    published_ratio: None,
    source: "Documentation/admin-guide/sysctl/net.rst; net/core/dev.c, enqueue_to_backlog",
    kernels: "2.6.35 and later",
    remedy: "First check whether one CPU gets all packets (softirq.skew), then lengthen the backlog.",
    caveats: "Latency matters more than loss, or the CPU that loses packets is full all the time.",
    check: |view| check(view).into_iter().collect(),
};

/// Share of the packets above which losses are more than a single peak.
const CONSTANT: f64 = 0.001;

/// The kernel's default is 1,000. This length holds the packets of a peak of some milliseconds.
const LONGER: u64 = 10_000;

/// A longer backlog only means longer waits.
const LONG: u64 = 30_000;

fn check(view: &HostView<'_>) -> Option<RuleMatch> {
    let rule_match =
        if view.before.is_some() { match_between_readings(view) } else { match_since_boot(view) }?;
    let Some(length) = super::sysctl(view.now, "netdev_max_backlog") else { return Some(rule_match) };
    let rule_match =
        rule_match.evidence("netdev_max_backlog, packets", length, "/proc/sys/net/core/netdev_max_backlog");
    Some(if length < LONG {
        super::with_sysctl(rule_match, "netdev_max_backlog", length, LONGER.max(length * 2))
    } else {
        rule_match
    })
}

fn match_between_readings(view: &HostView<'_>) -> Option<RuleMatch> {
    let drop_rates = load::rates(view, |line| line.dropped)?;
    let processed_rate = load::packet_rates(view).map(|rates| rates.into_values().sum::<f64>());
    let drop_rate: f64 = drop_rates.values().sum();
    if drop_rate <= 0.0 {
        return None;
    }
    let share = processed_rate.map(|processed_rate| drop_rate / (drop_rate + processed_rate));
    let severity = match share {
        _ if view.is_small_loss(drop_rate) => Severity::Note,
        Some(CONSTANT..) => Severity::High,
        _ => Severity::Medium,
    };
    let losing_cpus: Vec<String> =
        drop_rates.iter().filter(|(_, rate)| **rate > 0.0).map(|(cpu, _)| cpu.to_string()).collect();
    let title = format!(
        "{drop_rate:.0} packets/s are lost at the full backlog of {} {}{}",
        if losing_cpus.len() == 1 { "CPU" } else { "CPUs" },
        losing_cpus.join(", "),
        share.map(|share| format!(", {:.2} % of all", share * 100.0)).unwrap_or_default()
    );
    Some(
        RuleMatch::new(severity, title)
            .evidence_by(
                "packets lost per second, by CPU",
                super::rounded_rates(&drop_rates),
                "/proc/net/softnet_stat, column 2",
            )
            .evidence_if(
                "packets processed per second",
                processed_rate.map(f64::round),
                "/proc/net/softnet_stat, column 1",
            ),
    )
}

fn match_since_boot(view: &HostView<'_>) -> Option<RuleMatch> {
    let dropped_count = load::sum(view.now, |line| line.dropped)?;
    let processed_count = load::sum(view.now, |line| line.processed)?;
    if dropped_count == 0 {
        return None;
    }
    // The counters wrap at 2^32, so the packet count may be too low, and the share too high.
    let share = dropped_count as f64 / processed_count.max(1) as f64;
    let is_note = share < CONSTANT || view.is_small_loss(dropped_count as f64);
    let severity = if is_note { Severity::Note } else { Severity::Low };
    let title = format!("Since boot {dropped_count} packets were lost at a full backlog");
    let lines = view.now.softirq.softnet.value()?;
    let drops_by_cpu = lines.iter().filter(|line| line.dropped > 0).map(|line| (line.cpu, line.dropped));
    Some(RuleMatch::new(severity, title).evidence_by(
        "packets lost by CPU",
        drops_by_cpu,
        "/proc/net/softnet_stat, column 2",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::PacketPath;
    use crate::stage::irq::sample::{SampleMachine, path, softnet};

    fn reading(seconds: f64, processed: u64, dropped: u64, backlog: &str) -> PacketPath {
        let files = [("/proc/sys/net/core/netdev_max_backlog", backlog)];
        let mut path = path(&SampleMachine { files: &files, ..SampleMachine::PLAIN });
        path.softirq.softnet = softnet([[processed, dropped, 0], [0; 3], [0; 3], [0; 3]]);
        path.uptime_seconds = Known::Value(seconds);
        path
    }

    #[test]
    fn severity_of_current_backlog_drops_depends_on_their_share() {
        let before = reading(10.0, 0, 0, "1000\n");
        let rule_match = RULE.twice(&before, &reading(20.0, 990_000, 10_000, "1000\n")).remove(0);
        let title = "1000 packets/s are lost at the full backlog of CPU 0, 1.00 % of all";
        assert_eq!(rule_match.summary(), (Severity::High, title));
        assert_eq!(rule_match.changes[0].setting.to_string(), "net.core.netdev_max_backlog");
        assert_eq!(rule_match.changes[0].to.as_str(), "10000");
        let few = RULE.twice(&before, &reading(20.0, 990_000, 100, "20000\n")).remove(0);
        assert_eq!((few.severity, few.changes[0].to.as_str()), (Severity::Medium, "40000"));
        let single = RULE.twice(&before, &reading(20.0, 990, 9, "1000\n")).remove(0);
        assert_eq!(single.severity, Severity::Note);
        let long = RULE.twice(&before, &reading(20.0, 990_000, 100, "100000\n")).remove(0);
        assert!(long.changes.is_empty());
        // In an hour the packet counter may have wrapped several times, unlike that of drops.
        let hour = RULE.twice(&before, &reading(3_610.0, 990, 36_000, "1000\n")).remove(0);
        assert_eq!(hour.summary(), (Severity::Medium, "10 packets/s are lost at the full backlog of CPU 0"));
    }

    #[test]
    fn past_backlog_drops_are_low_and_ignored_with_two_readings() {
        let now = reading(10.0, 990_000, 100, "1000\n");
        let rule_match = RULE.once(&now).remove(0);
        let title = "Since boot 100 packets were lost at a full backlog";
        assert_eq!(rule_match.summary(), (Severity::Note, title));
        assert_eq!(RULE.once(&reading(10.0, 990, 9, "1000\n"))[0].severity, Severity::Note);
        assert_eq!(RULE.once(&reading(10.0, 990, 100, "1000\n"))[0].severity, Severity::Low);
        assert!(RULE.twice(&now, &reading(20.0, 1_990_000, 100, "1000\n")).is_empty());
        assert!(RULE.once(&reading(10.0, 990, 0, "1000\n")).is_empty());
    }
}
