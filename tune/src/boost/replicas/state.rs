//! Sets of copies as the host shows them.

use linerate_host::process::allowed_cpus;
use linerate_host::{CpuSet, Host, Known};
use serde::{Deserialize, Serialize};

use super::{ReplicaCgroup, ReplicaError, groups};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaSetState {
    /// The linerate process that started the copies.
    pub supervisor: u32,
    /// Whether that process runs.
    pub is_supervised: bool,
    /// Whether other copies have taken the port over.
    pub is_replaced: bool,
    /// Shared ports.
    pub ports: Vec<u16>,
    pub copies: Vec<CopyState>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyState {
    /// From 0.
    pub copy: u32,
    /// None while it has ended, and is not started again yet.
    pub processes: Vec<u32>,
    /// The affinity of its first process.
    pub cpus: Known<CpuSet>,
    /// How many times it was started again.
    pub restarts: Known<u32>,
}

impl ReplicaSetState {
    /// The sets in this network namespace, on this port or any.
    pub fn observe_all(host: &Host, port: Option<u16>) -> Result<Vec<Self>, ReplicaError> {
        let mut sets: Vec<Self> = groups(host, port)?.iter().map(|group| Self::of(host, group)).collect();
        sets.sort_by_key(|set| set.supervisor);
        Ok(sets)
    }

    fn of(host: &Host, group: &ReplicaCgroup) -> Self {
        let mut ports = group.ports.clone();
        ports.sort_unstable();
        Self {
            supervisor: group.supervisor,
            is_supervised: group.is_supervised(host),
            is_replaced: group.is_replaced(),
            ports,
            copies: group.copies().into_iter().map(|copy| CopyState::of(host, group, copy)).collect(),
        }
    }
}

impl CopyState {
    fn of(host: &Host, group: &ReplicaCgroup, copy: u32) -> Self {
        let processes = group.processes_of_copy(copy);
        let cpus = match processes.iter().min() {
            Some(pid) => allowed_cpus(host, *pid),
            None => Known::unknown("it has ended"),
        };
        Self { copy, processes, cpus, restarts: group.restarts(copy).into() }
    }
}
