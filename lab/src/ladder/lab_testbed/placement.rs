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
    pub(crate) fn on(cpus: &[u32], receive_can_be_directed: bool) -> Self {
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
    pub(crate) fn receive(&self, spread: bool) -> CpuSet {
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
    pub(crate) fn transmit(&self, queue: u32, queues: u32, by_cpu: bool) -> CpuSet {
        if by_cpu { senders(&self.server, queue, queues) } else { CpuSet::new() }
    }

    /// XPS mask of the generator's transmit queue `queue` of `queues`.
    pub(crate) fn generate(&self, queue: u32, queues: u32) -> CpuSet {
        senders(&self.generator, queue, queues)
    }
}

/// The CPUs of transmit queue `queue` if the queues are distributed over `cpus` in turn.
pub(crate) fn senders(cpus: &[u32], queue: u32, queues: u32) -> CpuSet {
    let own = |(index, _): &(u32, &u32)| index % queues == queue;
    (0_u32..).zip(cpus).filter(own).map(|(_, cpu)| *cpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cpus_are_shared_and_eight_are_split() {
        assert!(CpuPlacement::on(&[0, 1], true).shared);
        let split = CpuPlacement::on(&[0, 1, 2, 3, 4, 5, 6, 9], true);
        assert_eq!(
            (split.server, split.generator, split.shared),
            (vec![0, 1, 2, 3], vec![4, 5, 6, 9], false)
        );
        assert!(CpuPlacement::on(&[0, 1, 2, 3], false).shared);
    }

    #[test]
    fn receive_processing_is_on_half_of_the_cpus_or_on_all() {
        let shared = CpuPlacement::on(&[3, 5], true);
        assert_eq!([shared.receive(false).to_string(), shared.receive(true).to_string()], ["3", ""]);
        let split = CpuPlacement::on(&[0, 1, 2, 3, 4, 5, 6, 7], true);
        assert_eq!([split.receive(false).to_string(), split.receive(true).to_string()], ["0-1", "0-3"]);
        assert_eq!(CpuPlacement::on(&[7], true).receive(false).to_string(), "7");
    }

    #[test]
    fn every_cpu_sends_by_one_queue() {
        let placement = CpuPlacement::on(&[0, 1, 2], false);
        let sent: Vec<String> = (0..2).map(|queue| placement.transmit(queue, 2, true).to_string()).collect();
        assert_eq!(sent, ["0,2", "1"]);
        assert!(placement.transmit(0, 2, false).is_empty());
    }
}
