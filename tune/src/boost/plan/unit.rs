//! Units: threads, each with the sockets that only it reads, and the CPU that each gets.

use std::collections::BTreeMap;

use linerate_host::CpuSet;

use super::group::{OwnedGroup, SteeringMethod, fed_by, incoming_cpu};
use super::receiving::ReceivingCpus;
use crate::boost::ObservedServer;
use crate::boost::discovery::ReaderThread;

/// A thread and its CPU. All its sockets, of all groups, get the packets of that CPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadPlacement<'s> {
    pub(super) reader: &'s ReaderThread,
    pub(super) cpu: u32,
    pub(super) chosen: CpuChooser,
}

/// Who chose the CPU of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CpuChooser {
    /// The thread is bound to it already.
    Bound,
    /// Its control group leaves it no other.
    OnlyOne,
    /// Its socket asks for its packets already.
    Asked,
    Here,
}

/// Gives each reader of these groups a CPU. Those for which none is left are told with the reason.
pub(super) fn place<'s>(
    server: &ObservedServer,
    groups: &[OwnedGroup<'s>],
    receiving: &ReceivingCpus,
) -> (Vec<ThreadPlacement<'s>>, Vec<(&'s ReaderThread, String)>) {
    let readers = readers(groups);
    let mut units: Vec<ThreadPlacement<'s>> = Vec::new();
    let mut without = Vec::new();
    let mut free = Vec::new();
    for reader in readers {
        let may = may_run_on(reader, receiving);
        let asked = asked(server, groups, reader).filter(|cpu| may.contains(*cpu));
        let own = |chosen, cpu| ThreadPlacement { reader, cpu, chosen };
        match (only(&may), asked) {
            (Some(cpu), _) if reader.cpuset.as_ref().is_some_and(|set| set.len() == 1) => {
                units.push(own(CpuChooser::OnlyOne, cpu));
            }
            (Some(cpu), _) => units.push(own(CpuChooser::Bound, cpu)),
            (None, Some(cpu)) => units.push(own(CpuChooser::Asked, cpu)),
            (None, None) if may.is_empty() => {
                without.push((reader, "none of the CPUs it may run on is online".to_owned()));
            }
            (None, None) => free.push((reader, may)),
        }
    }
    let order = receiving.order();
    // Those with the least choice first: else others take the few CPUs that they have.
    free.sort_by_key(|(_, may)| may.len());
    for (reader, may) in free {
        let cpu = best(&order, &may, receiving, &units);
        units.extend(cpu.map(|cpu| ThreadPlacement { reader, cpu, chosen: CpuChooser::Here }));
    }
    (units, without)
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

/// The CPUs that a thread may be put on: never one outside of its control group's, nor of those that somebody bound it to.
fn may_run_on(reader: &ReaderThread, receiving: &ReceivingCpus) -> CpuSet {
    let in_cpuset = |cpu: &u32| reader.cpuset.as_ref().is_none_or(|set| set.contains(*cpu));
    let allowed = |cpu: &u32| reader.allowed.value().is_none_or(|set| set.contains(*cpu));
    receiving.online.iter().filter(in_cpuset).filter(allowed).collect()
}

/// The CPU whose packets the sockets of a thread get already, where it is one.
fn asked(server: &ObservedServer, groups: &[OwnedGroup<'_>], reader: &ReaderThread) -> Option<u32> {
    let cpu = |owned: &OwnedGroup<'_>, member| match owned.way {
        SteeringMethod::Already => incoming_cpu(member).flatten(),
        SteeringMethod::OwnByCpu => fed_by(server, member),
        SteeringMethod::Program(_) | SteeringMethod::IncomingCpu(_) => None,
    };
    let own =
        |owned: &&OwnedGroup<'_>| matches!(owned.way, SteeringMethod::Already | SteeringMethod::OwnByCpu);
    let sockets = groups.iter().filter(own).flat_map(|owned| {
        let read = owned.sockets.iter().filter(|(_, other)| other.tid == reader.tid);
        read.filter_map(move |(member, _)| cpu(owned, member))
    });
    only(&sockets.collect())
}

/// The CPU with the fewest units, and of these the one that is worth most: each is used once before any is used again.
fn best(
    order: &[u32],
    may: &CpuSet,
    receiving: &ReceivingCpus,
    units: &[ThreadPlacement<'_>],
) -> Option<u32> {
    let mut taken: BTreeMap<u32, usize> = BTreeMap::new();
    for unit in units {
        *taken.entry(unit.cpu).or_default() += 1;
    }
    let count = |cpu: u32| taken.get(&cpu).copied().unwrap_or(0);
    let isolated = |cpu: u32| receiving.worth(cpu) == super::receiving::CpuWorth::Isolated;
    let own = order.iter().copied().enumerate().filter(|(_, cpu)| may.contains(*cpu));
    own.min_by_key(|(rank, cpu)| (isolated(*cpu), count(*cpu), *rank)).map(|(_, cpu)| cpu)
}

fn only(cpus: &CpuSet) -> Option<u32> {
    cpus.iter().next().filter(|_| cpus.len() == 1)
}

impl ThreadPlacement<'_> {
    /// Whether its thread can run nowhere else already.
    pub(super) fn is_there(&self) -> bool {
        matches!(self.chosen, CpuChooser::Bound | CpuChooser::OnlyOne)
    }
}
