//! Reads the transmit queues of an interface.

use super::{TransmitQueueState, TransmitState};
use crate::known::number;
use crate::netlink::qdisc;
use crate::netlink::qstats::QueueStatistics;
use crate::setting::QueueDirection;
use crate::stage::link::LinkState;
use crate::stage::rss::{QueueCounts, queue_counts};
use crate::{CpuSet, Host, Known};

impl TransmitState {
    /// `statistics` are the kernel's counters of its queues, if available.
    pub(crate) fn observe(
        host: &Host,
        link: &LinkState,
        statistics: &Known<Option<QueueStatistics>>,
    ) -> Self {
        let counts = queue_counts(link, statistics, QueueDirection::Transmit);
        let directory = format!("/sys/class/net/{}/queues", link.interface);
        let queues = host.list_numbers(&directory, "tx-").map(|queues| {
            queues.into_iter().map(|queue| read_queue(host, &directory, queue, &counts)).collect()
        });
        Self {
            interface: link.interface.clone(),
            queues: queues.into(),
            disciplines: qdisc::disciplines(host, &link.interface, &link.index),
        }
    }
}

/// A missing file, or `ENOENT` on read, means that the interface does not have the feature: XPS
/// with one queue (`xps_cpus_show`, net/core/net-sysfs.c, Linux 6.18), `xps_rxqs` before 4.18, BQL
/// before 3.3.
fn read_queue(
    host: &Host,
    directory: &str,
    queue: u32,
    counts: &Known<Option<Vec<QueueCounts>>>,
) -> TransmitQueueState {
    let file = |name: &str| format!("{directory}/tx-{queue}/{name}");
    let counter = match counts {
        Known::Value(counts) => Ok(counts.iter().flatten().find(|item| item.queue == queue)),
        Known::Unknown { why } => Err(why),
    };
    TransmitQueueState {
        queue,
        xps_cpus: host.read_optional(&file("xps_cpus"), CpuSet::from_mask),
        xps_receive_queues: host.read_optional(&file("xps_rxqs"), CpuSet::from_mask),
        timeouts: host.read_known(&file("tx_timeout"), number),
        limit_bytes: host.read_optional(&file("byte_queue_limits/limit"), number),
        packets: counter.map(|item| item.map(|item| item.packets)).into(),
        packets_read_from: counter.ok().flatten().map(|item| item.read_from.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::qstats::QueueStatistic;
    use crate::stage::rss::sample;

    const QUEUES: &str = "/sys/class/net/eth0/queues";

    fn host(files: &[(&str, &str)]) -> Host {
        Host::scripted(files.iter().map(|(path, content)| (format!("{QUEUES}/{path}"), *content)))
    }

    fn observe(host: &Host) -> TransmitState {
        let statistics = QueueStatistics {
            tx: vec![QueueStatistic { queue: 10, packets: Some(7), ..QueueStatistic::default() }],
            ..QueueStatistics::default()
        };
        TransmitState::observe(host, &sample::link("eth0", 11), &Known::Value(Some(statistics)))
    }

    #[test]
    fn transmit_queues_are_read_in_numeric_order() {
        let host = host(&[
            ("tx-10/xps_cpus", "00000001,00000400\n"),
            ("tx-10/xps_rxqs", "0\n"),
            ("tx-10/tx_timeout", "3\n"),
            ("tx-10/byte_queue_limits/limit", "1514\n"),
            ("tx-2/tx_timeout", "0\n"),
            ("rx-0/rps_cpus", "0\n"),
        ]);
        let transmit = observe(&host);
        let queues = transmit.queues();
        assert_eq!(queues.iter().map(|queue| queue.queue).collect::<Vec<_>>(), [2, 10]);
        let last = &queues[1];
        assert_eq!(
            last.xps_cpus.value().cloned().flatten().map(|cpus| cpus.to_string()).as_deref(),
            Some("10,32")
        );
        assert_eq!(last.xps_receive_queues, Known::Value(Some(CpuSet::new())));
        assert_eq!((&last.timeouts, &last.limit_bytes), (&Known::Value(3), &Known::Value(Some(1514))));
        assert_eq!(last.packets, Known::Value(Some(7)));
        assert_eq!(queues[0].packets, Known::Value(None));
    }

    #[test]
    fn missing_queue_files_are_none_and_malformed_files_are_unknown() {
        let transmit = observe(&host(&[("tx-0/tx_timeout", ""), ("tx-0/xps_rxqs", "zz\n")]));
        let queue = &transmit.queues()[0];
        assert_eq!((&queue.xps_cpus, &queue.limit_bytes), (&Known::Value(None), &Known::Value(None)));
        let why = queue.timeouts.why().unwrap_or_default();
        assert_eq!(why, format!("{QUEUES}/tx-0/tx_timeout: '' is not a valid number"));
        assert!(queue.xps_receive_queues.why_contains("tx-0/xps_rxqs: 'zz'"));
        assert!(transmit.disciplines.why().is_some());
        assert!(observe(&host(&[])).queues.why_contains(QUEUES));
    }
}
