//! Several transmit queues without XPS.

use super::{TransmitNic, by_queue, sent_rate, transmit_nics, xps_files};
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::HostView;
use crate::stage::softirq::traffic;

pub(in crate::stage) const RULE: Rule = Rule {
    id: "transmit.xps-missing",
    title: "No CPU has a transmit queue of its own",
    why: "Without XPS the flow's hash chooses the transmit queue of a packet, so any CPU sends by any queue. \
          Each queue has a lock in its qdisc and one in its driver. CPUs wait for each other at these locks, \
          and the queue's memory moves between them. Some drivers set XPS by themselves (ixgbe, i40e, ice, \
          mlx5, virtio_net), some do not (igb, ena).",
    effect: "1,086,000 transactions/s without XPS, 5,050,000 with XPS, on 20 CPUs with one queue each.",
    published_ratio: Some(4.65),
    source: "T. Makita, Boost UDP Transaction Performance, LinuxCon Japan 2016",
    kernels: "2.6.38 and later",
    remedy: "Give each CPU the transmit queue of the same number as the receive queue that interrupts it.",
    caveats: "Traffic is shaped per queue, a few CPUs send little, so that they do not contend for the \
              locks, or the hypervisor's side has fewer queues.",
    check: |view| transmit_nics(view).filter_map(|nic| match_interface(view, &nic)).collect(),
};

/// Packets per second above which CPUs are likely to contend for the locks of their queues.
const BUSY: f64 = 200_000.0;
/// Below this rate CPUs hardly ever wait for these locks.
const FEW: f64 = 1_000.0;

fn match_interface(view: &HostView<'_>, nic: &TransmitNic<'_>) -> Option<RuleMatch> {
    let xps = nic.xps()?;
    if xps.iter().any(|(_, cpus)| !cpus.is_empty()) {
        return None;
    }
    let interface = nic.interface();
    let rate = sent_rate(view, interface);
    let severity = match rate {
        Some(rate) if rate >= BUSY => Severity::High,
        Some(rate) if rate < FEW && traffic::is_quiet_now(view, interface) => Severity::Note,
        _ if nic.cpus.len() < 4 || traffic::is_quiet(view, interface) => Severity::Low,
        _ => Severity::Medium,
    };
    let title = format!(
        "{interface} has {} transmit queues and no XPS: any of {} CPUs sends by any queue, and they meet at its lock",
        xps.len(),
        nic.cpus.len()
    );
    let rule_match = RuleMatch::new(severity, title)
        .costs_packets_of(interface)
        .evidence("CPUs by transmit queue", by_queue(&xps), xps_files(interface))
        .evidence("CPUs online", nic.cpus.to_string(), "/sys/devices/system/cpu/online")
        .evidence_if(
            "packets sent per second",
            rate.map(f64::round),
            format!("/sys/class/net/{interface}/statistics/tx_packets"),
        );
    Some(nic.add_changes(rule_match, &xps))
}

#[cfg(test)]
mod tests {
    use super::super::tests::path;
    use super::*;
    use crate::stage::PacketPath;
    use crate::stage::link::DeviceKind;
    use crate::stage::rss::sample::driver;
    use crate::{CpuSet, Known};

    #[test]
    fn missing_xps_severity_follows_the_transmit_rate() {
        let with_sent_packets = |mut path: PacketPath, packets: u64| {
            path.link[0].totals = Known::Value([("tx_packets".to_owned(), packets)].into());
            path
        };
        let before = with_sent_packets(path(4, &[""; 4]), 0);
        let mut now = with_sent_packets(path(4, &[""; 4]), 5_000_000);
        now.uptime_seconds = Known::Value(1010.0);
        assert_eq!(RULE.twice(&before, &now)[0].severity, Severity::High);
        assert_eq!(RULE.once(&path(4, &[""; 4]))[0].severity, Severity::Medium);
        assert_eq!(RULE.once(&path(2, &[""; 2]))[0].severity, Severity::Low);
        let mut quiet = path(4, &[""; 4]);
        quiet.link[0].totals = Known::Value([("rx_packets".to_owned(), 50)].into());
        assert_eq!(RULE.once(&quiet)[0].severity, Severity::Low);
        let with_packets = |packets: u64| {
            let mut path = path(4, &[""; 4]);
            let totals = [("rx_packets", packets), ("tx_packets", packets)];
            path.link[0].totals = Known::Value(totals.map(|(name, count)| (name.to_owned(), count)).into());
            path
        };
        let (before, mut now) = (with_packets(0), with_packets(50));
        now.uptime_seconds = Known::Value(1010.0);
        assert_eq!(RULE.twice(&before, &now)[0].severity, Severity::Note);
    }

    #[test]
    fn set_unneeded_or_unreadable_xps_is_not_reported_as_missing() {
        assert!(RULE.once(&path(4, &["0", "1", "2", "3"])).is_empty());
        assert!(RULE.once(&path(4, &[""])).is_empty());
        assert!(RULE.once(&path(1, &[""; 4])).is_empty());
        let masks = |text| Known::Value(Some(CpuSet::from_list(text).expect("a list")));
        for (receive_queues, cpus) in [(masks("0"), masks("")), (masks(""), Known::unknown("no privilege"))] {
            let mut path = path(4, &[""; 4]);
            let queue = &mut path.transmit[0].queues.expect_mut()[2];
            (queue.xps_receive_queues, queue.xps_cpus) = (receive_queues, cpus);
            assert!(RULE.once(&path).is_empty(), "{:?}", path.transmit[0].queues);
        }
        RULE.assert_no_match(
            &path(4, &[""; 4]),
            &[
                |path| path.link[0].device = Known::Value(DeviceKind::Software),
                |path| path.link[0].driver = driver("hv_netvsc"),
            ],
        );
    }
}
