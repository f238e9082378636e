//! Receive queues with the same path, drawn as one lane.

use linerate_host::CpuSet;

use super::paths::{InterfacePaths, QueueFlow};

/// Queues with the same path.
#[derive(Debug)]
pub(crate) struct QueueLane {
    pub(crate) queues: CpuSet,
    /// The union of the queues' CPUs, as in [`QueueFlow`].
    pub(crate) napi: Option<CpuSet>,
    pub(crate) rps: Option<CpuSet>,
    /// The node of the interrupts; `None` if they are on several nodes or unknown.
    pub(crate) node: Option<u32>,
    pub(crate) rate: Option<f64>,
}

/// If there are more lanes, queues that differ only in their RPS CPUs are drawn as one.
const MOST_LANES: usize = 12;

impl InterfacePaths {
    /// The lanes, in the order of their first queues.
    pub(crate) fn lanes(&self) -> Vec<QueueLane> {
        let lanes = self.grouped(|left, right| {
            (is_single(&left.napi) && is_single(&right.napi) || left.napi == right.napi)
                && (left.rps == right.rps || is_small(&left.rps) && is_small(&right.rps))
        });
        if lanes.len() <= MOST_LANES {
            return lanes;
        }
        let has_rps = |queue: &QueueFlow| queue.rps.as_ref().map(CpuSet::is_empty);
        self.grouped(|left, right| has_rps(left) == has_rps(right))
    }

    fn grouped(&self, is_same_lane: impl Fn(&QueueFlow, &QueueFlow) -> bool) -> Vec<QueueLane> {
        let node = |queue: &QueueFlow| queue.napi.as_ref().and_then(|cpus| self.node_of(cpus));
        let mut groups: Vec<Vec<&QueueFlow>> = Vec::new();
        for queue in &self.queues {
            let belongs_to = |group: &&mut Vec<&QueueFlow>| {
                group.first().is_some_and(|first| {
                    first.hot == queue.hot && node(first) == node(queue) && is_same_lane(first, queue)
                })
            };
            match groups.iter_mut().find(belongs_to) {
                Some(group) => group.push(queue),
                None => groups.push(vec![queue]),
            }
        }
        groups
            .iter()
            .map(|group| QueueLane::from_queues(group, group.first().and_then(|first| node(first))))
            .collect()
    }
}

impl QueueLane {
    fn from_queues(queues: &[&QueueFlow], node: Option<u32>) -> Self {
        let union_of = |cpus_of: fn(&QueueFlow) -> Option<&CpuSet>| -> Option<CpuSet> {
            let sets: Option<Vec<&CpuSet>> = queues.iter().map(|queue| cpus_of(queue)).collect();
            sets.map(|sets| sets.into_iter().flat_map(CpuSet::iter).collect())
        };
        let rates: Option<Vec<f64>> = queues.iter().map(|queue| queue.rate).collect();
        Self {
            queues: queues.iter().map(|queue| queue.queue).collect(),
            napi: union_of(|queue| queue.napi.as_ref()),
            rps: union_of(|queue| queue.rps.as_ref()),
            node,
            rate: rates.map(|rates| rates.iter().sum()),
        }
    }

    /// CPUs on which the packets enter the stack; `None` if unknown.
    pub(crate) fn stack(&self) -> Option<&CpuSet> {
        self.rps.as_ref().filter(|cpus| !cpus.is_empty()).or(self.napi.as_ref())
    }
}

/// Queues with a few RPS CPUs each are one lane.
fn is_small(cpus: &Option<CpuSet>) -> bool {
    cpus.as_ref().is_some_and(|cpus| (1..=4).contains(&cpus.len()))
}

fn is_single(cpus: &Option<CpuSet>) -> bool {
    cpus.as_ref().is_some_and(|cpus| cpus.len() == 1)
}
