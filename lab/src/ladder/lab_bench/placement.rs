//! Who runs on which CPU.

use linerate_host::CpuSet;

/// The CPUs of server and generator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuPlacement {
    /// The server's workers, and receive processing where it can be directed.
    pub server: Vec<u32>,
    pub generator: Vec<u32>,
    /// Whether both run on the same CPUs.
    pub shared: bool,
}

/// CPUs from which on server and generator get halves of their own.
const ENOUGH_TO_SPLIT: usize = 4;

impl CpuPlacement {
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

    /// The CPUs that RPS hands received packets to; none leave them where they came in.
    ///
    /// The same for every receive queue: what veth tells the stack of the queue differs between
    /// kernels and modes, the sending CPU does not.
    #[must_use]
    pub fn receive(&self, spread: bool) -> CpuSet {
        let half = (self.server.len() / 2).max(1);
        match (spread, self.shared) {
            // As IRQs that were all left on one of two NUMA nodes.
            (false, _) => self.server.iter().copied().take(half).collect(),
            // Each of the CPUs sends, and so takes in, its share.
            (true, true) => CpuSet::new(),
            (true, false) => self.server.iter().copied().collect(),
        }
    }

    /// The server's CPUs that send by transmit queue `queue` out of `queues`; none by flow hash.
    #[must_use]
    pub fn transmit(&self, queue: u32, queues: u32, by_cpu: bool) -> CpuSet {
        if by_cpu { senders(&self.server, queue, queues) } else { CpuSet::new() }
    }

    /// The generator's CPUs that send by transmit queue `queue` out of `queues`.
    #[must_use]
    pub fn generate(&self, queue: u32, queues: u32) -> CpuSet {
        senders(&self.generator, queue, queues)
    }
}

/// Those of `cpus` that send by a queue when each has its own, or shares one with few others.
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
