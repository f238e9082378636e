//! The document of a measurement, and its victims in the requested grouping.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::calibrate::CostCalibration;
use super::{CostReport, CostVictim};

/// How threads that packets take time from are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VictimGrouping {
    Process,
    Thread,
    Cgroup,
}

/// A measurement, with the settings that `linerate cost` prints with it. It contains every thread,
/// for any grouping.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CostResult {
    /// The grouping of text and page.
    pub by: VictimGrouping,
    /// The number of rows in text and page.
    pub top: u16,
    #[serde(flatten)]
    pub cost: CostReport,
    /// Results of the second method, with `--calibrate`.
    pub calibrations: Vec<CostCalibration>,
}

/// Threads that packets took time from, as one row.
#[derive(Debug, Clone)]
pub struct VictimGroup<'c> {
    /// `openssl (812)`, or the path of a cgroup.
    pub name: String,
    pub threads: Vec<&'c CostVictim>,
}

impl CostReport {
    /// Groups of threads: those that lost most first, then those that ran most.
    #[must_use]
    pub fn top_victims(&self, grouping: VictimGrouping) -> Vec<VictimGroup<'_>> {
        let mut groups = match grouping {
            VictimGrouping::Process => {
                self.grouped(|victim| victim.pid, |victim| format!("{} ({})", victim.comm, victim.pid))
            }
            VictimGrouping::Cgroup => self.grouped(cgroup_name, cgroup_name),
            VictimGrouping::Thread => {
                self.grouped(|victim| victim.tid, |victim| format!("{} ({})", victim.comm, victim.tid))
            }
        };
        groups.sort_by_key(|group| {
            std::cmp::Reverse((group.sum(CostVictim::lost_ns), group.sum(|victim| victim.on_cpu_ns)))
        });
        groups
    }

    /// By the key of each thread. The name is that of the process's first thread, if it is a victim.
    fn grouped<K: Ord>(
        &self,
        key: impl Fn(&CostVictim) -> K,
        name: impl Fn(&CostVictim) -> String,
    ) -> Vec<VictimGroup<'_>> {
        let mut groups: BTreeMap<K, VictimGroup<'_>> = BTreeMap::new();
        for victim in &self.victims {
            let new = || VictimGroup { name: name(victim), threads: Vec::new() };
            let group = groups.entry(key(victim)).or_insert_with(new);
            group.threads.push(victim);
            if victim.tid == victim.pid {
                group.name = name(victim);
            }
        }
        groups.into_values().collect()
    }
}

/// Its path, or its number if the path is unknown.
fn cgroup_name(victim: &CostVictim) -> String {
    victim.cgroup.value().cloned().unwrap_or_else(|| format!("cgroup {}", victim.cgroup_id))
}

impl VictimGroup<'_> {
    /// The sum of a figure over its threads.
    #[must_use]
    pub fn sum(&self, figure: impl Fn(&CostVictim) -> u64) -> u64 {
        self.threads.iter().map(|thread| figure(thread)).sum()
    }

    /// Time on the CPUs less what packets and other interrupts took.
    #[must_use]
    pub fn had_ns(&self) -> u64 {
        let taken_ns = self.sum(|thread| thread.taken_ns + thread.taken_other_ns);
        self.sum(|thread| thread.on_cpu_ns).saturating_sub(taken_ns)
    }

    /// Time that the kernel accounts to the threads for which it is known; `None` without any.
    #[must_use]
    pub fn accounted(&self) -> Option<u64> {
        self.threads
            .iter()
            .filter_map(|thread| thread.accounted_ns.value())
            .copied()
            .reduce(|sum, ns| sum + ns)
    }

    /// Whether the accounted time of a thread is unknown.
    #[must_use]
    pub fn has_unaccounted(&self) -> bool {
        self.threads.iter().any(|thread| thread.accounted_ns.value().is_none())
    }
}
