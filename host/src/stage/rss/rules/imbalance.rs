//! One queue with several times its share of the packets.

use super::balance::QueueBalance;
use super::{ScaledInterface, scaled_interfaces, single_flow};
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::HostView;
use crate::stage::socket::load::FEW_NOW;

pub(in crate::stage) const RULE: Rule = Rule {
    id: "rss.queue-imbalance",
    title: "One receive queue gets several times its part of the packets",
    why: "A queue is polled by one CPU at a time. That CPU alone processes the surplus of its queue while \
          others wait. When it cannot keep up, the NIC drops packets. The cause is a hash without ports, an \
          uneven table, or few flows.",
    effect: "One queue on one CPU carried 350,000 to 430,000 packets/s; two of them 650,000.",
    published_ratio: None,
    source: "M. Majkowski, How to receive a million packets per second, 2015",
    kernels: "all",
    remedy: "Fix the hash and the table if they are the cause. With few flows, or a virtual NIC whose host \
             chooses the queue, spread that queue's packets over CPUs by RPS.",
    caveats: "The rate is far below the capacity of one CPU, or rules put a service's packets into one queue on \
              purpose.",
    check: |view| scaled_interfaces(view).filter_map(|nic| match_interface(view, &nic)).collect(),
};

/// An imbalance is a share of this multiple of the fair share. For a NIC with two or three queues
/// it is this share of all packets. With about ten flows per queue, twice the fair share happens by
/// chance.
const TIMES_FAIR: f64 = 3.0;
const NEARLY_ALL: f64 = 0.9;

/// Traffic since boot was mixed, so only a very large share counts.
const NEARLY_ALL_SINCE_BOOT: f64 = 0.9;

/// Packets per second that use a large part of one CPU, according to the figures above.
const BUSY: f64 = 100_000.0;

pub(super) fn is_skewed(balance: &QueueBalance, nic: &ScaledInterface<'_>) -> bool {
    balance.share >= (balance.fair_share(nic) * TIMES_FAIR).min(NEARLY_ALL)
}

fn match_interface(view: &HostView<'_>, nic: &ScaledInterface<'_>) -> Option<RuleMatch> {
    let balance = QueueBalance::from_view(view, nic)?;
    let since_boot = !balance.rates;
    if balance.is_intended(nic)
        || !is_skewed(&balance, nic)
        || since_boot && balance.share < NEARLY_ALL_SINCE_BOOT
        || single_flow::is_cause(&balance, nic)
    {
        return None;
    }
    let interface = nic.interface();
    let percent = (balance.share * 100.0).floor();
    let when = if since_boot { " since boot" } else { "" };
    let title = format!(
        "Queue {} of {interface} took in {percent} % of the packets{when}, and the other {} queues the rest",
        balance.hottest,
        balance.queues.len() - 1
    );
    let severity = severity(view, nic, &balance);
    let drops = drops(view, nic, &balance).filter(|drops| *drops > 0.0).map(f64::round);
    let drops_label = format!("packets per second that queue {} lost", balance.hottest);
    let rule_match = RuleMatch::new(severity, title)
        .evidence(balance.label(), balance.by_queue(), &balance.read_from)
        .evidence("share of the queue in percent", percent, &balance.read_from)
        .evidence_if(drops_label, drops, balance.read_from);
    Some(rule_match)
}

fn severity(view: &HostView<'_>, nic: &ScaledInterface<'_>, balance: &QueueBalance) -> Severity {
    let rps_cpus = view.now.softirq.rps_cpus(nic.interface(), balance.hottest);
    let rate = balance.share * balance.total;
    let has_drops = drops(view, nic, balance).is_some_and(|drops| drops > 0.0);
    if !balance.rates || rate < FEW_NOW && !has_drops {
        Severity::Note
    } else if rps_cpus.is_some_and(|cpus| cpus.len() > 1) {
        // RPS distributes the packets; only the driver's part of the work remains.
        Severity::Low
    } else if rate >= BUSY || has_drops {
        Severity::High
    } else {
        Severity::Medium
    }
}

/// Packets per second lost at the hottest queue.
fn drops(view: &HostView<'_>, nic: &ScaledInterface<'_>, balance: &QueueBalance) -> Option<f64> {
    view.rate(|path| {
        let counts = path.rss_of(nic.interface())?.counts()?;
        counts.iter().find(|item| item.queue == balance.hottest)?.drops
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::PacketPath;
    use crate::stage::rss::{HashFields, sample};

    /// A NIC with this many queues that hashes addresses only.
    fn addresses_only(queues: u32) -> PacketPath {
        let mut path = sample::path(24, queues);
        let sd = HashFields::from_letters("sd").expect("letters");
        path.rss[0].fields = Known::Value(Some([("udp4".to_owned(), sd)].into()));
        path.rss[0].queues = sample::counts(&vec![1_000_000; queues as usize]);
        path
    }

    fn matches(before: &PacketPath, rates: &[u64]) -> Vec<RuleMatch> {
        let now = sample::later(before, rates);
        RULE.twice(before, &now)
    }

    #[test]
    fn rps_on_the_busy_queue_lowers_the_severity() {
        let mut path = addresses_only(4);
        path.softirq.rps = sample::rps([(0..4).collect()]);
        assert_eq!(matches(&path, &[350_000, 0, 0, 0])[0].severity, Severity::Low);
        assert_eq!(matches(&addresses_only(4), &[350_000, 0, 0, 0])[0].severity, Severity::High);
        assert_eq!(matches(&addresses_only(4), &[20_000, 0, 0, 0])[0].severity, Severity::Medium);
    }

    #[test]
    fn a_modest_flow_among_many_queues_is_a_note() {
        let mut rates = [90; 64];
        rates[12] = 300;
        assert_eq!(matches(&addresses_only(64), &rates)[0].severity, Severity::Note);
    }

    #[test]
    fn queues_outside_the_table_have_an_equal_share() {
        // Flow Director of ixgbe spreads flows over more queues than the table has.
        let mut path = addresses_only(20);
        path.rss[0].table = Known::Value(Some((0..4).cycle().take(128).collect()));
        assert!(matches(&path, &[5_000; 20]).is_empty());
        let mut rates = [5_000; 20];
        rates[19] = 50_000;
        assert_eq!(matches(&path, &rates)[0].severity, Severity::Medium);
    }

    #[test]
    fn mild_skew_low_traffic_and_ntuple_rules_are_no_imbalance() {
        assert!(matches(&addresses_only(4), &[50_000, 20_000, 20_000, 10_000]).is_empty());
        assert!(matches(&addresses_only(2), &[80_000, 20_000]).is_empty());
        assert!(matches(&addresses_only(4), &[4_000, 0, 0, 0]).is_empty());
        let mut with_rule = addresses_only(4);
        with_rule.rss[0].ntuple = Known::Value(Some(vec![sample::ntuple_rule(2)]));
        assert!(matches(&with_rule, &[10, 10, 350_000, 10]).is_empty());
        // A table that gives one queue most entries is found by the other rule.
        let mut uneven = addresses_only(4);
        uneven.rss[0].table = Known::Value(Some(vec![0, 0, 0, 0, 0, 1, 2, 3]));
        assert!(matches(&uneven, &[62_000, 13_000, 12_000, 13_000]).is_empty());
    }

    #[test]
    fn imbalance_since_boot_is_a_note_and_only_if_extreme() {
        let since_boot = |packets: &[u64]| {
            let mut path = addresses_only(4);
            path.rss[0].queues = sample::counts(packets);
            RULE.once(&path)
        };
        let rule_match = since_boot(&[5_000_000, 10, 10, 10]).remove(0);
        assert_eq!(rule_match.severity, Severity::Note);
        assert!(rule_match.title.contains("99 % of the packets since boot"), "{rule_match:?}");
        assert!(since_boot(&[5_000_000, 1_000_000, 10, 10]).is_empty());
        assert!(since_boot(&[50_000, 0, 0, 0]).is_empty());
    }
}
