//! The CPUs of server and generator.

use linerate_host::CpuSet;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CpuPlacement {
    /// CPUs of the server's workers, and of receive processing if it can be directed.
    pub(crate) server: Vec<u32>,
    pub(crate) generator: Vec<u32>,
    /// Whether both run on the same CPUs.
    pub(crate) shared: bool,
}

/// With this many CPUs server and generator get separate halves.
const ENOUGH_TO_SPLIT: usize = 4;

impl CpuPlacement {
    /// A packet of a veth pair is processed on the CPU that sent it unless RPS moves it. Therefore
    /// separate halves are useful only if RPS can be set.
    pub(crate) fn from_cpus(cpus: &[u32], receive_can_be_directed: bool) -> Self {
        if cpus.len() >= ENOUGH_TO_SPLIT && receive_can_be_directed {
            let (server, generator) = cpus.split_at(cpus.len() / 2);
            Self { server: server.to_vec(), generator: generator.to_vec(), shared: false }
        } else {
            Self { server: cpus.to_vec(), generator: cpus.to_vec(), shared: true }
        }
    }

    /// RPS mask of every receive queue. The empty mask leaves packets on the CPU that received them.
    ///
    /// It is the same for all queues, because the queue number that veth reports differs between kernels and modes.
    pub(crate) fn receive_cpus(&self, spread: bool) -> CpuSet {
        let half = (self.server.len() / 2).max(1);
        match (spread, self.shared) {
            // Like IRQs that are all on one of two NUMA nodes.
            (false, _) => self.server.iter().copied().take(half).collect(),
            // Each CPU sends its share of the packets and therefore receives it.
            (true, true) => CpuSet::new(),
            (true, false) => self.server.iter().copied().collect(),
        }
    }

    /// XPS mask of the server's transmit queue `queue` of `queues`. The empty mask chooses by flow hash.
    pub(crate) fn transmit_cpus(&self, queue: u32, queues: u32, by_cpu: bool) -> CpuSet {
        if by_cpu { queue_cpus(&self.server, queue, queues) } else { CpuSet::new() }
    }

    /// XPS mask of the generator's transmit queue `queue` of `queues`.
    pub(crate) fn generator_cpus(&self, queue: u32, queues: u32) -> CpuSet {
        queue_cpus(&self.generator, queue, queues)
    }
}

/// The CPUs of transmit queue `queue` if the queues are distributed over `cpus` in turn.
pub(crate) fn queue_cpus(cpus: &[u32], queue: u32, queues: u32) -> CpuSet {
    let is_assigned = |(index, _): &(u32, &u32)| index % queues == queue;
    (0_u32..).zip(cpus).filter(is_assigned).map(|(_, cpu)| *cpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_split_only_if_there_are_enough_and_rps_is_settable() {
        assert!(CpuPlacement::from_cpus(&[0, 1], true).shared);
        let split = CpuPlacement::from_cpus(&[0, 1, 2, 3, 4, 5, 6, 9], true);
        assert_eq!(
            (split.server, split.generator, split.shared),
            (vec![0, 1, 2, 3], vec![4, 5, 6, 9], false)
        );
        assert!(CpuPlacement::from_cpus(&[0, 1, 2, 3], false).shared);
    }

    #[test]
    fn rps_masks_have_half_of_the_server_cpus_unless_spread() {
        let shared = CpuPlacement::from_cpus(&[3, 5], true);
        assert_eq!(
            [shared.receive_cpus(false).to_string(), shared.receive_cpus(true).to_string()],
            ["3", ""]
        );
        let split = CpuPlacement::from_cpus(&[0, 1, 2, 3, 4, 5, 6, 7], true);
        assert_eq!(
            [split.receive_cpus(false).to_string(), split.receive_cpus(true).to_string()],
            ["0-1", "0-3"]
        );
        assert_eq!(CpuPlacement::from_cpus(&[7], true).receive_cpus(false).to_string(), "7");
    }

    #[test]
    fn xps_masks_assign_each_cpu_to_one_transmit_queue() {
        let placement = CpuPlacement::from_cpus(&[0, 1, 2], false);
        let masks: Vec<String> =
            (0..2).map(|queue| placement.transmit_cpus(queue, 2, true).to_string()).collect();
        assert_eq!(masks, ["0,2", "1"]);
        assert!(placement.transmit_cpus(0, 2, false).is_empty());
    }
}
