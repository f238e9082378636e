//! Who runs on which CPU.

use linerate_host::CpuSet;

/// The CPUs of server and generator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The server's workers, and receive processing where it can be directed.
    pub server: Vec<u32>,
    /// The generator's threads.
    pub generator: Vec<u32>,
    /// Whether both run on the same CPUs.
    pub shared: bool,
}

/// CPUs from which on server and generator get halves of their own.
const ENOUGH_TO_SPLIT: usize = 4;

impl Placement {
    /// Places server and generator on `cpus`.
    ///
    /// A packet of a veth pair is processed on the CPU that sent it unless RPS moves it. Only
    /// where RPS can be set are halves of their own worth having.
    #[must_use]
    pub fn on(cpus: &[u32], receive_can_be_directed: bool) -> Self {
        if cpus.len() >= ENOUGH_TO_SPLIT && receive_can_be_directed {
            let (server, generator) = cpus.split_at(cpus.len() / 2);
            Self { server: server.to_vec(), generator: generator.to_vec(), shared: false }
        } else {
            Self { server: cpus.to_vec(), generator: cpus.to_vec(), shared: true }
        }
    }

    /// The CPUs that process what receive queue `queue` takes in.
    #[must_use]
    pub fn receive(&self, queue: u32, spread: bool) -> CpuSet {
        if spread {
            std::iter::once(self.server[queue as usize % self.server.len()]).collect()
        } else {
            // As IRQs that were all left on one of two NUMA nodes.
            self.server.iter().copied().take((self.server.len() / 2).max(1)).collect()
        }
    }

    /// The CPUs that send by transmit queue `queue` out of `queues`; none by flow hash.
    #[must_use]
    pub fn transmit(&self, queue: u32, queues: u32, by_cpu: bool) -> CpuSet {
        let own = |index: &usize| by_cpu && u32::try_from(*index).is_ok_and(|index| index % queues == queue);
        (0..self.server.len()).filter(own).map(|index| self.server[index]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cpus_are_shared_and_eight_are_split() {
        assert!(Placement::on(&[0, 1], true).shared);
        let split = Placement::on(&[0, 1, 2, 3, 4, 5, 6, 9], true);
        assert_eq!(
            (split.server, split.generator, split.shared),
            (vec![0, 1, 2, 3], vec![4, 5, 6, 9], false)
        );
        assert!(Placement::on(&[0, 1, 2, 3], false).shared);
    }

    #[test]
    fn queues_are_spread_over_the_servers_cpus() {
        let placement = Placement::on(&[3, 5], true);
        let receive = |queue, spread| placement.receive(queue, spread).to_string();
        assert_eq!([receive(0, false), receive(1, false)], ["3", "3"]);
        assert_eq!([receive(0, true), receive(1, true), receive(2, true)], ["3", "5", "3"]);
        let one = Placement::on(&[7], true);
        assert_eq!(one.receive(0, false).to_string(), "7");
    }

    #[test]
    fn every_cpu_sends_by_one_queue() {
        let placement = Placement::on(&[0, 1, 2], false);
        let sent: Vec<String> = (0..2).map(|queue| placement.transmit(queue, 2, true).to_string()).collect();
        assert_eq!(sent, ["0,2", "1"]);
        assert!(placement.transmit(0, 2, false).is_empty());
    }
}
