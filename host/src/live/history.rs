//! Recent values of each item.

use std::collections::{BTreeMap, VecDeque};

use crate::live::snapshot::Snapshot;

/// Values kept per item and metric.
const LENGTH: usize = 120;

/// An item of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HistoryItem {
    Path,
    Interface(String),
    Receive(String, u32),
    Cpu(u32),
    /// By name.
    Service(String),
    /// By inode.
    Socket(u64),
    /// By thread id.
    Thread(u32),
    Transmit(String, u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HistoryMetric {
    /// Per second; received ones for an interface and the path.
    Packets,
    /// Per second.
    Sent,
    /// Packets per second.
    Drops,
    /// Per second.
    Interrupts,
    /// Share of time in softirqs; for the path, the sum over CPUs.
    Softirq,
    /// Bytes.
    Queued,
    /// CPUs' worth of time.
    Time,
    /// Per second.
    Squeezes,
}

/// `None` is an unknown value.
type Ring = VecDeque<Option<f32>>;

#[derive(Debug, Default)]
pub struct SnapshotHistory {
    curves: BTreeMap<HistoryItem, ItemCurves>,
    taken: u64,
}

#[derive(Debug, Default)]
struct ItemCurves {
    rings: BTreeMap<HistoryMetric, Ring>,
    /// Number of the last snapshot with this item.
    seen: u64,
}

impl SnapshotHistory {
    /// Adds the values of a snapshot, and removes items that were in none of the recent snapshots.
    pub fn add(&mut self, snapshot: &Snapshot) {
        self.taken += 1;
        for (item, figures) in figures(snapshot) {
            let ItemCurves { rings, seen } = self.curves.entry(item).or_default();
            *seen = self.taken;
            for (metric, figure) in figures {
                let ring = rings.entry(metric).or_default();
                if ring.len() == LENGTH {
                    ring.pop_front();
                }
                ring.push_back(figure.map(|figure| figure as f32));
            }
        }
        let oldest = self.taken.saturating_sub(LENGTH as u64);
        self.curves.retain(|_, curves| curves.seen > oldest);
    }

    /// Recent values, latest last; empty if there are none.
    pub fn values(
        &self,
        item: &HistoryItem,
        metric: HistoryMetric,
    ) -> impl DoubleEndedIterator<Item = Option<f64>> + '_ {
        let ring = self.curves.get(item).and_then(|curves| curves.rings.get(&metric));
        ring.into_iter().flatten().map(|figure| figure.map(f64::from))
    }
}

type Figures = Vec<(HistoryMetric, Option<f64>)>;

fn figures(snapshot: &Snapshot) -> Vec<(HistoryItem, Figures)> {
    use HistoryMetric::{Drops, Interrupts, Packets, Queued, Sent, Softirq, Squeezes, Time};
    let totals = &snapshot.totals;
    let mut items: Vec<(HistoryItem, Figures)> = vec![(
        HistoryItem::Path,
        vec![
            (Packets, totals.rx_packets_per_second),
            (Sent, totals.tx_packets_per_second),
            (Softirq, totals.softirq_cpus),
            (Queued, totals.queued_bytes.map(|bytes| bytes as f64)),
            (Time, totals.thread_cpus),
        ],
    )];
    for interface in &snapshot.interfaces {
        let name = &interface.interface;
        items.push((
            HistoryItem::Interface(name.clone()),
            vec![
                (Packets, interface.rx_packets_per_second),
                (Sent, interface.tx_packets_per_second),
                (Drops, interface.rx_drops_per_second),
            ],
        ));
        for queue in interface.receive.value().into_iter().flatten() {
            items.push((
                HistoryItem::Receive(name.clone(), queue.queue),
                vec![
                    (Packets, queue.packets_per_second),
                    (Drops, queue.drops_per_second),
                    (Interrupts, queue.interrupts_per_second),
                ],
            ));
        }
        for queue in interface.transmit.value().into_iter().flatten() {
            items.push((
                HistoryItem::Transmit(name.clone(), queue.queue),
                vec![(Packets, queue.packets_per_second), (Drops, queue.drops_per_second)],
            ));
        }
    }
    for cpu in snapshot.cpus.value().into_iter().flatten() {
        items.push((
            HistoryItem::Cpu(cpu.cpu),
            vec![
                (Softirq, cpu.softirq_share),
                (Packets, cpu.packets_per_second),
                (Interrupts, cpu.interrupts_per_second),
                (Drops, cpu.drops_per_second),
                (Squeezes, cpu.squeezes_per_second),
            ],
        ));
    }
    for service in snapshot.services.value().into_iter().flatten() {
        let sockets = || service.sockets.iter();
        let queued = sockets()
            .filter_map(|socket| socket.queued_bytes)
            .reduce(u64::saturating_add)
            .map(|bytes| bytes as f64);
        let drops = crate::live::growth::sum(sockets().map(|socket| socket.drops_per_second));
        items.push((HistoryItem::Service(service.name.clone()), vec![(Queued, queued), (Drops, drops)]));
        items.extend(sockets().map(|socket| {
            let queued = socket.queued_bytes.map(|bytes| bytes as f64);
            (HistoryItem::Socket(socket.inode), vec![(Queued, queued), (Drops, socket.drops_per_second)])
        }));
    }
    let threads = snapshot.threads.value().into_iter().flatten();
    items.extend(threads.map(|thread| (HistoryItem::Thread(thread.tid), vec![(Time, thread.cpu_share)])));
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::{LiveHost, SnapshotSource};
    use crate::{Host, Known, Scope};

    #[test]
    fn history_keeps_the_last_120_samples_and_drops_absent_items() {
        let host = Host::scripted([("/proc/stat", "cpu0 1 0 1 1 0 0 1 0\n")]);
        let mut snapshot = LiveHost::open(SnapshotSource::Live(host), Scope::default()).refresh();
        let mut history = SnapshotHistory::default();
        for number in 0..150_u32 {
            snapshot.cpus.expect_mut()[0].softirq_share = (number != 149).then(|| f64::from(number));
            history.add(&snapshot);
        }
        let shares: Vec<_> = history.values(&HistoryItem::Cpu(0), HistoryMetric::Softirq).collect();
        assert_eq!((shares.len(), shares[0], shares[118], shares[119]), (120, Some(30.0), Some(148.0), None));
        snapshot.cpus = Known::unknown("gone");
        for _ in 0..LENGTH {
            history.add(&snapshot);
        }
        assert_eq!(history.values(&HistoryItem::Cpu(0), HistoryMetric::Softirq).count(), 0);
        assert_eq!(history.values(&HistoryItem::Path, HistoryMetric::Packets).count(), LENGTH);
    }
}
