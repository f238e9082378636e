//! The document of a measurement, and its victims in the requested grouping.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::calibrate::CostCalibration;
use super::{CostReport, CostVictim, VictimGroup};

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
pub struct TopVictim {
    /// `openssl (812)`, or the path of a cgroup.
    pub name: String,
    pub group: VictimGroup,
}

impl CostReport {
    /// Groups of threads: those that lost most first, then those that ran most.
    #[must_use]
    pub fn top_victims(&self, grouping: VictimGrouping) -> Vec<TopVictim> {
        let mut victims = match grouping {
            VictimGrouping::Process => {
                self.grouped(|victim| victim.pid, |victim| format!("{} ({})", victim.comm, victim.pid))
            }
            VictimGrouping::Cgroup => self.grouped(cgroup_name, cgroup_name),
            VictimGrouping::Thread => {
                self.grouped(|victim| victim.tid, |victim| format!("{} ({})", victim.comm, victim.tid))
            }
        };
        victims.sort_by_key(|victim| std::cmp::Reverse((victim.group.lost_ns(), victim.group.on_cpu_ns)));
        victims
    }

    /// By the key of each thread. The name is that of the process's first thread, if it is a victim.
    fn grouped<K: Ord>(
        &self,
        key: impl Fn(&CostVictim) -> K,
        name: impl Fn(&CostVictim) -> String,
    ) -> Vec<TopVictim> {
        let mut groups: BTreeMap<K, TopVictim> = BTreeMap::new();
        for victim in &self.victims {
            let new = || TopVictim { name: name(victim), group: VictimGroup::default() };
            let top = groups.entry(key(victim)).or_insert_with(new);
            top.group.add(victim);
            if victim.tid == victim.pid {
                top.name = name(victim);
            }
        }
        groups.into_values().collect()
    }
}

/// Its path, or its number if the path is unknown.
fn cgroup_name(victim: &CostVictim) -> String {
    victim.cgroup.value().cloned().unwrap_or_else(|| format!("cgroup {}", victim.cgroup_id))
}

impl VictimGroup {
    /// Time that the kernel accounts to the group; `None` if that is unknown for all of its threads.
    #[must_use]
    pub fn accounted(&self) -> Option<u64> {
        (self.unaccounted_threads < self.threads).then_some(self.accounted_ns)
    }
}
