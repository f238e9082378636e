//! Whether packets land where they should.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::landing::DeliveryReport;
use linerate_host::stage::socket::SocketProtocol;
use serde::{Deserialize, Serialize};

use crate::boost::ObservedServer;

/// How packets landed, counted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeliveryAgreement {
    /// Datagrams that were read, and of which it is known where they arrived.
    pub packets: u64,
    /// Of these, read on the CPU they arrived on.
    pub on_arrival_cpu: u64,
    /// Datagrams that were refused by full buffers.
    pub refused: u64,
    /// An item a socket, in the order of the server's groups; those too that nothing came to.
    pub sockets: Vec<SocketAgreement>,
}

/// The same of one socket.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SocketAgreement {
    pub cookie: u64,
    /// Datagrams by the CPU they arrived on.
    pub arrived: Vec<(u32, u64)>,
    /// Datagrams by the CPU they were read on, those too that had come before the look began.
    pub read: Vec<(u32, u64)>,
    /// Threads that read them.
    pub threads: Vec<u32>,
}

impl DeliveryAgreement {
    /// Counts what was seen of the server's UDP sockets.
    #[must_use]
    pub fn of(server: &ObservedServer, landings: &DeliveryReport) -> Self {
        let groups = server.groups.iter().filter(|group| group.protocol == SocketProtocol::Udp);
        let cookies: Vec<u64> =
            groups.flat_map(|group| group.members.iter().map(|member| member.socket.cookie)).collect();
        Self::of_sockets(&cookies, landings)
    }

    /// The share that was read on the CPU it arrived on; none where nothing was read.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.on_arrival_cpu as f64 / self.packets as f64)
    }

    fn of_sockets(cookies: &[u64], landings: &DeliveryReport) -> Self {
        let asked: BTreeSet<u64> = cookies.iter().copied().collect();
        let mut sockets: BTreeMap<u64, SocketDelivery> = BTreeMap::new();
        let mut seen = Self::default();
        for landing in landings.read.iter().filter(|landing| asked.contains(&landing.cookie)) {
            let socket = sockets.entry(landing.cookie).or_default();
            *socket.read.entry(landing.read_on).or_default() += landing.packets;
            socket.threads.insert(landing.tid);
            if let Some(arrived_on) = landing.arrived_on {
                seen.packets += landing.packets;
                seen.on_arrival_cpu += if arrived_on == landing.read_on { landing.packets } else { 0 };
            }
        }
        for arrival in landings.arrived.iter().filter(|arrival| asked.contains(&arrival.cookie)) {
            seen.refused += arrival.refused;
            if arrival.packets > 0 {
                let socket = sockets.entry(arrival.cookie).or_default();
                *socket.arrived.entry(arrival.cpu).or_default() += arrival.packets;
            }
        }
        let mut told = BTreeSet::new();
        let each = cookies.iter().filter(|cookie| told.insert(**cookie));
        seen.sockets = each.map(|cookie| sockets.remove(cookie).unwrap_or_default().told(*cookie)).collect();
        seen
    }
}

/// What is counted of a socket.
#[derive(Default)]
struct SocketDelivery {
    arrived: BTreeMap<u32, u64>,
    read: BTreeMap<u32, u64>,
    threads: BTreeSet<u32>,
}

impl SocketDelivery {
    fn told(self, cookie: u64) -> SocketAgreement {
        SocketAgreement {
            cookie,
            arrived: self.arrived.into_iter().collect(),
            read: self.read.into_iter().collect(),
            threads: self.threads.into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use linerate_host::landing::{ArrivalCount, DeliveryCount};
    use proptest::prelude::*;

    use super::*;

    fn landing(cookie: u64, arrived_on: Option<u32>, read_on: u32, packets: u64) -> DeliveryCount {
        DeliveryCount { cookie, arrived_on, read_on, pid: 1, tid: 700 + read_on, packets }
    }

    #[test]
    fn only_what_is_known_to_have_arrived_agrees_or_not() {
        let read = vec![
            landing(5, Some(0), 0, 30),
            landing(5, Some(1), 0, 10),
            landing(5, None, 1, 7),
            landing(9, Some(0), 1, 1000),
        ];
        let arrived = vec![
            ArrivalCount { cookie: 5, cpu: 0, packets: 31, refused: 2 },
            ArrivalCount { cookie: 9, cpu: 0, packets: 1000, refused: 50 },
        ];
        let landings = DeliveryReport { read, arrived, ..DeliveryReport::default() };
        let seen = DeliveryAgreement::of_sockets(&[5, 6], &landings);
        assert_eq!((seen.packets, seen.on_arrival_cpu, seen.refused), (40, 30, 2));
        assert_eq!(seen.share(), Some(0.75));
        let busy = SocketAgreement {
            cookie: 5,
            arrived: vec![(0, 31)],
            read: vec![(0, 40), (1, 7)],
            threads: vec![700, 701],
        };
        assert_eq!(seen.sockets, [busy, SocketAgreement { cookie: 6, ..SocketAgreement::default() }]);
        assert_eq!(DeliveryAgreement::of_sockets(&[6], &landings).share(), None);
    }

    proptest! {
        #[test]
        fn totals_add_up(
            read in proptest::collection::vec((0..6u64, proptest::option::of(0..4u32), 0..4u32, 0..1000u64), 0..40),
            arrived in proptest::collection::vec((0..6u64, 0..4u32, 0..1000u64, 0..50u64), 0..40),
            cookies in proptest::collection::vec(0..6u64, 0..8),
        ) {
            let read: Vec<DeliveryCount> = read.into_iter().map(|(c, a, r, n)| landing(c, a, r, n)).collect();
            let arrived: Vec<ArrivalCount> = arrived
                .into_iter()
                .map(|(cookie, cpu, packets, refused)| ArrivalCount { cookie, cpu, packets, refused })
                .collect();
            let landings = DeliveryReport { read, arrived, ..DeliveryReport::default() };
            let seen = DeliveryAgreement::of_sockets(&cookies, &landings);
            let ours = |cookie: u64| cookies.contains(&cookie);
            let total = |of: fn(&SocketAgreement) -> &Vec<(u32, u64)>| -> u64 {
                seen.sockets.iter().flat_map(of).map(|(_, packets)| packets).sum()
            };
            let read = || landings.read.iter().filter(|landing| ours(landing.cookie));
            let arrived = || landings.arrived.iter().filter(|arrival| ours(arrival.cookie));
            prop_assert_eq!(total(|socket| &socket.read), read().map(|landing| landing.packets).sum::<u64>());
            prop_assert_eq!(total(|socket| &socket.arrived), arrived().map(|arrival| arrival.packets).sum::<u64>());
            prop_assert_eq!(seen.refused, arrived().map(|arrival| arrival.refused).sum::<u64>());
            let before: u64 = read().filter(|l| l.arrived_on.is_none()).map(|l| l.packets).sum();
            prop_assert_eq!(seen.packets + before, total(|socket| &socket.read));
            prop_assert!(seen.on_arrival_cpu <= seen.packets);
            prop_assert!(seen.share().is_none_or(|share| (0.0..=1.0).contains(&share)));
        }
    }
}
