//! Interfaces and their queues in both directions.

use std::collections::BTreeMap;

use crate::Known;
use crate::counter_sample::InterfaceSample;
use crate::stage::irq::IrqVector;
use crate::stage::link::LinkState;
use crate::stage::rss::QueueCounts;
use crate::stage::transmit::{QdiscState, TransmitQueueState};

use super::SnapshotInput;
use super::interrupts::InterruptRates;
use crate::live::growth::{rate, rate_32, sum};
use crate::live::snapshot::{InterfaceSnapshot, QdiscSnapshot, ReceiveQueue, TransmitQueueSnapshot};

type Counts = Known<Option<Vec<QueueCounts>>>;

pub(super) fn all(readings: &SnapshotInput<'_>, interrupts: &InterruptRates) -> Vec<InterfaceSnapshot> {
    let interfaces = readings.path.link.iter().filter_map(|link| {
        let now = readings.now.interfaces.iter().find(|item| item.interface == link.interface)?;
        // An interface that was recreated under the same name counts from zero.
        let before = readings.before.and_then(|before| {
            let is_same =
                |item: &&InterfaceSample| item.interface == link.interface && item.index == now.index;
            before.interfaces.iter().find(is_same)
        });
        now.index.is_some().then(|| RateReader { readings, interrupts, link, now, before }.interface())
    });
    interfaces.collect()
}

struct RateReader<'a> {
    readings: &'a SnapshotInput<'a>,
    interrupts: &'a InterruptRates,
    link: &'a LinkState,
    now: &'a InterfaceSample,
    before: Option<&'a InterfaceSample>,
}

impl RateReader<'_> {
    fn interface(&self) -> InterfaceSnapshot {
        let link = self.link;
        let total = |name: &str| {
            let before = self.before.and_then(|before| before.totals.get(name).copied());
            rate(before, self.now.totals.get(name).copied(), self.readings.seconds)
        };
        let discipline = self.discipline();
        let qdisc_drops = discipline.value().and_then(|root| root.as_ref()?.drops_per_second);
        InterfaceSnapshot {
            interface: link.interface.clone(),
            driver: link.driver.value().and_then(|driver| Some(driver.as_ref()?.name.clone())),
            node: link.node.value().copied().flatten(),
            speed_bits_per_second: link.speed_bits_per_second.value().copied().flatten(),
            gone_seconds: None,
            rx_packets_per_second: total("rx_packets"),
            rx_bits_per_second: total("rx_bytes").map(|bytes| bytes * 8.0),
            rx_drops_per_second: rate(
                Some(0),
                self.before.and_then(|before| self.now.lost_since(before)),
                self.readings.seconds,
            ),
            tx_packets_per_second: total("tx_packets"),
            tx_bits_per_second: total("tx_bytes").map(|bytes| bytes * 8.0),
            tx_drops_per_second: sum([total("tx_dropped"), total("tx_errors"), qdisc_drops]),
            receive: self.receive(),
            receive_told_by: count_source(&self.now.receive),
            transmit: self.transmit(),
            transmit_told_by: count_source(&self.now.transmit),
            discipline,
        }
    }

    fn receive(&self) -> Known<Vec<ReceiveQueue>> {
        if let Some(why) = self.now.receive.why() {
            return Known::unknown(why);
        }
        let number = self.link.receive_queues.clone();
        let counts = QueuePairs::new(self.before.map(|before| &before.receive), &self.now.receive);
        number.map(|number| (0..number).map(|queue| self.receive_queue(queue, &counts)).collect())
    }

    fn receive_queue(&self, queue: u32, counts: &QueuePairs<'_>) -> ReceiveQueue {
        let (interface, path) = (self.link.interface.as_str(), self.readings.path);
        let vector = path.irq.receive_vector(interface, queue);
        let irq = vector.map(|vector| vector.irq);
        let (interrupts_per_second, busiest) = irq.map_or((None, None), |irq| self.interrupts.irq_rate(irq));
        let cpu = busiest.or_else(|| vector.and_then(IrqVector::cpu));
        let node = self.link.node.value().copied().flatten();
        let cpus_node = cpu.and_then(|cpu| path.machine.node_of(cpu));
        ReceiveQueue {
            queue,
            packets_per_second: counts.rate(queue, |item| Some(item.packets), self.readings.seconds),
            drops_per_second: counts.rate(queue, |item| item.drops, self.readings.seconds),
            irq,
            interrupts_per_second,
            cpu,
            allowed: vector.and_then(|vector| vector.affinity.value()).map(ToString::to_string),
            rps: path.softirq.rps_cpus(interface, queue).map(ToString::to_string),
            far_node: node.zip(cpus_node).is_some_and(|(nic_node, cpu_node)| nic_node != cpu_node),
        }
    }

    fn transmit(&self) -> Known<Vec<TransmitQueueSnapshot>> {
        if let Some(why) = self.now.transmit.why() {
            return Known::unknown(why);
        }
        let interface = self.link.interface.as_str();
        let Some(settings) = self.readings.path.transmit_of(interface) else {
            return Known::unknown(format!("{interface}: its transmit queues were not read"));
        };
        let counts = QueuePairs::new(self.before.map(|before| &before.transmit), &self.now.transmit);
        let vectors = self.readings.path.irq.vectors(interface);
        let (current_qdiscs, earlier_qdiscs) =
            (qdiscs_by_queue(qdiscs(Some(self.now))), qdiscs_by_queue(qdiscs(self.before)));
        let queue = |item: &TransmitQueueState| {
            let queue = item.queue;
            let (now, before) = (current_qdiscs.get(&queue), earlier_qdiscs.get(&queue));
            TransmitQueueSnapshot {
                queue,
                packets_per_second: counts.rate(queue, |item| Some(item.packets), self.readings.seconds),
                drops_per_second: rate_32(
                    before.map(|item| item.drops),
                    now.map(|item| item.drops),
                    self.readings.seconds,
                ),
                backlog_packets: now.map(|item| item.backlog),
                irq: vectors
                    .iter()
                    .find(|vector| vector.transmit_queue == Some(queue))
                    .map(|vector| vector.irq),
                xps: item.xps_cpus.value().and_then(Option::as_ref).map(ToString::to_string),
            }
        };
        settings.queues.clone().map(|queues| queues.iter().map(queue).collect())
    }

    fn discipline(&self) -> Known<Option<QdiscSnapshot>> {
        let root = |sample: &InterfaceSample| {
            sample.disciplines.value().and_then(|all| all.iter().find(|item| item.parent == "root").cloned())
        };
        let before = self.before.and_then(root);
        let seconds = self.readings.seconds;
        self.now.disciplines.clone().map(|_| {
            let now = root(self.now)?;
            let rate_of = |count: fn(&QdiscState) -> u64| {
                rate_32(before.as_ref().map(count), Some(count(&now)), seconds)
            };
            Some(QdiscSnapshot {
                drops_per_second: rate_of(|item| item.drops),
                requeues_per_second: rate_of(|item| item.requeues),
                backlog_packets: now.backlog,
                kind: now.kind,
            })
        })
    }
}

fn qdiscs(sample: Option<&InterfaceSample>) -> &[QdiscState] {
    sample.and_then(|sample| sample.disciplines.value()).map_or(&[][..], Vec::as_slice)
}

/// Qdiscs by transmit queue: the children of an `mq`, `mqprio` or `taprio` root, which are numbered
/// from 1 in hexadecimal (net/sched/sch_taprio.c, `taprio_init`).
fn qdiscs_by_queue(qdiscs: &[QdiscState]) -> BTreeMap<u32, &QdiscState> {
    let is_root =
        |item: &&QdiscState| item.parent == "root" && ["mq", "mqprio", "taprio"].contains(&&*item.kind);
    let Some(root) = qdiscs.iter().find(is_root) else { return BTreeMap::new() };
    let queue_number = |item: &QdiscState| {
        let (major, minor) = item.parent.rsplit_once(':')?;
        if !major.is_empty() && root.handle.strip_suffix(':') != Some(major) {
            return None;
        }
        u32::from_str_radix(minor, 16).ok()?.checked_sub(1)
    };
    // In reverse, so that the first of several entries of a queue stays in the map.
    qdiscs.iter().rev().filter_map(|item| Some((queue_number(item)?, item))).collect()
}

fn count_source(counts: &Counts) -> Option<String> {
    let first = counts.value()?.as_ref()?.first()?;
    Some(first.read_from.split(": ").next().unwrap_or_default().to_owned())
}

/// Counters of queues at two readings.
struct QueuePairs<'a> {
    before: BTreeMap<u32, &'a QueueCounts>,
    now: BTreeMap<u32, &'a QueueCounts>,
}

impl<'a> QueuePairs<'a> {
    fn new(before: Option<&'a Counts>, now: &'a Counts) -> Self {
        fn by_queue(counts: &Counts) -> BTreeMap<u32, &QueueCounts> {
            let all = counts.value().into_iter().flatten().flatten();
            all.map(|item| (item.queue, item)).collect()
        }
        Self { before: before.map(by_queue).unwrap_or_default(), now: by_queue(now) }
    }

    fn rate(&self, queue: u32, count: fn(&QueueCounts) -> Option<u64>, seconds: Option<f64>) -> Option<f64> {
        let count_of = |counts: &BTreeMap<u32, &QueueCounts>| counts.get(&queue).and_then(|item| count(item));
        rate(count_of(&self.before), count_of(&self.now), seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue_kinds(qdiscs: &[(&str, &str, &str)]) -> Vec<(u32, String)> {
        let qdisc = |(kind, handle, parent): &(&str, &str, &str)| {
            let text = format!(
                r#"{{"kind": "{kind}", "handle": "{handle}", "parent": "{parent}", "packets": 0, "drops": 0, "requeues": 0, "backlog": 0}}"#
            );
            serde_json::from_str(&text).expect("a qdisc")
        };
        let qdiscs: Vec<QdiscState> = qdiscs.iter().map(qdisc).collect();
        qdiscs_by_queue(&qdiscs).into_iter().map(|(queue, item)| (queue, item.kind.clone())).collect()
    }

    #[test]
    fn only_children_of_multiqueue_roots_belong_to_transmit_queues() {
        let expected = [(0, "fq".to_owned()), (10, "fq_codel".to_owned())];
        assert_eq!(
            queue_kinds(&[("mq", "0:", "root"), ("fq", "0:", ":1"), ("fq_codel", "0:", ":b")]),
            expected
        );
        for root in ["mqprio", "taprio"] {
            let nested = [
                (root, "8001:", "root"),
                ("fq", "0:", "8001:1"),
                ("fq_codel", "0:", "8001:b"),
                ("pfifo", "20:", "10:2"),
            ];
            assert_eq!(queue_kinds(&nested), expected, "{root}");
        }
        assert_eq!(queue_kinds(&[("htb", "1:", "root"), ("fq_codel", "0:", "1:1")]), []);
    }
}
