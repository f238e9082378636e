//! One transmit queue for all CPUs.

use super::{TransmitNic, transmit_nics};
use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::HostView;
use crate::stage::link::queues;

pub(in crate::stage) const RULE: Rule = Rule {
    id: "transmit.single-queue",
    title: "All CPUs send by one transmit queue",
    why: "Every packet takes the lock of its queue's qdisc and that of the driver's ring. With one queue, \
          all CPUs that send wait for each other, and more threads only wait more.",
    effect: "1,086,000 transactions/s when any CPU used any queue, 5,050,000 with one queue per CPU, on 20 \
             CPUs.",
    published_ratio: None,
    source: "T. Makita, Boost UDP Transaction Performance, LinuxCon Japan 2016",
    kernels: "all; since 6.19 enqueueing needs no lock, which reduces the contention",
    remedy: "Give the interface more channels; for a virtual machine, more queues on the hypervisor's side first (virtio: \
             queues=N of the interface's driver).",
    caveats: "One CPU sends everything, for example of a server with one thread.",
    check: |view| transmit_nics(view).filter_map(|nic| match_interface(view, &nic)).collect(),
};

fn match_interface(view: &HostView<'_>, nic: &TransmitNic<'_>) -> Option<RuleMatch> {
    if nic.link.transmit_queues.value() != Some(&1) {
        return None;
    }
    let interface = nic.interface();
    let cpus = nic.cpus.len();
    let room = queues::transmit_room(view, nic.link);
    let severity = match room {
        // With few CPUs or packets it costs little.
        _ if cpus >= 4 && queues::matters(view, nic.link, "tx_packets") => Severity::Medium,
        Some(_) => Severity::Low,
        None => Severity::Note,
    };
    let title = format!("{interface} has one transmit queue for {cpus} CPUs");
    let rule_match = RuleMatch::new(severity, title)
        .costs_packets_of(interface)
        .evidence("transmit queues", 1, format!("/sys/class/net/{interface}/queues"))
        .evidence("CPUs online", nic.cpus.to_string(), "/sys/devices/system/cpu/online");
    let Some((from, to)) = room else { return Some(rule_match) };
    let read_from = format!("ETHTOOL_GCHANNELS of {interface}, as ethtool -l {interface} shows it");
    let rule_match =
        rule_match.evidence("most transmit channels", from.tx_max.max(from.combined_max), read_from);
    Some(queues::with_channels(rule_match, interface, &from, &to))
}

#[cfg(test)]
mod tests {
    use super::super::tests::path;
    use super::*;
    use crate::stage::PacketPath;
    use crate::stage::link::{ChannelCounts, DeviceKind};
    use crate::{CpuSet, Known};

    fn busy(cpus: u32) -> PacketPath {
        let mut path = path(cpus, &[""]);
        path.machine.cores = Known::Value((0..cpus).map(|cpu| CpuSet::from_iter([cpu])).collect());
        path.link[0].totals = Known::Value([("tx_packets".to_owned(), 20_000_000)].into());
        path
    }

    #[test]
    fn one_transmit_queue_without_a_fix_is_a_note_with_few_cpus_or_packets() {
        let small = RULE.once(&busy(2)).remove(0);
        assert_eq!((small.severity, small.changes.len()), (Severity::Note, 0));
        assert_eq!(RULE.once(&busy(4))[0].severity, Severity::Medium);
        let mut quiet = busy(4);
        quiet.link[0].totals = Known::Value([("tx_packets".to_owned(), 1_200_000)].into());
        assert_eq!(RULE.once(&quiet)[0].severity, Severity::Note);
    }

    #[test]
    fn one_transmit_queue_gets_as_many_channels_as_there_are_cores() {
        let combined = ChannelCounts { combined: 1, combined_max: 16, ..ChannelCounts::default() };
        // Like tg3, which has one transmit queue by default.
        let separate = ChannelCounts { rx: 4, tx: 1, rx_max: 4, tx_max: 4, ..ChannelCounts::default() };
        let single = ChannelCounts { rx: 1, tx: 1, rx_max: 2, tx_max: 2, ..ChannelCounts::default() };
        for (channels, command) in [
            (combined, "ethtool -L eth0 combined 8"),
            (separate, "ethtool -L eth0 rx 4 tx 4"),
            (single, "ethtool -L eth0 rx 2 tx 2"),
        ] {
            let mut path = busy(16);
            path.machine.cores =
                Known::Value((0..8).map(|core| CpuSet::from_iter([core, core + 8])).collect());
            path.link[0].channels = Known::Value(Some(channels));
            let mut finding = RULE.findings(&HostView::once(&path)).remove(0);
            assert_eq!(finding.commands, [command]);
            finding.hold_back();
            assert_eq!(finding.commands, [""; 0], "packets would reach more CPUs");
        }
    }

    #[test]
    fn several_queues_one_cpu_or_virtual_links_are_not_reported() {
        assert!(RULE.once(&path(8, &["", ""])).is_empty());
        assert!(RULE.once(&path(1, &[""])).is_empty());
        RULE.assert_no_match(
            &path(8, &[""]),
            &[
                |path| path.link[0].device = Known::Value(DeviceKind::Software),
                |path| path.link[0].transmit_queues = Known::unknown("gone"),
            ],
        );
    }
}
