//! The result of a run.
//!
//! Keys carry base units: `_per_second`, `_ns`, `_bytes`; ratios are fractions of one. `null` means unknown, and a
//! warning has the reason.

use std::collections::BTreeMap;

pub use linerate_load::stats::ComparisonVerdict;
use linerate_load::{GeneratorDescription, Latency};
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::ladder::config::LadderConfig;
use crate::ladder::cpu_use::CpuUse;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LadderReport {
    pub elapsed_seconds: f64,
    pub config: LadderConfig,
    pub testbed: TestbedFacts,
    /// The host's settings after the run; `None` in a lab, which is gone by then.
    #[serde(default)]
    pub settings: Option<SettingsFacts>,
    /// One entry per step of the configuration, in order; skipped steps too.
    pub steps: Vec<StepReport>,
    /// Who had the CPUs in the baseline and with the last steps in place; empty where CPUs cannot be sampled.
    #[serde(default)]
    pub cpu_use: Vec<CpuUse>,
    /// Published ladders for comparison of the shape. They were not measured here.
    pub published: Vec<PublishedLadder>,
}

/// Where the run took place.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct TestbedFacts {
    pub kind: TestbedKind,
    /// `root` or `user-namespace`.
    pub privilege: String,
    /// `uname -m`.
    pub architecture: String,
    pub numa_nodes: Option<u32>,
    /// CPUs of the server's workers.
    pub server_cpus: Vec<u32>,
    /// Queues of the receiver's interface.
    pub queues: u32,
    pub server_address: String,
    /// Link that `line_rate_ratio` is a share of.
    pub link_bits_per_second: u64,
    /// Bits of one request on the wire, with preamble, gap and FCS.
    pub wire_bits_per_transaction: u64,
    /// `None` if none was started.
    pub generator: Option<GeneratorDescription>,
    /// Other hosts that sent; empty in a lab.
    pub generator_hosts: Vec<String>,
    /// Whether generator and server have CPUs in common.
    pub shares_cpus: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TestbedKind {
    /// Two network namespaces and a veth pair.
    #[default]
    Lab,
    /// A real interface of this host.
    Host,
}

/// The settings of a real host after a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsFacts {
    /// Number of the run's tune in the journal.
    pub tune: u64,
    /// Whether all settings have their original values.
    pub restored: bool,
    /// Number of the tune that keeps the better steps; `None` if nothing is kept.
    pub kept_tune: Option<u64>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StepReport {
    /// Identifier, such as `steer-by-cpu`.
    pub id: String,
    pub title: String,
    /// What the step changes, in one sentence.
    pub what: String,
    /// Whether it was measured.
    pub applied: bool,
    /// Whether it stayed in place for the following steps.
    pub kept: bool,
    pub skipped_because: Option<String>,
    pub changes: Vec<SettingDifference>,
    /// Capacity: answered transactions per second at the highest rate that holds.
    pub transactions_per_second: Option<RateEstimate>,
    /// Loss at that rate, over all samples.
    pub loss_ratio: Option<f64>,
    /// Latency at that rate from the intended send time, over all samples.
    pub latency_ns: Option<LatencyNs>,
    /// CPU cycles of the whole machine, generator included.
    pub cycles_per_transaction: Option<f64>,
    /// Instructions of the whole machine, generator included.
    pub instructions_per_transaction: Option<f64>,
    /// Bits per second on the wire at the median rate, one direction.
    pub wire_bits_per_second: Option<f64>,
    pub line_rate_ratio: Option<f64>,
    /// Share of the capacity still answered, by the multiple of the capacity that is offered.
    pub goodput_at_overload: BTreeMap<String, Option<f64>>,
    /// This step against the configuration it was alternated with.
    pub versus_previous: Option<VersusPrevious>,
    /// Rate of the same step in the published ladder over the rate of the step before it there.
    pub published_ratio: Option<f64>,
    pub warnings: Vec<LadderWarning>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingDifference {
    pub setting: String,
    pub from: String,
    pub to: String,
}

/// A median with the ends of its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RateEstimate {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub samples: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyNs {
    pub p50: u64,
    pub p99: u64,
    pub p999: u64,
}

impl LatencyNs {
    /// `None` without samples.
    pub(crate) fn from_samples(latency: &Latency) -> Option<Self> {
        let quantiles = latency.quantiles();
        Some(Self { p50: quantiles.p50?, p99: quantiles.p99?, p999: quantiles.p999? })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VersusPrevious {
    /// Identifier of the other step.
    pub id: String,
    /// This step's rate over the other's.
    pub ratio: RatioInterval,
    pub verdict: ComparisonVerdict,
}

/// A ratio with its 95 % interval, whose ends are unknown with fewer than three samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RatioInterval {
    pub median: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

/// Something that casts doubt on a figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LadderWarning {
    pub kind: WarningKind,
    /// The evidence, one sentence.
    pub detail: String,
}

impl LadderWarning {
    pub fn new(kind: WarningKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
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
    /// A value could not be measured and is null.
    Unknown,
    /// An option was replaced by another.
    Fallback,
    /// The step cannot have an effect in this configuration.
    NoEffectExpected,
    /// The run was interrupted and has results up to there.
    Interrupted,
    /// A generator or the connection to it ended, and with it the run.
    GeneratorLost,
    /// A setting that a tune would change belongs to no step, or cannot be alternated, and was left as found.
    LeftAsFound,
    /// A setting does not have its original value.
    NotRestored,
    /// A setting that proved better could not be applied again after the run.
    NotKept,
}

impl WarningKind {
    pub const ALL: &[WarningKind] = Self::VARIANTS;

    /// The name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A ladder that somebody published, from other hardware.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PublishedLadder {
    /// Identifier, such as `makita-2016`.
    pub id: String,
    pub source: String,
    /// The hardware, if the source names it.
    pub host: Option<String>,
    pub payload_bytes: u32,
    /// Unit of the rates: `transactions` or `packets`.
    pub counts: String,
    /// In the order published.
    pub steps: Vec<PublishedStep>,
    /// Comparisons in the same source that are not steps of its ladder.
    pub comparisons: Vec<PublishedComparison>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PublishedStep {
    /// A step's identifier here, where it is the same step.
    pub id: String,
    pub low_per_second: f64,
    /// Equal to the low rate where a single figure was published.
    pub high_per_second: f64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PublishedComparison {
    /// A step's identifier here, where it is the same step.
    pub id: String,
    /// The rate without the step.
    pub from_per_second: f64,
    /// The rate with it.
    pub to_per_second: f64,
}

const PUBLISHED: &str = include_str!("../../data/published.json");

/// The published ladders. The first one has the step identifiers that are used here.
///
/// # Panics
/// Never: the data is part of the program and a test parses it.
#[must_use]
pub fn published_ladders() -> Vec<PublishedLadder> {
    serde_json::from_str(PUBLISHED).expect("the data file in the program is valid")
}

/// A step's rate over the rate of the step before it, in the first published ladder.
pub(crate) fn published_ratio(ladders: &[PublishedLadder], id: &str) -> Option<f64> {
    let ladder = ladders.first()?;
    if let Some(comparison) = ladder.comparisons.iter().find(|comparison| comparison.id == id) {
        return Some(comparison.to_per_second / comparison.from_per_second);
    }
    let position = ladder.steps.iter().position(|step| step.id == id)?;
    let before = ladder.steps.get(position.checked_sub(1)?)?;
    Some(ladder.steps[position].low_per_second / before.low_per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_ratios_compare_with_the_previous_step() {
        let ladders = published_ladders();
        assert_eq!(ladders[0].steps.len(), 11);
        let ratio = |id| published_ratio(&ladders, id);
        assert_eq!((ratio("baseline"), ratio("batch-syscalls")), (None, None));
        assert!((ratio("steer-by-cpu").expect("a step") - 4_250_000.0 / 2_540_000.0).abs() < 1e-9);
        assert!((ratio("xps").expect("a comparison") - 5_050_000.0 / 1_086_000.0).abs() < 1e-9);
    }
}
