//! The CPUs on which packets of a server arrive.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::setting::SteeringTable;
use linerate_host::stage::spread;
use linerate_host::{CpuSet, PacketPath};

use crate::boost::ObservedServer;
use crate::boost::discovery::ServerGroup;

/// Fewer datagrams do not show where datagrams arrive.
const ENOUGH: u64 = 300;

/// A CPU counts if more than one datagram in this number arrives on it.
const STRAY: u64 = 100;

/// The CPUs of a host and their part in receiving packets.
pub(in crate::boost) struct ReceivingCpus {
    /// All online CPUs. CPUs that come online later are in no table: their packets go by hash.
    pub(in crate::boost) online: CpuSet,
    /// CPUs on which datagrams were seen to arrive; `None` if too few were seen.
    seen: Option<CpuSet>,
    /// CPUs that the interfaces are configured to use; `None` if that is unknown, as for a veth.
    configured: Option<CpuSet>,
    /// CPUs that are kept free of all work that is not placed there on purpose.
    isolated: CpuSet,
    /// All online CPUs, the best CPUs for work near the interfaces first.
    order: Vec<u32>,
}

/// The part of a CPU in receiving packets, largest part first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CpuWorth {
    /// Datagrams were seen to arrive there, or, if none were seen, the interfaces are configured to
    /// use it.
    Receives,
    /// Datagrams may arrive there: few flows do not reach all queues.
    MayReceive,
    Idle,
    Isolated,
}

impl ReceivingCpus {
    /// The CPUs of a server; `None` if the CPUs of the host are unknown.
    pub(super) fn of(server: &ObservedServer, path: &PacketPath) -> Option<Self> {
        Some(Self { seen: observed_cpus(server), ..Self::of_path(path)? })
    }

    /// Uses the configuration only, before a server runs.
    pub(in crate::boost) fn of_path(path: &PacketPath) -> Option<Self> {
        let online = path.machine.online.value()?.clone();
        let near_node = path.link.iter().find_map(|link| link.node.value().copied().flatten());
        let isolated = path.irq.isolated.value().cloned().flatten().unwrap_or_default();
        Some(Self {
            order: spread::order(&path.machine, &online, near_node, &BTreeMap::new()),
            seen: None,
            configured: configured_cpus(path),
            isolated,
            online,
        })
    }

    /// The CPUs where packets arrive, observed or else configured.
    pub(super) fn arrival_cpus(&self) -> Option<&CpuSet> {
        self.seen.as_ref().or(self.configured.as_ref())
    }

    /// Whether packets are known to arrive on this CPU; true for each CPU if nothing is known.
    pub(super) fn receives(&self, cpu: u32) -> bool {
        self.arrival_cpus().is_none_or(|cpus| cpus.contains(cpu))
    }

    /// The part of a CPU in receiving packets.
    pub(super) fn worth(&self, cpu: u32) -> CpuWorth {
        let arrival_cpus = self.arrival_cpus();
        if arrival_cpus.is_some_and(|cpus| cpus.contains(cpu)) {
            CpuWorth::Receives
        } else if self.isolated.contains(cpu) {
            CpuWorth::Isolated
        } else if arrival_cpus.is_none() {
            CpuWorth::Receives
        } else if self.configured.as_ref().is_some_and(|cpus| cpus.contains(cpu)) {
            CpuWorth::MayReceive
        } else {
            CpuWorth::Idle
        }
    }

    /// Whether a new table would gain nothing: only the rows of CPUs without a unit differ, and the
    /// current table spreads the packets as evenly. These rows depend on the CPUs on which packets
    /// arrive at the moment.
    pub(super) fn is_as_good(
        &self,
        current: &SteeringTable,
        new: &SteeringTable,
        has_unit: impl Fn(u32) -> bool,
    ) -> bool {
        let sockets: BTreeSet<&u64> = new.by_cpu.values().flatten().collect();
        let is_equal = |(cpu, row): (&u32, &Vec<u64>)| match new.by_cpu.get(cpu) {
            Some(new_row) if has_unit(*cpu) => row == new_row,
            Some(_) => !row.is_empty() && row.iter().all(|cookie| sockets.contains(cookie)),
            None => false,
        };
        current.follows_quic_ids == new.follows_quic_ids
            && current.by_cpu.len() == new.by_cpu.len()
            && current.by_cpu.iter().all(is_equal)
            && self.largest_load(current) <= self.largest_load(new) + f64::EPSILON
    }

    /// The number of CPUs whose packets the busiest socket of a table gets.
    fn largest_load(&self, table: &SteeringTable) -> f64 {
        let mut loads: BTreeMap<u64, f64> = BTreeMap::new();
        for (_, row) in table.by_cpu.iter().filter(|(cpu, _)| self.receives(**cpu)) {
            for cookie in row {
                *loads.entry(*cookie).or_default() += 1.0 / row.len() as f64;
            }
        }
        loads.into_values().fold(0.0, f64::max)
    }

    /// All online CPUs, the most suitable first.
    pub(in crate::boost) fn order(&self) -> Vec<u32> {
        let mut order = self.order.clone();
        order.sort_by_key(|cpu| self.worth(*cpu));
        order
    }
}

/// The CPUs on which datagrams of the server's sockets were seen to arrive.
fn observed_cpus(server: &ObservedServer) -> Option<CpuSet> {
    let cookies: BTreeSet<u64> = server.groups.iter().flat_map(ServerGroup::cookies).collect();
    let mut by_cpu: BTreeMap<u32, u64> = BTreeMap::new();
    for arrival in server.delivery.value()?.arrived.iter().filter(|item| cookies.contains(&item.cookie)) {
        *by_cpu.entry(arrival.cpu).or_default() += arrival.packets + arrival.refused;
    }
    let total: u64 = by_cpu.values().sum();
    let is_significant = |packets: u64| packets.saturating_mul(STRAY) > total;
    let cpus = || by_cpu.iter().filter(|(_, packets)| is_significant(**packets)).map(|(cpu, _)| *cpu);
    (total >= ENOUGH).then(|| cpus().collect())
}

/// The CPUs that the queues of all interfaces are configured to use: of RPS if it is on, or else of the interrupt. `None` if
/// one interface is unknown.
fn configured_cpus(path: &PacketPath) -> Option<CpuSet> {
    let mut cpus = CpuSet::new();
    for link in path.link.iter().filter(|link| link.is_up()) {
        let queues = path.softirq.rps_queues(&link.interface);
        if queues.is_empty() {
            return None;
        }
        for queue in queues {
            let queue_cpus = path.stack_cpus(&link.interface, queue.queue)?;
            cpus = cpus.iter().chain(queue_cpus.iter()).collect();
        }
    }
    (!cpus.is_empty()).then_some(cpus)
}
