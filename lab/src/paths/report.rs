//! The result of a comparison of paths.

use linerate_host::Known;
use linerate_load::GeneratorDescription;
use serde::{Deserialize, Serialize};

use crate::ladder::report::{LatencyNs, RateEstimate, VersusPrevious};

/// A comparison of paths.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PathsConfig {
    /// Names of the paths in order, without `host`, which is always measured.
    pub paths: Vec<String>,
    /// UDP payload of a request.
    pub payload_bytes: u32,
    /// Source ports of the client.
    pub flows: u32,
    /// Capacity samples per path, each next to one of `host`; an even number, at least 4.
    pub samples: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PathsReport {
    pub elapsed_seconds: f64,
    pub config: PathsConfig,
    /// CPUs of client, host and service.
    pub cpus: Vec<u32>,
    /// Whether client and service have CPUs in common.
    pub shares_cpus: bool,
    pub generator: Option<GeneratorDescription>,
    /// The rate of [`PathReport::cost`], transactions per second: half of the lowest capacity of all paths.
    pub common_rate_per_second: Option<f64>,
    /// `host` first.
    pub paths: Vec<PathReport>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PathReport {
    pub name: String,
    /// The way of a request, in a few words.
    pub about: String,
    /// The commands that make the path, to repeat it by hand.
    pub recipe: Vec<String>,
    /// Why it was not measured; `None` if it was.
    pub skipped_because: Option<String>,
    /// Capacity: answered transactions per second at the highest rate that holds.
    pub transactions_per_second: Option<RateEstimate>,
    /// Why capacity is a lower bound: the client was the limit.
    pub generator_bound: Option<String>,
    /// Capacity as a multiple of that of `host`, alternated.
    pub versus_host: Option<VersusPrevious>,
    /// Whether bridged packets pass netfilter's IPv4 hooks (`bridge-nf-call-iptables`) on the host.
    pub bridge_netfilter: Known<bool>,
    /// At the common rate.
    pub cost: Known<PathCost>,
    /// At twice the capacity.
    pub overload: Known<PathOverload>,
}

/// CPU time and latency of a path at a rate, per transaction: a request and its reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathCost {
    pub offered_per_second: f64,
    /// Share of the requests answered.
    pub answered_ratio: f64,
    pub latency_ns: Option<LatencyNs>,
    /// CPU time of everything but the client: the sum of `parts`.
    pub host_ns_per_transaction: f64,
    pub parts: Vec<PathCostPart>,
    /// CPU time of the client: its threads and the polls of its interface.
    pub client_ns_per_transaction: f64,
    /// All CPU time of the machine but idle time, with the client, this program and other processes.
    pub machine_ns_per_transaction: f64,
    /// The same by `/proc/stat`, for comparison.
    pub proc_stat_ns_per_transaction: Known<f64>,
    /// A loop in user space on each CPU next to the same load.
    pub loops: Known<Vec<LoopLoss>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathCostPart {
    pub context: CostContext,
    /// The interface that was polled with its host, or the thread.
    pub name: String,
    pub ns_per_transaction: f64,
}

/// The context in which CPU time passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CostContext {
    HardIrq,
    Softirq,
    KernelThread,
    /// A process on the path: a proxy or a switch.
    Relay,
    Service,
}

impl CostContext {
    pub const ALL: [Self; 5] = [Self::HardIrq, Self::Softirq, Self::KernelThread, Self::Relay, Self::Service];
}

/// What a calibrated loop lost of its CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopLoss {
    pub cpu: u32,
    /// Share of the time that the loop did not have, by its own speed: to packets, and to the threads of client and service.
    pub lost_ratio: f64,
    /// The part taken by packets in interrupts and softirqs, by tracing.
    pub packets_ratio: f64,
}

/// A path at more than its capacity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathOverload {
    pub offered_per_second: f64,
    /// Share of the offered requests answered.
    pub answered_ratio: f64,
    /// Most packets first, at most five places; not those of the client.
    pub losses: Vec<PathLoss>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathLoss {
    /// The host of the lab.
    pub host: String,
    /// The kernel function that dropped the packets, with its reason.
    pub place: String,
    pub packets: u64,
}

impl PathCost {
    /// The sum of the parts in a context.
    #[must_use]
    pub fn of(&self, context: CostContext) -> f64 {
        // An empty sum of floating-point numbers is -0.
        let parts = self.parts.iter().filter(|part| part.context == context);
        parts.fold(0.0, |sum, part| sum + part.ns_per_transaction)
    }
}
