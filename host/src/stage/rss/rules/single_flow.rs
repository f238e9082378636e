//! One queue with nearly all packets although hash and table are correct.

use super::balance::QueueBalance;
use super::{ScaledInterface, scaled_interfaces};
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::HostView;

pub(in crate::stage) const RULE: Rule = Rule {
    id: "rss.single-flow",
    title: "Nearly all packets are of one flow, or of very few",
    why: "All packets of a flow (the same addresses and ports) have the same hash and come into one queue, \
          so one CPU processes them. No setting of the NIC changes that, and RPS hashes the same fields. \
          Only more flows help, or threads on other CPUs.",
    effect: "One sender filled one queue with 350,000 packets/s, and a second sender of the same flow added nothing.",
    published_ratio: None,
    source: "M. Majkowski, How to receive a million packets per second, 2015",
    kernels: "all",
    remedy: "Let the peer use more flows: several source ports, or several addresses of the service. A test with one \
             sender needs many source ports to resemble many clients. For a tunnel, hash the inner headers if the NIC \
             supports it.",
    caveats: "One peer is supposed to send everything, and one CPU can keep up.",
    check: |view| scaled_interfaces(view).filter_map(|nic| match_interface(view, &nic)).collect(),
};

/// Share of the packets that only one flow or very few flows can explain.
const NEARLY_ALL: f64 = 0.9;

/// Packets per second that use a large part of one CPU.
const BUSY: f64 = 100_000.0;

/// Whether few flows cause the imbalance, and not the table or the hash. The cause is unknown if
/// fields or queues are unknown.
pub(super) fn is_cause(balance: &QueueBalance, nic: &ScaledInterface<'_>) -> bool {
    balance.rates
        && balance.share >= NEARLY_ALL
        && nic.lacks_ports() == Some(false)
        && nic.is_uneven() == Some(false)
        && nic.entries().is_some_and(|entries| entries.len() > 1)
}

fn match_interface(view: &HostView<'_>, nic: &ScaledInterface<'_>) -> Option<RuleMatch> {
    let balance = QueueBalance::from_view(view, nic)?;
    if balance.is_intended(nic) || !is_cause(&balance, nic) {
        return None;
    }
    let interface = nic.interface();
    let percent = (balance.share * 100.0).floor();
    let severity = if balance.share * balance.total >= BUSY { Severity::Medium } else { Severity::Low };
    let title = format!(
        "Queue {} of {interface} took in {percent} % of the packets, though its table and its hash spread flows over {} \
         queues: they are of one flow, or of very few",
        balance.hottest,
        nic.entries()?.len(),
    );
    let rule_match = RuleMatch::new(severity, title)
        .evidence(balance.label(), balance.by_queue(), balance.read_from.clone())
        .evidence("queues named in the table", nic.entries()?.len(), super::table_call(interface));
    let fields = nic.rss.fields.value()?.as_ref()?;
    Some(fields.iter().filter(|(flow, _)| flow.starts_with("udp")).fold(
        rule_match,
        |rule_match, (flow, fields)| {
            let label = format!("hash fields of {flow}");
            rule_match.evidence(label, fields.letters(), format!("ETHTOOL_GRXFH of {interface}"))
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::super::imbalance;
    use super::*;
    use crate::Known;
    use crate::stage::PacketPath;
    use crate::stage::rss::{HashFields, sample};

    fn matches_and_imbalances(before: &PacketPath, rates: &[u64]) -> (Vec<RuleMatch>, usize) {
        let now = sample::later(before, rates);
        (RULE.twice(before, &now), imbalance::RULE.twice(before, &now).len())
    }

    fn path() -> PacketPath {
        let mut path = sample::path(8, 4);
        path.rss[0].queues = sample::counts(&[1_000_000; 4]);
        path
    }

    #[test]
    fn other_or_unknown_causes_are_reported_as_queue_imbalance() {
        let rates = [0, 340_000, 20, 0];
        let mut hash = path();
        let sd = HashFields::from_letters("sd").expect("letters");
        hash.rss[0].fields = Known::Value(Some([("udp4".to_owned(), sd)].into()));
        let mut table = path();
        table.rss[0].table = Known::unknown("no privilege");
        let mut virtual_nic = path();
        virtual_nic.rss[0].fields = Known::Value(None);
        virtual_nic.rss[0].table = Known::Value(None);
        for path in [hash, table, virtual_nic] {
            let (matches, imbalances) = matches_and_imbalances(&path, &rates);
            assert_eq!((matches.len(), imbalances), (0, 1));
        }
        let (matches, imbalances) = matches_and_imbalances(&path(), &[60_000, 340_000, 20, 0]);
        assert_eq!((matches.len(), imbalances), (0, 1));
    }

    #[test]
    fn single_flow_is_not_reported_from_one_reading() {
        let mut path = path();
        path.rss[0].queues = sample::counts(&[0, 9_000_000, 0, 0]);
        assert!(RULE.once(&path).is_empty());
    }
}
