//! Stuck transmit queues.

use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::transmit::TransmitState;
use crate::stage::{HostView, PacketPath};

pub(in crate::stage) const RULE: Rule = Rule {
    id: "transmit.queue-stuck",
    title: "A transmit queue stood still until the watchdog woke its driver",
    why: "A queue that the driver stopped and that finished nothing for seconds (NETDEV WATCHDOG in the \
          kernel's log) counts as stuck, and most drivers then reset the NIC. Waiting packets are late or \
          lost.",
    effect: "Seconds without a reply each time.",
    published_ratio: None,
    source: "dev_watchdog, net/sched/sch_generic.c of the kernel",
    kernels: "3.1 and later",
    remedy: "Look for messages of the driver in the kernel's log; update driver and firmware; on a virtual machine, \
             look at the hypervisor's side.",
    caveats: "It happened once, after a change of the link or of the driver's settings.",
    check: |view| view.now.transmit.iter().filter_map(|transmit| match_interface(view, transmit)).collect(),
};

fn match_interface(view: &HostView<'_>, transmit: &TransmitState) -> Option<RuleMatch> {
    let interface = &transmit.interface;
    let now = timeouts(view.now, interface)?;
    let earlier_count =
        view.before.and_then(|before| timeouts(before, interface)).filter(|before| *before < now);
    let (severity, when, count) = match earlier_count {
        Some(before) => (Severity::High, "between the two readings", now - before),
        None if now > 0 => (Severity::Note, "since it was made", now),
        None => return None,
    };
    let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
    let stuck_queues = transmit.queues().iter().filter_map(|queue| {
        let count = *queue.timeouts.value()?;
        (count > 0).then_some((queue.queue, count))
    });
    let rule_match =
        RuleMatch::new(severity, format!("Transmit queues of {interface} stood still {times} {when}"));
    Some(stuck_queues.fold(rule_match, |rule_match, (queue, count)| {
        let file = format!("/sys/class/net/{interface}/queues/tx-{queue}/tx_timeout");
        rule_match.evidence(format!("times tx-{queue} stood still"), count, file)
    }))
}

/// The sum over all queues with a known count; `None` if no count is known.
fn timeouts(path: &PacketPath, interface: &str) -> Option<u64> {
    let counts =
        path.transmit_of(interface)?.queues().iter().filter_map(|queue| queue.timeouts.value().copied());
    counts.reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::super::tests::path;
    use super::*;
    use crate::Known;

    fn path_with_timeouts(timeouts: u64) -> PacketPath {
        let mut path = path(4, &["0", "1"]);
        path.transmit[0].queues.expect_mut()[1].timeouts = Known::Value(timeouts);
        path
    }

    #[test]
    fn current_queue_timeouts_are_high_and_past_timeouts_a_note() {
        let (before, now) = (path_with_timeouts(1), path_with_timeouts(3));
        assert_eq!(RULE.twice(&before, &now)[0].severity, Severity::High);
        assert_eq!(RULE.once(&before)[0].severity, Severity::Note);
        assert!(RULE.once(&path_with_timeouts(0)).is_empty());
        let mut unknown = path_with_timeouts(3);
        unknown.transmit[0].queues = Known::unknown("gone");
        assert!(RULE.once(&unknown).is_empty());
    }
}
