//! The document of a measurement, and its victims in the requested grouping.

use serde::{Deserialize, Serialize};

use super::calibrate::CostCalibration;
use super::{CostReport, VictimGroup};

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
        let mut victims: Vec<TopVictim> = match grouping {
            VictimGrouping::Process => self
                .by_process()
                .into_iter()
                .map(|(pid, comm, group)| TopVictim { name: format!("{comm} ({pid})"), group })
                .collect(),
            VictimGrouping::Cgroup => {
                self.by_cgroup().into_iter().map(|(name, group)| TopVictim { name, group }).collect()
            }
            VictimGrouping::Thread => self
                .victims
                .iter()
                .map(|victim| TopVictim {
                    name: format!("{} ({})", victim.comm, victim.tid),
                    group: VictimGroup {
                        threads: 1,
                        on_cpu_ns: victim.on_cpu_ns,
                        taken_ns: victim.taken_ns,
                        taken_in_own_calls_ns: victim.taken_in_own_calls_ns.value().copied().unwrap_or(0),
                        taken_other_ns: victim.taken_other_ns,
                        displaced_ns: victim.displaced_ns,
                        accounted_ns: victim.accounted_ns.value().copied().unwrap_or(0),
                        unaccounted_threads: usize::from(victim.accounted_ns.value().is_none()),
                    },
                })
                .collect(),
        };
        victims.sort_by_key(|victim| std::cmp::Reverse((victim.group.lost_ns(), victim.group.on_cpu_ns)));
        victims
    }
}

impl VictimGroup {
    /// Time that the kernel accounts to the group; `None` if that is unknown for all of its threads.
    #[must_use]
    pub fn accounted(&self) -> Option<u64> {
        (self.unaccounted_threads < self.threads).then_some(self.accounted_ns)
    }
}
