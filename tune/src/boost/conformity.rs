//! Whether packets land as a plan has them.

use std::collections::BTreeMap;

use linerate_host::landing::DeliveryReport;
use serde::{Deserialize, Serialize};

use crate::boost::plan::CpuAssignment;

/// Datagrams of the sockets that a plan has places for, and where they landed. Those that had come before the look began
/// are not counted, since the CPU they arrived on is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PlanConformity {
    /// Datagrams that were read.
    pub packets: u64,
    /// Of these, put into a socket of the CPU they arrived on, and read on the CPU of the thread that is to read them.
    pub as_planned: u64,
    /// Put into the socket of another CPU.
    pub in_other_socket: u64,
    /// Put into the right socket, and read on another CPU than the one its thread was to run on.
    pub on_other_cpu: u64,
}

impl PlanConformity {
    /// Judges what was seen by what was planned.
    #[must_use]
    pub fn of(places: &[CpuAssignment], landings: &DeliveryReport) -> Self {
        let by_cpu: BTreeMap<u32, &CpuAssignment> = places.iter().map(|place| (place.cpu, place)).collect();
        let homes: BTreeMap<u32, u32> =
            places.iter().flat_map(|place| place.threads.iter().map(|tid| (*tid, place.cpu))).collect();
        let planned = |cookie: u64| places.iter().any(|place| place.sockets.contains(&cookie));
        let mut seen = Self::default();
        for landing in landings.read.iter().filter(|landing| planned(landing.cookie)) {
            let Some(arrived_on) = landing.arrived_on else { continue };
            seen.packets += landing.packets;
            let is_there =
                by_cpu.get(&arrived_on).is_some_and(|place| place.sockets.contains(&landing.cookie));
            let at_home = homes.get(&landing.tid).is_none_or(|cpu| *cpu == landing.read_on);
            match (is_there, at_home) {
                (false, _) => seen.in_other_socket += landing.packets,
                (true, false) => seen.on_other_cpu += landing.packets,
                (true, true) => seen.as_planned += landing.packets,
            }
        }
        seen
    }

    /// The share that landed as planned; none where nothing was read.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.as_planned as f64 / self.packets as f64)
    }
}

#[cfg(test)]
mod tests {
    use linerate_host::landing::DeliveryCount;
    use proptest::prelude::*;

    use super::*;

    fn place(cpu: u32, sockets: &[u64], threads: &[u32]) -> CpuAssignment {
        CpuAssignment { cpu, receives: true, sockets: sockets.to_vec(), threads: threads.to_vec() }
    }

    fn landing(cookie: u64, arrived_on: Option<u32>, read_on: u32, tid: u32, packets: u64) -> DeliveryCount {
        DeliveryCount { cookie, arrived_on, read_on, pid: 1, tid, packets }
    }

    fn conformity(places: &[CpuAssignment], read: Vec<DeliveryCount>) -> PlanConformity {
        PlanConformity::of(places, &DeliveryReport { read, ..DeliveryReport::default() })
    }

    #[test]
    fn packets_of_a_cpu_without_a_thread_go_where_the_plan_has_them() {
        // CPU 1 has no thread of its own: its packets go to the socket that is read on CPU 0.
        let places = [place(0, &[41], &[7]), place(1, &[41], &[])];
        let seen = conformity(&places, vec![landing(41, Some(0), 0, 7, 10), landing(41, Some(1), 0, 7, 5)]);
        assert_eq!(seen, PlanConformity { packets: 15, as_planned: 15, ..PlanConformity::default() });
        assert_eq!(seen.share(), Some(1.0));
    }

    #[test]
    fn what_lands_elsewhere_is_told_apart() {
        let places = [place(0, &[41], &[7]), place(1, &[42], &[8])];
        let read = vec![
            landing(41, Some(0), 0, 7, 1),
            landing(42, Some(0), 1, 8, 2),
            landing(42, Some(1), 0, 8, 4),
            landing(41, None, 0, 7, 8),
            landing(99, Some(0), 1, 9, 16),
        ];
        let expected = PlanConformity { packets: 7, as_planned: 1, in_other_socket: 2, on_other_cpu: 4 };
        assert_eq!(conformity(&places, read), expected);
        assert_eq!(conformity(&places, Vec::new()).share(), None);
    }

    proptest! {
        #[test]
        fn all_that_is_counted_is_sorted_once(
            read in proptest::collection::vec((40..44_u64, proptest::option::of(0..3_u32), 0..3_u32, 6..9_u32, 0..1000_u64), 0..20)
        ) {
            let places = [place(0, &[41], &[7]), place(1, &[42, 43], &[8]), place(2, &[41], &[])];
            let read = read.into_iter().map(|(cookie, from, on, tid, some)| landing(cookie, from, on, tid, some));
            let seen = conformity(&places, read.collect());
            prop_assert_eq!(seen.packets, seen.as_planned + seen.in_other_socket + seen.on_other_cpu);
        }
    }
}
