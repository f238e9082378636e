//! Units: each is a thread with the sockets that only it reads, and a CPU.

use std::collections::BTreeMap;

use linerate_host::CpuSet;

use super::group::{OwnedGroup, SteeringMethod, arrival_cpu, incoming_cpu};
use super::receiving_cpus::ReceivingCpus;
use crate::boost::ObservedServer;
use crate::boost::discovery::ReaderThread;

/// A thread and its CPU. All its sockets, of all groups, get the packets of that CPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadPlacement<'s> {
    pub(super) reader: &'s ReaderThread,
    pub(super) cpu: u32,
    pub(super) chosen: CpuChooser,
}

/// The origin of a unit's CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CpuChooser {
    /// The thread is bound to it already.
    Bound,
    /// Its control group permits no other CPU.
    OnlyOne,
    /// Its sockets get the packets of this CPU already, or it is the best CPU.
    Plan,
}

/// Gives each reader of these groups a CPU. Readers without a CPU are returned with the reason.
pub(super) fn place<'s>(
    server: &ObservedServer,
    groups: &[OwnedGroup<'s>],
    receiving: &ReceivingCpus,
) -> (Vec<ThreadPlacement<'s>>, Vec<(&'s ReaderThread, String)>) {
    let readers = readers(groups);
    let mut units: Vec<ThreadPlacement<'s>> = Vec::new();
    let mut unplaced = Vec::new();
    let mut free_readers = Vec::new();
    for reader in readers {
        let permitted = permitted_cpus(reader, receiving);
        let steered_cpu = steered_cpu(server, groups, reader).filter(|cpu| permitted.contains(*cpu));
        let placement = |chosen, cpu| ThreadPlacement { reader, cpu, chosen };
        match (single_cpu(&permitted), steered_cpu) {
            (Some(cpu), _) if reader.cpuset.as_ref().is_some_and(|set| set.len() == 1) => {
                units.push(placement(CpuChooser::OnlyOne, cpu));
            }
            (Some(cpu), _) => units.push(placement(CpuChooser::Bound, cpu)),
            (None, Some(cpu)) => units.push(placement(CpuChooser::Plan, cpu)),
            (None, None) if permitted.is_empty() => {
                unplaced.push((reader, "none of the CPUs it may run on is online".to_owned()));
            }
            (None, None) => free_readers.push((reader, permitted)),
        }
    }
    let order = receiving.order();
    // Threads with the fewest permitted CPUs first, because other threads could take these CPUs.
    free_readers.sort_by_key(|(_, permitted)| permitted.len());
    for (reader, permitted) in free_readers {
        let cpu = best_cpu(&order, &permitted, receiving, &units);
        units.extend(cpu.map(|cpu| ThreadPlacement { reader, cpu, chosen: CpuChooser::Plan }));
    }
    (units, unplaced)
}

/// The threads that read sockets of these groups, each once, in the order of the groups.
fn readers<'s>(groups: &[OwnedGroup<'s>]) -> Vec<&'s ReaderThread> {
    let mut readers: Vec<&ReaderThread> = Vec::new();
    for (_, reader) in groups.iter().flat_map(|owned| &owned.sockets) {
        if !readers.iter().any(|other| other.tid == reader.tid) {
            readers.push(reader);
        }
    }
    readers
}

/// The CPUs that a thread may be pinned to: online CPUs of its control group and of its affinity.
fn permitted_cpus(reader: &ReaderThread, receiving: &ReceivingCpus) -> CpuSet {
    let in_cpuset = |cpu: &u32| reader.cpuset.as_ref().is_none_or(|set| set.contains(*cpu));
    let in_affinity = |cpu: &u32| reader.allowed.value().is_none_or(|set| set.contains(*cpu));
    receiving.online.iter().filter(in_cpuset).filter(in_affinity).collect()
}

/// The CPU whose packets the sockets of a thread get already, if it is a single CPU.
fn steered_cpu(server: &ObservedServer, groups: &[OwnedGroup<'_>], reader: &ReaderThread) -> Option<u32> {
    let cpu = |owned: &OwnedGroup<'_>, member| match owned.way {
        SteeringMethod::Already => incoming_cpu(member).flatten(),
        SteeringMethod::OwnByCpu => arrival_cpu(server, member),
        SteeringMethod::Program(_) | SteeringMethod::IncomingCpu(_) => None,
    };
    let is_steered =
        |owned: &&OwnedGroup<'_>| matches!(owned.way, SteeringMethod::Already | SteeringMethod::OwnByCpu);
    let cpus = groups.iter().filter(is_steered).flat_map(|owned| {
        let own_sockets = owned.sockets.iter().filter(|(_, other)| other.tid == reader.tid);
        own_sockets.filter_map(move |(member, _)| cpu(owned, member))
    });
    single_cpu(&cpus.collect())
}

/// The CPU with the fewest units, and among these the most suitable CPU, so that each CPU is used
/// once before any is used again. Isolated CPUs are used only if the thread may run on no other.
fn best_cpu(
    order: &[u32],
    permitted: &CpuSet,
    receiving: &ReceivingCpus,
    units: &[ThreadPlacement<'_>],
) -> Option<u32> {
    let mut unit_counts: BTreeMap<u32, usize> = BTreeMap::new();
    for unit in units {
        *unit_counts.entry(unit.cpu).or_default() += 1;
    }
    let count = |cpu: u32| unit_counts.get(&cpu).copied().unwrap_or(0);
    let is_isolated = |cpu: u32| receiving.worth(cpu) == super::receiving_cpus::CpuWorth::Isolated;
    let candidates = order.iter().copied().enumerate().filter(|(_, cpu)| permitted.contains(*cpu));
    candidates.min_by_key(|(rank, cpu)| (is_isolated(*cpu), count(*cpu), *rank)).map(|(_, cpu)| cpu)
}

fn single_cpu(cpus: &CpuSet) -> Option<u32> {
    cpus.iter().next().filter(|_| cpus.len() == 1)
}

impl ThreadPlacement<'_> {
    /// Whether the thread can already run on no other CPU.
    pub(super) fn is_bound(&self) -> bool {
        matches!(self.chosen, CpuChooser::Bound | CpuChooser::OnlyOne)
    }
}
