//! Traffic of an interface.

use super::load;
use crate::finding::Evidence;
use crate::stage::{HostView, PacketPath};

/// Packets per second below which an interface is quiet: between two readings, and on average since
/// boot, which includes nights.
const QUIET_NOW: f64 = 1_000.0;
const QUIET_SINCE_BOOT: f64 = 100.0;

/// Softirq share of a CPU's time from which on the CPU is busy.
const BUSY: f64 = 0.5;

/// Whether softirqs used a large part of one of these CPUs between two readings.
pub(in crate::stage) fn is_any_busy(view: &HostView<'_>, mut cpus: impl Iterator<Item = u32>) -> bool {
    let shares = view.before.and_then(|_| load::time_shares(view)).unwrap_or_default();
    cpus.any(|cpu| shares.get(&cpu).is_some_and(|share| *share >= BUSY))
}

/// Whether an interface received almost nothing between two readings.
pub(in crate::stage) fn is_quiet_now(view: &HostView<'_>, interface: &str) -> bool {
    view.before.is_some() && is_quiet(view, interface)
}

/// Whether an interface is known to receive almost nothing.
pub(in crate::stage) fn is_quiet(view: &HostView<'_>, interface: &str) -> bool {
    quiet_rate(view, |path| path.link_of(interface)?.total("rx_packets")).is_some()
}

/// The packet rate of an interface, if it is so low that a cost per packet does not matter.
pub(in crate::stage) fn light_load(view: &HostView<'_>, interface: &str) -> Option<Evidence> {
    let packets = |path: &PacketPath| {
        let link = path.link_of(interface)?;
        Some(link.total("rx_packets")?.saturating_add(link.total("tx_packets").unwrap_or(0)))
    };
    let rate = quiet_rate(view, packets)?;
    let when = if view.before.is_some() { "" } else { " on average" };
    Some(Evidence {
        what: format!("packets of {interface} per second{when}, too few for this to matter"),
        value: rate.round().into(),
        read_from: format!("/sys/class/net/{interface}/statistics"),
    })
}

fn quiet_rate(view: &HostView<'_>, packets: impl Fn(&PacketPath) -> Option<u64>) -> Option<f64> {
    if view.before.is_some() {
        return view.rate(packets).filter(|rate| *rate < QUIET_NOW);
    }
    let rate = packets(view.now)? as f64 / view.now.uptime_seconds.value()?;
    (rate < QUIET_SINCE_BOOT).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity::{self, Low, Medium, Note};
    use crate::finding::Rule;
    use crate::stage::irq::rules::not_hint;
    use crate::stage::irq::sample::{SampleMachine, path};
    use crate::stage::link::far_node;
    use crate::stage::softirq::rules::{rps_crosses_node, rps_on_sibling};

    const PACKETS: [&str; 2] =
        ["/sys/class/net/eth0/statistics/rx_packets", "/sys/class/net/eth0/statistics/tx_packets"];

    fn severities(rule: Rule, machine: &SampleMachine<'_>, packets: [&str; 2]) -> (Severity, Severity) {
        let files = [("/proc/uptime", "1000 1\n"), (PACKETS[0], packets[0]), (PACKETS[1], packets[1])];
        let path = path(&SampleMachine { files: &files, ..machine.clone() });
        let finding = rule.findings(&HostView::once(&path)).remove(0);
        (finding.severity, finding.severity_under_load)
    }

    #[test]
    fn costs_of_an_idle_interface_are_notes_and_plans_stay_the_same() {
        let hints = SampleMachine { vectors: &[0, 0], hints: Some(&[0, 1]), ..SampleMachine::PLAIN };
        let far = SampleMachine {
            nodes: &["0-1", "2-3"],
            nic_node: Some(0),
            vectors: &[2],
            ..SampleMachine::PLAIN
        };
        let crossing = SampleMachine { vectors: &[0, 2], rps: &["0-3", "2-3"], ..far.clone() };
        let sibling =
            SampleMachine { cores: &["0,1", "2,3"], vectors: &[0], rps: &["1"], ..SampleMachine::PLAIN };
        for (rule, machine, severity) in [
            (not_hint::RULE, hints, Medium),
            (far_node::RULE, far, Medium),
            (rps_crosses_node::RULE, crossing, Low),
            (rps_on_sibling::RULE, sibling, Low),
        ] {
            let severities = |packets| severities(rule, &machine, packets);
            assert_eq!(severities(["50000", "40000"]), (Note, severity), "{}", rule.id);
            assert_eq!(severities(["9000000", "0"]), (severity, severity), "{}", rule.id);
            assert_eq!(severities(["50000", "9000000"]), (severity, severity), "{}", rule.id);
        }
    }
}
