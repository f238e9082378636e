//! The result of a climb: one type that renders to text, JSON and HTML.
//!
//! Schema `linerate.ladder/1`. Keys carry base units: `_per_second`, `_ns`, `_bytes`; ratios are
//! fractions of one. `null` means unknown and is always explained by a warning.

use std::collections::BTreeMap;

pub use linerate_load::stats::ComparisonVerdict;
use serde::{Deserialize, Serialize};

/// The schema's name and version, first key of the document.
pub const SCHEMA: &str = "linerate.ladder/1";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LadderReport {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Version of the program that measured.
    pub version: String,
    /// Argument list as given.
    pub argv: Vec<String>,
    /// Start of the climb, seconds since 1970-01-01 UTC.
    pub started_unix_seconds: u64,
    /// Wall-clock time the climb took.
    pub elapsed_seconds: f64,
    /// The machine it ran on.
    pub host: HostFacts,
    /// What sent the load.
    pub generator: GeneratorFacts,
    /// What was measured and how.
    pub method: LadderMethod,
    /// What became of the host's settings; none in a lab, which is gone.
    #[serde(default)]
    pub settings: Option<SettingsFacts>,
    /// One entry a step asked for, in order of climbing; skipped ones too.
    pub steps: Vec<RungReport>,
    /// Published ladders, for their shape only: never measured here.
    pub published: Vec<PublishedLadder>,
    /// What casts doubt on the whole climb.
    pub warnings: Vec<LadderWarning>,
}

/// The machine a climb ran on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostFacts {
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`.
    pub architecture: String,
    /// CPU model name, where the kernel tells.
    pub cpu_model: Option<String>,
    /// CPUs the program may use.
    pub cpus: Vec<u32>,
    /// NUMA nodes with CPUs, where the kernel tells.
    pub numa_nodes: Option<u32>,
    /// Whether the CPU says that a hypervisor runs it, where it tells.
    pub hypervisor: Option<bool>,
    /// `root` or `user-namespace`.
    pub privilege: String,
}

/// What sent the load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GeneratorFacts {
    /// Name of the backend, such as `socket`.
    pub backend: String,
    pub threads: u32,
    /// CPUs those threads are pinned to.
    pub cpus: Vec<u32>,
    /// Flows, that is source ports.
    pub flows: u32,
    /// UDP payload of a request.
    pub payload_bytes: u32,
    /// Whether generator and server have CPUs in common.
    pub shares_cpus_with_server: bool,
    /// The other hosts that sent, as they were named; none in a lab.
    #[serde(default)]
    pub hosts: Vec<String>,
}

/// What became of the settings of a host that is no lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsFacts {
    /// Number of the tune, in the journal, that the climb's changes were written down as.
    pub tune: u64,
    /// Whether all of them are as they were before.
    pub restored: bool,
    /// Number of the tune that keeps what proved better; none where nothing is kept.
    pub kept_tune: Option<u64>,
}

/// What was measured and how.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LadderMethod {
    /// `lab`, or `host` for a real interface.
    pub bench: String,
    /// CPUs of the server.
    pub server_cpus: Vec<u32>,
    pub workers: u32,
    /// Queues of the receiver's interface.
    pub queues: u32,
    /// Address the server is bound to.
    pub server_address: String,
    /// Highest loss ratio at which a rate still holds.
    pub max_loss_ratio: f64,
    /// Length of one probe of a rate.
    pub slot_seconds: f64,
    /// Samples wanted of each configuration in a comparison.
    pub samples: u32,
    /// Link speed that `line_rate_ratio` is a share of.
    pub link_bits_per_second: u64,
    /// Bits of one request on the wire, with preamble, gap and FCS.
    pub wire_bits_per_transaction: u64,
    /// `keep-all` or `keep-better`.
    pub policy: String,
}

/// One step of the ladder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RungReport {
    /// Identifier, such as `steer-by-cpu`.
    pub id: String,
    pub title: String,
    /// What the step changes, one sentence.
    pub what: String,
    /// Whether it was measured here.
    pub applied: bool,
    /// Whether it stayed in place for the steps above it.
    pub kept: bool,
    /// Why not, when it was not applied.
    pub skipped_because: Option<String>,
    /// Settings changed for this step: name, value before, value after.
    pub changes: Vec<ChangeMade>,
    /// Capacity: answered transactions a second at the highest rate that holds.
    pub transactions_per_second: Option<RateEstimate>,
    /// Loss at that rate, over all samples.
    pub loss_ratio: Option<f64>,
    /// Latency from the intended send time, at that rate, over all samples.
    pub latency_ns: Option<LatencyNs>,
    /// CPU cycles of the whole machine a transaction, generator included.
    pub cycles_per_transaction: Option<f64>,
    /// Instructions of the whole machine a transaction, generator included.
    pub instructions_per_transaction: Option<f64>,
    /// Bits a second on the wire at the median rate, one direction.
    pub wire_bits_per_second: Option<f64>,
    /// `wire_bits_per_second` over the link speed.
    pub line_rate_ratio: Option<f64>,
    /// Share of capacity still answered when this many times the capacity is offered.
    pub goodput_at_overload: BTreeMap<String, Option<f64>>,
    /// This step against the one it was alternated with.
    pub versus_previous: Option<VersusPrevious>,
    /// The same step in the published ladder, as a ratio to its own step before.
    pub published_ratio: Option<f64>,
    /// What casts doubt on this step.
    pub warnings: Vec<LadderWarning>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeMade {
    pub setting: String,
    /// Value before, as the kernel shows it.
    pub from: String,
    pub to: String,
}

/// A median with the interval of its samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RateEstimate {
    /// Median of the samples.
    pub median: f64,
    /// Low end of the 95 % interval.
    pub low: f64,
    /// High end of the 95 % interval.
    pub high: f64,
    pub samples: u32,
}

/// Latency percentiles in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyNs {
    /// Half of the transactions were faster.
    pub p50: u64,
    /// 99 of 100 were faster.
    pub p99: u64,
    /// 999 of 1000 were faster.
    pub p999: u64,
}

/// A step against the configuration it was alternated with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VersusPrevious {
    /// Identifier of the step compared with.
    pub id: String,
    /// Ratio of the rates, this over that.
    pub ratio: RatioInterval,
    /// What the interval allows to say.
    pub verdict: ComparisonVerdict,
}

/// A ratio with its interval; the ends are unknown with fewer than three samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RatioInterval {
    pub median: f64,
    /// Low end of the 95 % interval.
    pub low: Option<f64>,
    /// High end of the 95 % interval.
    pub high: Option<f64>,
}

/// Something that casts doubt on a figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LadderWarning {
    /// Which kind of doubt.
    pub kind: WarningKind,
    /// The evidence, one sentence.
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WarningKind {
    /// The generator was the limit: the figure is a lower bound.
    GeneratorBound,
    /// Generator and server ran on the same CPUs.
    SharedCpus,
    /// The time was over before a rate was confirmed: the figure is a lower bound.
    Unconfirmed,
    /// The hypervisor took CPU time away.
    CpuSteal,
    /// The samples scatter widely.
    Noisy,
    /// A value could not be had and is null.
    Unknown,
    /// Something asked for was replaced by something else.
    Fallback,
    /// The step had nothing to act on in this setting.
    NoEffectExpected,
    /// The climb was interrupted; what was measured is here.
    Interrupted,
    /// A generator died, or the way to it, and the climb ended there.
    GeneratorLost,
    /// Something that a tune would set belongs to no step, or cannot be alternated, and was left as found.
    LeftAsFound,
    /// A setting was not put back.
    NotRestored,
}

/// A ladder somebody published, on other hardware.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PublishedLadder {
    /// Identifier, such as `makita-2016`.
    pub id: String,
    /// Where it was published.
    pub source: String,
    /// The hardware, where the source tells.
    pub host: Option<String>,
    /// Payload of a request.
    pub payload_bytes: u32,
    /// What a step counts: `transactions` or `packets`.
    pub counts: String,
    /// Its steps, in the order published.
    pub steps: Vec<PublishedStep>,
    /// Comparisons published beside the ladder, not steps of it.
    pub asides: Vec<PublishedAside>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PublishedStep {
    /// Identifier; equal to a step's where it is the same step.
    pub id: String,
    /// The lowest rate published for it.
    pub low_per_second: f64,
    /// The highest; equal to the low one where a single figure was published.
    pub high_per_second: f64,
}

/// A comparison published beside a ladder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PublishedAside {
    /// Identifier; equal to a step's where it is the same step.
    pub id: String,
    /// The rate without the step.
    pub from_per_second: f64,
    /// The rate with it.
    pub to_per_second: f64,
}
