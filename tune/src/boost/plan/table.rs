//! Distributes the packets of each CPU to units: one table for all CPUs, from which the table of
//! each group is derived.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::setting::SteeringTable;
use linerate_host::stage::machine::MachineState;

use super::group::OwnedGroup;
use super::receiving_cpus::{CpuWorth, ReceivingCpus};
use super::unit::ThreadPlacement;

/// How far a CPU is from another CPU: on the same core, on the same node, or farther.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CpuDistance {
    Core,
    Node,
    Far,
}

/// For each CPU the CPUs whose units take its packets: the CPU itself if it has units.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::boost) struct CpuHosts(BTreeMap<u32, BTreeSet<u32>>);

impl CpuHosts {
    /// Distributes the packets of all CPUs to the CPUs that have units. The packets of every CPU go
    /// to a unit. If no packets arrive on a CPU with a unit, it shares the packets of the nearest
    /// CPU on which packets arrive.
    pub(in crate::boost) fn of(
        machine: &MachineState,
        receiving: &ReceivingCpus,
        unit_cpus: &BTreeSet<u32>,
    ) -> Self {
        let mut hosts = Self::nearest(machine, receiving, unit_cpus);
        hosts.add_idle_cpus(machine, receiving, unit_cpus);
        hosts
    }

    /// For each CPU the nearest CPU of `unit_cpus`. Among equally near CPUs, the one that takes the
    /// packets of the fewest CPUs so far.
    fn nearest(machine: &MachineState, receiving: &ReceivingCpus, unit_cpus: &BTreeSet<u32>) -> Self {
        let mut load: BTreeMap<u32, usize> = unit_cpus
            .iter()
            .map(|cpu| (*cpu, usize::from(receiving.worth(*cpu) <= CpuWorth::MayReceive)))
            .collect();
        let mut hosts = BTreeMap::new();
        // CPUs with packets first, so that their packets are shared evenly.
        for cpu in receiving.order() {
            let key = |host: &u32| (distance(machine, cpu, *host), load.get(host).copied(), *host);
            let host =
                if unit_cpus.contains(&cpu) { Some(cpu) } else { unit_cpus.iter().copied().min_by_key(key) };
            let Some(host) = host else { continue };
            if host != cpu {
                *load.entry(host).or_default() += 1;
            }
            hosts.insert(cpu, BTreeSet::from([host]));
        }
        Self(hosts)
    }

    fn add_idle_cpus(
        &mut self,
        machine: &MachineState,
        receiving: &ReceivingCpus,
        unit_cpus: &BTreeSet<u32>,
    ) {
        let has_packets = |cpu: &u32| receiving.worth(*cpu) <= CpuWorth::MayReceive;
        let receivers: Vec<u32> = receiving.online.iter().filter(has_packets).collect();
        for host in unit_cpus {
            let is_busy =
                receivers.iter().any(|cpu| self.0.get(cpu).is_some_and(|hosts| hosts.contains(host)));
            if is_busy {
                continue;
            }
            let key = |cpu: &&u32| {
                let host_count = self.0.get(*cpu).map_or(0, BTreeSet::len);
                (distance(machine, **cpu, *host).max(CpuDistance::Node), host_count, **cpu)
            };
            if let Some(cpu) = receivers.iter().min_by_key(key) {
                self.0.entry(*cpu).or_default().insert(*host);
            }
        }
    }

    /// The CPUs whose units take the packets of a CPU.
    pub(in crate::boost) fn hosts_of(&self, cpu: u32) -> impl Iterator<Item = u32> + '_ {
        self.0.get(&cpu).into_iter().flatten().copied()
    }

    /// The table of a group. If the units that should take a CPU's packets have no socket of the
    /// group, the nearest units with a socket take them.
    pub(super) fn table(
        &self,
        machine: &MachineState,
        receiving: &ReceivingCpus,
        owned: &OwnedGroup<'_>,
        units: &[ThreadPlacement<'_>],
    ) -> SteeringTable {
        let mut cookies: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for (member, reader) in &owned.sockets {
            let unit = units.iter().find(|unit| unit.reader.tid == reader.tid);
            if let Some(unit) = unit {
                cookies.entry(unit.cpu).or_default().push(member.socket.cookie);
            }
        }
        let cpus_with_sockets: BTreeSet<u32> = cookies.keys().copied().collect();
        let substitutes = Self::nearest(machine, receiving, &cpus_with_sockets);
        let sockets_of = |hosts: &mut dyn Iterator<Item = u32>| -> Vec<u64> {
            hosts.filter_map(|host| cookies.get(&host)).flatten().copied().collect()
        };
        let row = |cpu: u32| {
            let sockets = sockets_of(&mut self.hosts_of(cpu));
            if sockets.is_empty() { sockets_of(&mut substitutes.hosts_of(cpu)) } else { sockets }
        };
        let rows = receiving.online.iter().map(|cpu| (cpu, row(cpu)));
        let by_cpu = rows.filter(|(_, cookies)| !cookies.is_empty()).collect();
        SteeringTable { by_cpu, ..SteeringTable::default() }
    }
}

fn distance(machine: &MachineState, cpu: u32, other: u32) -> CpuDistance {
    if machine.siblings_of(cpu).is_some_and(|core| core.contains(other)) {
        CpuDistance::Core
    } else if machine.node_of(cpu) == machine.node_of(other) {
        CpuDistance::Node
    } else {
        CpuDistance::Far
    }
}
