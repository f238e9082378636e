//! The CPUs of server and generator.

use linerate_host::CpuSet;
use linerate_host::stage::machine::MachineState;

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
    pub(crate) fn shared(cpus: &[u32]) -> Self {
        Self { server: cpus.to_vec(), generator: cpus.to_vec(), shared: true }
    }

    /// Separate halves if there are enough CPUs. The hardware threads of a core are in one half,
    /// because they slow each other.
    ///
    /// A packet of a veth pair is processed on the CPU that sent it unless RPS moves it, so
    /// separate halves are useful only if RPS can be set.
    pub(crate) fn separate(cpus: &[u32], machine: &MachineState) -> Self {
        if cpus.len() < ENOUGH_TO_SPLIT {
            return Self::shared(cpus);
        }
        let core = |cpu: u32| machine.siblings_of(cpu).and_then(|core| core.iter().next()).unwrap_or(cpu);
        let mut cpus = cpus.to_vec();
        cpus.sort_by_key(|cpu| (core(*cpu), *cpu));
        let half = cpus.len() / 2;
        let is_between_cores = |cut: &usize| core(cpus[cut - 1]) != core(cpus[*cut]);
        let cut = (1..=half).rev().find(is_between_cores).unwrap_or(half);
        let mut generator = cpus.split_off(cut);
        cpus.sort_unstable();
        generator.sort_unstable();
        Self { server: cpus, generator, shared: false }
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
}

/// The XPS mask of transmit queue `queue` if the queues are distributed over `cpus` in turn.
pub(crate) fn queue_cpus(cpus: &[u32], queue: u32, queues: u32) -> CpuSet {
    let is_assigned = |(index, _): &(u32, &u32)| index % queues == queue;
    (0_u32..).zip(cpus).filter(is_assigned).map(|(_, cpu)| *cpu).collect()
}

#[cfg(test)]
mod tests {
    use linerate_host::Host;

    use super::*;

    /// A placement on a machine whose cores have these hardware threads.
    fn separate(cpus: &[u32], cores: &[&str]) -> CpuPlacement {
        let online: CpuSet = cpus.iter().copied().collect();
        let mut files = vec![("/sys/devices/system/cpu/online".to_owned(), format!("{online}\n"))];
        for core in cores {
            for cpu in CpuSet::from_list(core).expect("CPUs").iter() {
                let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
                files.push((file, format!("{core}\n")));
            }
        }
        CpuPlacement::separate(cpus, &MachineState::observe(&Host::scripted(files)))
    }

    #[test]
    fn enough_cpus_are_split_between_cores() {
        assert!(separate(&[0, 1], &[]).shared);
        type Cpus = &'static [u32];
        let cases: [(Cpus, &[&str], Cpus, Cpus); 4] = [
            (&[0, 1, 2, 3, 4, 5, 6, 9], &[], &[0, 1, 2, 3], &[4, 5, 6, 9]),
            (&[0, 1, 2, 3], &["0,2", "1,3"], &[0, 2], &[1, 3]),
            (&[0, 1, 2, 3, 4, 5], &["0,3", "1,4", "2,5"], &[0, 3], &[1, 2, 4, 5]),
            (&[0, 1, 2, 3], &["0-3"], &[0, 1], &[2, 3]),
        ];
        for (cpus, cores, server, generator) in cases {
            let split = separate(cpus, cores);
            assert_eq!((&split.server[..], &split.generator[..], split.shared), (server, generator, false));
        }
    }

    #[test]
    fn rps_masks_have_half_of_the_server_cpus_unless_spread() {
        let shared = CpuPlacement::shared(&[3, 5]);
        assert_eq!(
            [shared.receive_cpus(false).to_string(), shared.receive_cpus(true).to_string()],
            ["3", ""]
        );
        let split = separate(&[0, 1, 2, 3, 4, 5, 6, 7], &[]);
        assert_eq!(
            [split.receive_cpus(false).to_string(), split.receive_cpus(true).to_string()],
            ["0-1", "0-3"]
        );
        assert_eq!(CpuPlacement::shared(&[7]).receive_cpus(false).to_string(), "7");
    }
}
