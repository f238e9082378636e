//! How much more traffic a UDP service can process, estimated from its present traffic.
//!
//! Batches of datagrams come in many sizes even under a steady load. Their times show the CPU time
//! per datagram in a full batch, and therefore the rate at which a CPU or thread would never be
//! idle ([`BatchCost`], [`ServiceDemand`]). Waits in the socket show the rate at which a pause of
//! the reader would fill its buffer.

mod batch;
mod links;
mod model;
mod program;
mod session;
#[cfg(test)]
mod tests;

use linerate_host::Known;
use serde::{Deserialize, Serialize};

pub use batch::BatchCost;
pub use model::{
    BufferDemand, CapacityLimit, ChangedLimits, CpuDemand, LimitingResource, LinkDemand, QuotaDemand, Remedy,
    RemedyGain, ServiceDemand, ThreadDemand,
};
pub use session::HeadroomSession;

/// The operation in an error message.
const WHAT: &str = "measuring the cost of datagrams by batch";

/// How far a service is from its limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeadroomReport {
    pub port: u16,
    pub seconds: f64,
    /// The highest rate that the service can answer, per second; unknown if the traffic or the host does not permit an estimate.
    pub capacity: Known<CapacityLimit>,
    /// All limits, the lowest rate first.
    pub limits: Vec<CapacityLimit>,
    /// Gains of possible changes, the largest gain first.
    pub remedies: Vec<RemedyGain>,
    /// The limits with the changes of `--what-if`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub what_if: Vec<ChangedLimits>,
    pub demand: ServiceDemand,
    /// Datagrams that full receive buffers dropped meanwhile.
    pub dropped: Known<u64>,
    /// Time of a run of the measuring programs, ns. Already subtracted from the costs; unknown without
    /// CAP_SYS_ADMIN, and the costs then contain it.
    pub run_ns: Known<f64>,
    /// The programs' share of the time of the CPU where they ran most, 0 to 1.
    pub own_share: Known<f64>,
}

/// Fewer datagrams than this have too few batches for an estimate.
const LEAST_DATAGRAMS: f64 = 2_000.0;
/// Above these shares of a CPU's time the other work of the host decides, not the service.
const MOST_STEAL: f64 = 0.1;
const MOST_OTHER: f64 = 0.5;

impl HeadroomReport {
    pub(crate) fn new(port: u16, seconds: f64, demand: ServiceDemand) -> Self {
        let limits = demand.limits();
        let capacity = match (refusal(&demand, seconds), limits.first()) {
            (Some(why), _) => Known::unknown(why),
            (None, Some(lowest)) => Known::Value(lowest.clone()),
            (None, None) => Known::unknown("no CPU time of the service was seen"),
        };
        let remedies = if capacity.value().is_some() { demand.remedies() } else { Vec::new() };
        Self {
            port,
            seconds,
            capacity,
            limits,
            remedies,
            what_if: Vec::new(),
            demand,
            dropped: Known::default(),
            run_ns: Known::default(),
            own_share: Known::default(),
        }
    }
}

/// Why this demand permits no estimate.
fn refusal(demand: &ServiceDemand, seconds: f64) -> Option<String> {
    let datagrams = demand.read_per_second * seconds;
    if datagrams < LEAST_DATAGRAMS {
        return Some(format!(
            "the service read {datagrams:.0} datagrams in {seconds:.1} s, and an estimate requires \
             {LEAST_DATAGRAMS:.0}: measure under its usual load, or longer"
        ));
    }
    if let Some(thread) = demand.threads.iter().find(|thread| thread.polls) {
        return Some(format!(
            "thread {} ({}) reads without a pause, also if no datagram waits (busy polling), so its CPU time does not \
             depend on the rate",
            thread.comm, thread.tid
        ));
    }
    let serving_cpus = || demand.serving_cpus(0.1, 0.5);
    if let Some(cpu) = serving_cpus().find(|cpu| cpu.steal > MOST_STEAL) {
        return Some(format!(
            "the hypervisor took {:.0} % of CPU {}: the capacity depends on other virtual machines",
            cpu.steal * 100.0,
            cpu.cpu
        ));
    }
    let is_crowded = |cpu: &&CpuDemand| cpu.other_use > MOST_OTHER;
    let crowded_cpu = serving_cpus().find(is_crowded).or(demand.exhausted_cpu())?;
    Some(format!(
        "other programs took {:.0} % of CPU {}, on which the service runs, so an estimate would be theirs: move them to other CPUs",
        crowded_cpu.other_use * 100.0,
        crowded_cpu.cpu
    ))
}
