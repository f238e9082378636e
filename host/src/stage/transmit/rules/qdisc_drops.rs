//! Packets lost in the qdisc.

use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::HostView;
use crate::stage::transmit::{QdiscState, TransmitState};

pub(in crate::stage) const RULE: Rule = Rule {
    id: "transmit.qdisc-drops",
    title: "The queueing discipline drops packets",
    why: "A qdisc queues packets that the driver cannot accept, and drops packets when its queue is full or, \
          for fq_codel and fq, when packets waited too long or one flow has too many. The sender usually \
          gets no error: the reply is lost on its own host.",
    effect: "Each drop is a transaction without an answer, after all its work.",
    published_ratio: None,
    source: "tc(8) and net/sched of the kernel",
    kernels: "all",
    remedy: "First check whether the link itself is full, and whether a shaper sets the rate. If bursts are \
             the cause, lengthen the qdisc's queue (txqueuelen for pfifo_fast; limit and flow_limit for fq \
             and fq_codel).",
    caveats: "Traffic is shaped or policed on purpose: drops are how that is done.",
    check: |view| view.now.transmit.iter().filter_map(|transmit| match_interface(view, transmit)).collect(),
};

/// Below this share of sent packets, or this number, drops since boot are not a current problem.
const PART_SINCE_BOOT: f64 = 0.001;
const LEAST_SINCE_BOOT: u64 = 1_000;

/// Share of sent packets above which drops are more than peaks.
const PART_NOW: f64 = 0.001;

fn match_interface(view: &HostView<'_>, transmit: &TransmitState) -> Option<RuleMatch> {
    let root = transmit.root()?;
    let interface = &transmit.interface;
    let rate = |count: fn(&QdiscState) -> u64| {
        view.rate(|path| path.transmit_of(interface)?.root().filter(|now| now.kind == root.kind).map(count))
    };
    let read_from = format!("RTM_GETQDISC of {interface}, as tc -s qdisc show dev {interface} shows it");
    let rule_match = if view.before.is_some() {
        let drops = rate(|root| root.drops).filter(|drops| *drops > 0.0)?;
        let share = drops / (drops + rate(|root| root.packets)?);
        let severity = match share {
            _ if view.is_small_loss(drops) => Severity::Note,
            PART_NOW.. => Severity::High,
            _ => Severity::Medium,
        };
        let title = format!(
            "The discipline {} of {interface} drops {} packets per second, {:.2} % of those to be sent",
            root.kind,
            drops.ceil(),
            share * 100.0
        );
        RuleMatch::new(severity, title).evidence("drops per second", drops.ceil(), read_from.clone())
    } else {
        let share = root.drops as f64 / root.packets.saturating_add(root.drops).max(1) as f64;
        if root.drops < LEAST_SINCE_BOOT || share < PART_SINCE_BOOT {
            return None;
        }
        let title = format!(
            "The discipline {} of {interface} dropped {} packets since it was set up, {:.2} % of those to be sent",
            root.kind,
            root.drops,
            share * 100.0
        );
        RuleMatch::new(Severity::Low, title)
    };
    Some(
        rule_match
            .evidence("drops", root.drops, read_from.clone())
            .evidence("packets sent", root.packets, read_from.clone())
            .evidence("requeues", root.requeues, read_from.clone())
            .evidence("packets that wait", root.backlog, read_from),
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::path;
    use super::*;
    use crate::Known;
    use crate::stage::PacketPath;

    fn path_with_qdisc(kind: &str, packets: u64, drops: u64, uptime: f64) -> PacketPath {
        let mut path = path(4, &["0", "1"]);
        let discipline = |kind: &str, parent: &str| QdiscState {
            kind: kind.into(),
            handle: "0:".into(),
            parent: parent.into(),
            packets,
            drops,
            requeues: 0,
            backlog: 0,
        };
        path.uptime_seconds = Known::Value(uptime);
        path.transmit[0].disciplines = Known::Value(vec![
            discipline(kind, "root"),
            discipline("fq_codel", ":1"),
            discipline("clsact", "ingress"),
        ]);
        path
    }

    #[test]
    fn current_qdisc_drops_are_reported_with_their_rate() {
        let before = path_with_qdisc("mq", 1_000_000, 100, 1000.0);
        let matches = |drops| {
            let now = path_with_qdisc("mq", 2_000_000, drops, 1010.0);
            RULE.twice(&before, &now)
        };
        assert_eq!(matches(20_100)[0].severity, Severity::High);
        assert_eq!(matches(200)[0].severity, Severity::Medium);
        assert!(matches(100).is_empty());
        // Another qdisc since then: its counters restarted.
        let now = path_with_qdisc("fq", 2_000_000, 20_100, 1010.0);
        assert!(RULE.twice(&before, &now).is_empty());
    }

    #[test]
    fn qdisc_drops_since_setup_are_low_and_few_are_not_reported() {
        let since_setup = |packets, drops| RULE.once(&path_with_qdisc("mq", packets, drops, 1000.0));
        assert_eq!(since_setup(1_000_000, 5_000)[0].severity, Severity::Low);
        assert!(since_setup(1_000_000, 500).is_empty());
        assert!(since_setup(1_000_000_000, 5_000).is_empty());
        assert!(since_setup(0, 0).is_empty());
    }
}
