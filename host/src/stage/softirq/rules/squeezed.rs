//! NET_RX softirqs that stop with work left.

use crate::amount;
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::HostView;
use crate::stage::softirq::load;

pub(in crate::stage) const RULE: Rule = Rule {
    id: "softirq.squeezed",
    title: "Softirqs often stop with packets left",
    why: "A NET_RX softirq ends after net.core.netdev_budget packets or netdev_budget_usecs, even if packets are left; \
          these wait until it runs again, perhaps in ksoftirqd behind other threads. Rings fill meanwhile.",
    effect: "A few percent if every run ends like this; nothing if the CPU is full anyway.",
    published_ratio: None,
    source: "Documentation/admin-guide/sysctl/net.rst; net/core/dev.c, net_rx_action",
    kernels: "all; netdev_budget_usecs from 4.12",
    remedy: "Double both limits and check whether squeezes decrease and packets increase.",
    caveats: "These CPUs have other work: with a larger budget it waits longer at a time.",
    check: |view| match_squeezes(view).into_iter().collect(),
};

/// The kernel's budget (net/core/hotdata.c).
const DEFAULT_BUDGET: u64 = 300;

/// Packets per poll of a NAPI instance (NAPI_POLL_WEIGHT, include/linux/netdevice.h).
const NAPI_WEIGHT: u64 = 64;

/// Share of the packets that were processed in runs that ended with the budget.
const OFTEN: f64 = 0.2;

/// Squeezes per second above which they matter.
const MANY: f64 = 10.0;

/// Packets per second and CPU that fill a ring of 256 places (VETH_RING_SIZE, drivers/net/veth.c, the
/// smallest by default) in 10 ms. Fewer lose nothing by waiting, and the cause may be a hypervisor
/// that took the CPU meanwhile.
const BUSY: f64 = 256.0 / 0.010;

/// With a budget above this a run takes too long.
const LARGE_BUDGET: u64 = 1_200;
const LONG_BUDGET: u64 = 16_000;

/// A budget that ends each run before one NAPI poll is complete, with any traffic.
fn match_tiny_budget(view: &HostView<'_>) -> Option<RuleMatch> {
    let budget = super::sysctl(view.now, "netdev_budget").filter(|budget| *budget < NAPI_WEIGHT)?;
    let title = format!("A softirq ends after {budget} packets: the kernel's default is {DEFAULT_BUDGET}");
    let rule_match = RuleMatch::new(Severity::Medium, title).evidence(
        "netdev_budget",
        budget,
        "/proc/sys/net/core/netdev_budget",
    );
    Some(super::with_sysctl(rule_match, "netdev_budget", budget, DEFAULT_BUDGET))
}

fn match_squeezes(view: &HostView<'_>) -> Option<RuleMatch> {
    if let Some(rule_match) = match_tiny_budget(view) {
        return Some(rule_match);
    }
    let squeezes = load::rates(view, |line| line.time_squeeze)?;
    let packet_rates = load::packet_rates(view)?;
    let packets: f64 = packet_rates.values().sum();
    let on_busiest_cpu = packet_rates.into_values().fold(0.0, f64::max);
    let rate: f64 = squeezes.values().sum();
    let budget = super::sysctl(view.now, "netdev_budget").unwrap_or(DEFAULT_BUDGET);
    let share = (rate * budget as f64 / packets.max(1.0)).min(1.0);
    if rate < MANY || share < OFTEN || on_busiest_cpu < BUSY {
        return None;
    }
    let title = format!(
        "Softirqs stop {} times per second with packets left, of {} packets/s",
        amount::rate(rate),
        amount::rate(packets)
    );
    let mut rule_match = RuleMatch::new(Severity::Low, title)
        .evidence_by(
            "squeezes per second, by CPU",
            super::rounded_rates(&squeezes),
            "/proc/net/softnet_stat, column 3",
        )
        .evidence("packets processed per second", packets.round(), "/proc/net/softnet_stat, column 1");
    for (name, limit) in [("netdev_budget", LARGE_BUDGET), ("netdev_budget_usecs", LONG_BUDGET)] {
        let Some(current) = super::sysctl(view.now, name) else { continue };
        rule_match = rule_match.evidence(name, current, format!("/proc/sys/net/core/{name}"));
        if current < limit {
            rule_match = super::with_sysctl(rule_match, name, current, current.max(1) * 2);
        }
    }
    Some(rule_match)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::PacketPath;
    use crate::stage::irq::sample::{SampleMachine, path, softnet};

    fn reading(seconds: f64, processed: u64, squeezed: u64) -> PacketPath {
        let files = [
            ("/proc/sys/net/core/netdev_budget", "300\n"),
            ("/proc/sys/net/core/netdev_budget_usecs", "16000\n"),
        ];
        let mut path = path(&SampleMachine { files: &files, ..SampleMachine::PLAIN });
        path.softirq.softnet = softnet([[processed, 0, squeezed], [0; 3], [0; 3], [0; 3]]);
        path.uptime_seconds = Known::Value(seconds);
        path
    }

    #[test]
    fn frequent_squeezes_double_a_budget_below_its_limit() {
        let matches = RULE.twice(&reading(10.0, 0, 0), &reading(20.0, 1_000_000, 2_000));
        assert_eq!(matches[0].change_texts(), ["net.core.netdev_budget 600"]);
    }

    #[test]
    fn a_budget_of_one_packet_is_reported_without_traffic() {
        let files = [("/proc/sys/net/core/netdev_budget", "1\n")];
        let path = path(&SampleMachine { files: &files, ..SampleMachine::PLAIN });
        let rule_match = RULE.once(&path).remove(0);
        assert_eq!(rule_match.title, "A softirq ends after 1 packets: the kernel's default is 300");
        assert_eq!((rule_match.severity, rule_match.changes[0].to.as_str()), (Severity::Medium, "300"));
    }

    #[test]
    fn rare_or_past_squeezes_are_not_reported() {
        let before = reading(10.0, 0, 5_000);
        assert!(RULE.twice(&before, &reading(20.0, 1_000_000, 5_050)).is_empty());
        assert!(RULE.twice(&before, &reading(20.0, 900_000_000, 7_000)).is_empty());
        assert!(RULE.twice(&before, &reading(20.0, 40_000, 5_200)).is_empty(), "4,000 packets/s");
        assert!(RULE.once(&before).is_empty());
    }
}
