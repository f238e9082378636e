//! Counts datagrams that were delivered on their CPU of arrival, and datagrams that were delivered
//! as planned.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::delivery::DeliveryReport;
use linerate_host::stage::socket::SocketProtocol;
use serde::{Deserialize, Serialize};

use crate::boost::ObservedServer;
use crate::boost::discovery::ServerGroup;
use crate::boost::plan::CpuAssignment;

/// Datagrams of a server by CPU of arrival and of reading.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeliveryAgreement {
    /// Datagrams that were read and whose CPU of arrival is known.
    pub packets: u64,
    /// Datagrams that were read on their CPU of arrival.
    pub on_arrival_cpu: u64,
    /// Datagrams that full receive buffers dropped.
    pub refused: u64,
    /// All sockets in the order of the server's groups.
    pub sockets: Vec<SocketAgreement>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SocketAgreement {
    pub cookie: u64,
    /// Datagrams by CPU of arrival.
    pub arrived: Vec<(u32, u64)>,
    /// Datagrams by the CPU of reading, including those that arrived before the observation.
    pub read: Vec<(u32, u64)>,
    pub threads: Vec<u32>,
}

impl DeliveryAgreement {
    /// Counts the datagrams of the server's UDP sockets.
    pub fn of(server: &ObservedServer, delivery: &DeliveryReport) -> Self {
        Self::of_groups(&server.groups, delivery)
    }

    /// Counts the datagrams of the UDP sockets of these groups.
    pub(super) fn of_groups<'g>(
        groups: impl IntoIterator<Item = &'g ServerGroup>,
        delivery: &DeliveryReport,
    ) -> Self {
        let groups = groups.into_iter().filter(|group| group.protocol == SocketProtocol::Udp);
        Self::of_sockets(&groups.flat_map(ServerGroup::cookies).collect::<Vec<_>>(), delivery)
    }

    /// The ratio of datagrams that were read on their CPU of arrival.
    pub fn share(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.on_arrival_cpu as f64 / self.packets as f64)
    }

    fn of_sockets(cookies: &[u64], delivery: &DeliveryReport) -> Self {
        let unique_cookies: BTreeSet<u64> = cookies.iter().copied().collect();
        let mut agreement = Self::default();
        for item in delivery.read.iter().filter(|item| unique_cookies.contains(&item.cookie)) {
            if let Some(arrived_on) = item.arrived_on {
                agreement.packets += item.packets;
                agreement.on_arrival_cpu += if arrived_on == item.read_on { item.packets } else { 0 };
            }
        }
        let arrived = delivery.arrived.iter().filter(|arrival| unique_cookies.contains(&arrival.cookie));
        agreement.refused = arrived.map(|arrival| arrival.refused).sum();
        let mut reported_cookies = BTreeSet::new();
        let in_order = cookies.iter().filter(|cookie| reported_cookies.insert(**cookie));
        agreement.sockets = in_order.map(|cookie| SocketAgreement::of(*cookie, delivery)).collect();
        agreement
    }
}

impl SocketAgreement {
    fn of(cookie: u64, delivery: &DeliveryReport) -> Self {
        let arrived =
            delivery.arrived.iter().filter(|arrival| arrival.cookie == cookie && arrival.packets > 0);
        let read = || delivery.read.iter().filter(|item| item.cookie == cookie);
        let threads: BTreeSet<u32> = read().map(|item| item.tid).collect();
        Self {
            cookie,
            arrived: sum_by_cpu(arrived.map(|arrival| (arrival.cpu, arrival.packets))),
            read: sum_by_cpu(read().map(|item| (item.read_on, item.packets))),
            threads: threads.into_iter().collect(),
        }
    }
}

fn sum_by_cpu(counts: impl Iterator<Item = (u32, u64)>) -> Vec<(u32, u64)> {
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    counts.for_each(|(cpu, packets)| *sums.entry(cpu).or_default() += packets);
    sums.into_iter().collect()
}

/// Datagrams of the sockets in a plan, and whether they were delivered as planned. Datagrams that
/// arrived before the observation are not counted, because their CPU of arrival is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PlanConformity {
    /// Datagrams that were read.
    pub packets: u64,
    /// Put into a socket of their CPU of arrival, and read on the planned CPU of its thread.
    pub as_planned: u64,
    /// Put into a socket of another CPU.
    pub in_other_socket: u64,
    /// Put into the right socket, but read on another CPU than planned.
    pub on_other_cpu: u64,
}

impl PlanConformity {
    /// Compares deliveries with the plan.
    pub fn of(places: &[CpuAssignment], delivery: &DeliveryReport) -> Self {
        let by_cpu: BTreeMap<u32, &CpuAssignment> = places.iter().map(|place| (place.cpu, place)).collect();
        let cpu_by_thread: BTreeMap<u32, u32> =
            places.iter().flat_map(|place| place.threads.iter().map(|tid| (*tid, place.cpu))).collect();
        let is_planned = |cookie: u64| places.iter().any(|place| place.sockets.contains(&cookie));
        let mut conformity = Self::default();
        for item in delivery.read.iter().filter(|item| is_planned(item.cookie)) {
            let Some(arrived_on) = item.arrived_on else { continue };
            conformity.packets += item.packets;
            let in_own_socket =
                by_cpu.get(&arrived_on).is_some_and(|place| place.sockets.contains(&item.cookie));
            let on_own_cpu = cpu_by_thread.get(&item.tid).is_none_or(|cpu| *cpu == item.read_on);
            match (in_own_socket, on_own_cpu) {
                (false, _) => conformity.in_other_socket += item.packets,
                (true, false) => conformity.on_other_cpu += item.packets,
                (true, true) => conformity.as_planned += item.packets,
            }
        }
        conformity
    }

    /// The ratio of datagrams that were delivered as planned.
    pub fn share(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.as_planned as f64 / self.packets as f64)
    }
}

#[cfg(test)]
mod tests {
    use linerate_host::delivery::{ArrivalCount, DeliveryCount};

    use super::*;

    fn delivery_count(cookie: u64, arrived_on: Option<u32>, read_on: u32, packets: u64) -> DeliveryCount {
        delivery_to_thread(cookie, arrived_on, read_on, 700 + read_on, packets)
    }

    #[test]
    fn agreement_counts_only_datagrams_with_a_known_arrival_cpu() {
        let read = vec![
            delivery_count(5, Some(0), 0, 30),
            delivery_count(5, Some(1), 0, 10),
            delivery_count(5, None, 1, 7),
            delivery_count(9, Some(0), 1, 1000),
        ];
        let arrived = vec![
            ArrivalCount { cookie: 5, cpu: 0, packets: 31, refused: 2 },
            ArrivalCount { cookie: 9, cpu: 0, packets: 1000, refused: 50 },
        ];
        let delivery = DeliveryReport { read, arrived, ..DeliveryReport::default() };
        // A repeated cookie counts once.
        let agreement = DeliveryAgreement::of_sockets(&[5, 6, 5], &delivery);
        assert_eq!((agreement.packets, agreement.on_arrival_cpu, agreement.refused), (40, 30, 2));
        assert_eq!(agreement.share(), Some(0.75));
        let busy_socket = SocketAgreement {
            cookie: 5,
            arrived: vec![(0, 31)],
            read: vec![(0, 40), (1, 7)],
            threads: vec![700, 701],
        };
        assert_eq!(
            agreement.sockets,
            [busy_socket, SocketAgreement { cookie: 6, ..SocketAgreement::default() }]
        );
        assert_eq!(DeliveryAgreement::of_sockets(&[6], &delivery).share(), None);
    }

    fn assignment(cpu: u32, sockets: &[u64], threads: &[u32]) -> CpuAssignment {
        CpuAssignment { cpu, receives: true, sockets: sockets.to_vec(), threads: threads.to_vec() }
    }

    fn delivery_to_thread(
        cookie: u64,
        arrived_on: Option<u32>,
        read_on: u32,
        tid: u32,
        packets: u64,
    ) -> DeliveryCount {
        DeliveryCount { cookie, arrived_on, read_on, pid: 1, tid, packets }
    }

    fn conformity(places: &[CpuAssignment], read: Vec<DeliveryCount>) -> PlanConformity {
        PlanConformity::of(places, &DeliveryReport { read, ..DeliveryReport::default() })
    }

    #[test]
    fn packets_of_a_cpu_without_a_thread_conform_to_the_plan() {
        // CPU 1 has no thread of its own: its packets go to the socket that is read on CPU 0.
        let places = [assignment(0, &[41], &[7]), assignment(1, &[41], &[])];
        let result = conformity(
            &places,
            vec![delivery_to_thread(41, Some(0), 0, 7, 10), delivery_to_thread(41, Some(1), 0, 7, 5)],
        );
        assert_eq!(result, PlanConformity { packets: 15, as_planned: 15, ..PlanConformity::default() });
        assert_eq!(result.share(), Some(1.0));
    }

    #[test]
    fn conformity_separates_wrong_sockets_from_wrong_cpus() {
        let places = [assignment(0, &[41], &[7]), assignment(1, &[42], &[8])];
        let read = vec![
            delivery_to_thread(41, Some(0), 0, 7, 1),
            delivery_to_thread(42, Some(0), 1, 8, 2),
            delivery_to_thread(42, Some(1), 0, 8, 4),
            delivery_to_thread(41, None, 0, 7, 8),
            delivery_to_thread(99, Some(0), 1, 9, 16),
        ];
        let expected = PlanConformity { packets: 7, as_planned: 1, in_other_socket: 2, on_other_cpu: 4 };
        assert_eq!(conformity(&places, read), expected);
        assert_eq!(conformity(&places, Vec::new()).share(), None);
    }
}
