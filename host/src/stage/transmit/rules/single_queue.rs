//! One transmit queue for all CPUs.

use super::{TransmitNic, transmit_nics};
use crate::finding::{Rule, RuleMatch, Severity};

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
    check: |view| transmit_nics(view).filter_map(|nic| match_interface(&nic)).collect(),
};

fn match_interface(nic: &TransmitNic<'_>) -> Option<RuleMatch> {
    if nic.link.transmit_queues.value() != Some(&1) {
        return None;
    }
    let interface = nic.interface();
    let cpus = nic.cpus.len();
    let channels = nic.link.channels.value().copied().flatten();
    let channel_limit =
        channels.map(|channels| channels.tx_max.max(channels.combined_max)).filter(|limit| *limit > 1);
    let severity = match channel_limit {
        // No setting on this host fixes it, and with few CPUs it costs little.
        None if cpus < 4 => Severity::Note,
        Some(_) if cpus < 4 => Severity::Low,
        _ => Severity::Medium,
    };
    let title = format!("{interface} has one transmit queue, and {cpus} CPUs meet at its lock");
    let rule_match = RuleMatch::new(severity, title)
        .costs_packets_of(interface)
        .evidence("transmit queues", 1, format!("/sys/class/net/{interface}/queues"))
        .evidence("CPUs online", nic.cpus.to_string(), "/sys/devices/system/cpu/online");
    let (Some(limit), Some(channels)) = (channel_limit, channels) else { return Some(rule_match) };
    let read_from = format!("ETHTOOL_GCHANNELS of {interface}, as ethtool -l {interface} shows it");
    let new_count = u32::try_from(cpus).unwrap_or(u32::MAX).min(limit);
    let kind = if channels.combined_max > 1 { "combined" } else { "tx" };
    Some(
        rule_match
            .evidence("most transmit channels", limit, read_from)
            .command(format!("ethtool -L {interface} {kind} {new_count}")),
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::path;
    use super::*;
    use crate::Known;
    use crate::stage::link::DeviceKind;

    #[test]
    fn one_transmit_queue_without_a_fix_is_a_note_on_small_hosts() {
        let small = RULE.once(&path(2, &[""])).remove(0);
        assert_eq!((small.severity, small.commands.len()), (Severity::Note, 0));
        assert_eq!(RULE.once(&path(4, &[""]))[0].severity, Severity::Medium);
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
