//! Counters of queues: from the netdev family if the kernel has them, otherwise from the driver's
//! statistics.

use std::collections::BTreeMap;

use serde::Serialize;

use super::queue_names::{NAMES, QueueCounterKind};
use crate::Known;
use crate::netlink::qstats::{QueueStatistic, QueueStatistics};
use crate::setting::QueueDirection;
use crate::stage::link::{LinkState, xdp_counter_within};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueCounts {
    pub queue: u32,
    pub packets: u64,
    /// `None` if the source does not report it.
    pub bytes: Option<u64>,
    /// Packets lost for lack of buffers or descriptors; `None` if the source does not report them.
    pub drops: Option<u64>,
    /// `qstats-get` of the netdev family, or the driver's name.
    pub read_from: String,
}

/// `None` without a source.
pub(crate) fn queue_counts(
    link: &LinkState,
    statistics: &Known<Option<QueueStatistics>>,
    direction: QueueDirection,
) -> Known<Option<Vec<QueueCounts>>> {
    let reported_counts = statistics.value().and_then(Option::as_ref).map(|statistics| match direction {
        QueueDirection::Receive => kernel_counts(&statistics.rx),
        QueueDirection::Transmit => kernel_counts(&statistics.tx),
    });
    if let Some(counts) = reported_counts.filter(|counts| !counts.is_empty()) {
        return Known::Value(Some(counts));
    }
    let queues = match direction {
        QueueDirection::Receive => &link.receive_queues,
        QueueDirection::Transmit => &link.transmit_queues,
    };
    let queue_limit = queues.value().copied().unwrap_or(u32::MAX);
    match (&link.statistics, statistics.why()) {
        (Known::Value(Some(statistics)), reason) => {
            let mut counts = driver_counts(link, statistics, direction, queue_limit);
            if counts.iter().all(|item| item.packets == 0) && has_traffic(link, direction) {
                counts.clear();
            }
            match reason {
                Some(reason) if counts.is_empty() => Known::unknown(reason),
                _ => Known::Value((!counts.is_empty()).then_some(counts)),
            }
        }
        (Known::Value(None), None) => Known::Value(None),
        (Known::Unknown { why }, None) => Known::unknown(why.clone()),
        (_, Some(reason)) => Known::unknown(reason),
    }
}

/// Whether the interface carried packets. If it did, queues whose counters are all zero do not
/// count packets. A veth counts only packets of NAPI (drivers/net/veth.c, Linux 6.18).
fn has_traffic(link: &LinkState, direction: QueueDirection) -> bool {
    let name = match direction {
        QueueDirection::Receive => "rx_packets",
        QueueDirection::Transmit => "tx_packets",
    };
    link.total(name).is_some_and(|packets| packets > 0)
}

fn kernel_counts(statistics: &[QueueStatistic]) -> Vec<QueueCounts> {
    let counts = |item: &QueueStatistic| {
        Some(QueueCounts {
            queue: item.queue,
            packets: item.packets?,
            bytes: item.bytes,
            drops: item.drops,
            read_from: "qstats-get of the netdev family".to_owned(),
        })
    };
    statistics.iter().filter_map(counts).collect()
}

/// The driver's statistics of the first `queue_limit` queues, because drivers also list unused
/// queues (ixgbe lists as many as the interface could have).
fn driver_counts(
    link: &LinkState,
    statistics: &BTreeMap<String, u64>,
    direction: QueueDirection,
    queue_limit: u32,
) -> Vec<QueueCounts> {
    let driver = link.driver.value().and_then(Option::as_ref).map_or("", |driver| &driver.name);
    let xdp_drops = |drops| xdp_counter_within(driver, drops).and_then(|name| statistics.get(&name).copied());
    let mut queues: BTreeMap<u32, CounterSum<'_>> = BTreeMap::new();
    for (name, value) in statistics {
        for (kind, queue) in parse_counter_name(name).filter(|(_, queue)| *queue < queue_limit) {
            let sum = queues.entry(queue).or_default();
            match (direction, kind) {
                (QueueDirection::Receive, QueueCounterKind::ReceivedPackets)
                | (QueueDirection::Transmit, QueueCounterKind::SentPackets) => {
                    add(&mut sum.packets, *value);
                    sum.name = sum.name.or(Some(name));
                }
                (QueueDirection::Receive, QueueCounterKind::ReceivedBytes) => add(&mut sum.bytes, *value),
                (QueueDirection::Receive, QueueCounterKind::ReceiveDrops) => {
                    add(&mut sum.drops, value.saturating_sub(xdp_drops(name).unwrap_or(0)));
                }
                _ => {}
            }
        }
    }
    let counts = |(queue, sum): (u32, CounterSum<'_>)| {
        Some(QueueCounts {
            queue,
            packets: sum.packets?,
            bytes: sum.bytes,
            drops: sum.drops,
            read_from: format!("ethtool -S {}: {}", link.interface, sum.name?),
        })
    };
    queues.into_iter().filter_map(counts).collect()
}

#[derive(Default)]
struct CounterSum<'a> {
    packets: Option<u64>,
    bytes: Option<u64>,
    drops: Option<u64>,
    name: Option<&'a str>,
}

fn add(sum: &mut Option<u64>, value: u64) {
    *sum = Some(sum.unwrap_or(0).saturating_add(value));
}

/// Kind and queue of a counter's name.
pub(crate) fn parse_counter_name(name: &str) -> impl Iterator<Item = (QueueCounterKind, u32)> + '_ {
    NAMES.iter().filter_map(move |pattern| {
        let number = name.strip_prefix(pattern.before)?.strip_suffix(pattern.after)?;
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| number.parse().ok()).flatten().map(|queue| (pattern.counted, queue))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::rss::sample::{driver, link};

    fn counts(names: &[(&str, u64)], direction: QueueDirection, max_queues: u32) -> Vec<QueueCounts> {
        counts_of(&link("eth0", max_queues), names, direction, max_queues)
    }

    fn counts_of(
        link: &LinkState,
        names: &[(&str, u64)],
        direction: QueueDirection,
        max_queues: u32,
    ) -> Vec<QueueCounts> {
        let statistics = names.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        driver_counts(link, &statistics, direction, max_queues)
    }

    #[test]
    fn packets_that_xdp_drops_on_virtio_are_no_drops_of_its_queue() {
        let mut virtio = link("eth0", 1);
        virtio.driver = driver("virtio_net");
        for prefix in ["rx_queue_0", "rx0"] {
            let names = ["packets", "drops", "xdp_drops"].map(|name| format!("{prefix}_{name}"));
            let names = [(names[0].as_str(), 90), (names[1].as_str(), 12), (names[2].as_str(), 10)];
            let drops = |link| counts_of(link, &names, QueueDirection::Receive, 1)[0].drops;
            assert_eq!(drops(&virtio), Some(2), "{prefix}");
            assert_eq!(drops(&link("eth0", 1)), Some(12), "other drivers count them apart");
        }
    }

    #[test]
    fn ixgbe_queue_counters_are_read_up_to_the_queue_count() {
        let names = [
            ("rx_packets", 30),
            ("rx_queue_0_packets", 10),
            ("rx_queue_0_bytes", 1000),
            ("rx_queue_1_packets", 20),
            ("rx_queue_1_bytes", 2000),
            ("rx_queue_2_packets", 0),
            ("tx_queue_0_packets", 7),
        ];
        let receive_counts = counts(&names, QueueDirection::Receive, 2);
        assert_eq!(
            receive_counts.iter().map(|item| (item.queue, item.packets)).collect::<Vec<_>>(),
            [(0, 10), (1, 20)]
        );
        assert_eq!(receive_counts[1].bytes, Some(2000));
        assert_eq!(receive_counts[1].drops, None);
        assert_eq!(receive_counts[1].read_from, "ethtool -S eth0: rx_queue_1_packets");
        assert_eq!(counts(&names, QueueDirection::Transmit, 2)[0].packets, 7);
    }

    #[test]
    fn queue_counter_names_of_each_driver_are_recognized() {
        for (name, queue) in [
            ("rx-0.packets", 0),
            ("rx-11.rx_packets", 11),
            ("rx3_packets", 3),
            ("queue_5_rx_cnt", 5),
            ("rx_7_packets", 7),
            ("rx_completed_desc[2]", 2),
            ("[4]: rx_ucast_packets", 4),
            ("rxq1: rx_pkts", 1),
            ("rvec_6_rx_pkts", 6),
            ("9: rcv_pkts", 9),
            ("Queue[8] InPackets", 8),
            ("rx_queue_10_xdp_packets", 10),
        ] {
            let receive_counts = counts(&[(name, 1)], QueueDirection::Receive, u32::MAX);
            assert_eq!(receive_counts.iter().map(|item| item.queue).collect::<Vec<_>>(), [queue], "{name}");
        }
    }

    #[test]
    fn unicast_multicast_and_broadcast_packets_are_summed() {
        let names = [
            ("[0]: rx_ucast_packets", 5),
            ("[0]: rx_mcast_packets", 3),
            ("[0]: rx_bcast_packets", 1),
            ("[0]: rx_discards", 2),
        ];
        let receive_counts = counts(&names, QueueDirection::Receive, 1);
        assert_eq!((receive_counts[0].packets, receive_counts[0].drops), (9, Some(2)));
    }

    #[test]
    fn totals_and_malformed_names_are_not_queue_counters() {
        for name in
            ["rx_packets", "rx_bytes", "rx_x_packets", "rx_queue__packets", "rx_queue_-1_packets", "", "]"]
        {
            assert_eq!(counts(&[(name, 1)], QueueDirection::Receive, u32::MAX), [], "{name}");
        }
    }

    #[test]
    fn each_counter_name_pattern_has_one_meaning() {
        for pattern in NAMES {
            let name = format!("{}3{}", pattern.before, pattern.after);
            assert_eq!(parse_counter_name(&name).count(), 1, "{name}");
        }
    }
}
