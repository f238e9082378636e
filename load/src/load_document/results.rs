//! The results of a ramp, of overload and of a search as documents.

use serde::{Deserialize, Serialize};

use crate::capacity::{OverloadResult, ProbeVerdict, RepeatedCapacity, SearchEnd};
use crate::generator::GeneratorDescription;
use crate::outcome::{LatencyQuantiles, LeftAs, SlotOutcome};
use crate::stats::ConfidenceInterval;

pub const RAMP_SCHEMA: &str = "linerate.load-ramp/1";
pub const OVERLOAD_SCHEMA: &str = "linerate.load-overload/1";
pub const SEARCH_SCHEMA: &str = "linerate.load-search/1";

/// Rates one after the other.
#[derive(Debug, Serialize, Deserialize)]
pub struct RampDocument {
    /// [`RAMP_SCHEMA`].
    pub schema: String,
    pub version: String,
    pub argv: Vec<String>,
    /// Name of the host that offered the load.
    #[serde(default)]
    pub host: Option<String>,
    pub generator: GeneratorDescription,
    /// In order.
    pub steps: Vec<SlotOutcome>,
    pub warnings: Vec<String>,
}

/// Multiples of a known capacity.
#[derive(Debug, Serialize, Deserialize)]
pub struct OverloadDocument {
    /// [`OVERLOAD_SCHEMA`].
    pub schema: String,
    pub version: String,
    pub argv: Vec<String>,
    #[serde(default)]
    pub started_unix_seconds: Option<u64>,
    /// Name of the host that offered the load.
    #[serde(default)]
    pub host: Option<String>,
    pub generator: GeneratorDescription,
    pub capacity_per_second: f64,
    pub overload: Vec<OverloadResult>,
    pub warnings: Vec<String>,
}

/// A search for the capacity. JSON has the quantiles of its latencies only: [`SearchSummary`].
#[derive(Debug, Serialize)]
pub struct SearchDocument {
    /// [`SEARCH_SCHEMA`].
    pub schema: String,
    pub version: String,
    pub argv: Vec<String>,
    pub started_unix_seconds: Option<u64>,
    /// Name of the host that offered the load.
    pub host: Option<String>,
    pub generator: GeneratorDescription,
    pub method: SearchMethod,
    #[serde(flatten)]
    pub capacity: RepeatedCapacity,
    pub overload: Vec<OverloadResult>,
    /// Thresholds that were missed, one line each.
    pub missed: Vec<String>,
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SearchMethod {
    pub max_loss_ratio: f64,
    pub max_p99_ns: Option<u64>,
    pub resolution_ratio: f64,
    pub slot_seconds: f64,
    pub lead_in_seconds: f64,
    pub confirm_slot_seconds: f64,
    pub searches_wanted: u32,
}

/// A [`SearchDocument`] as it is read from JSON.
#[derive(Debug, Clone, Deserialize)]
pub struct SearchSummary {
    pub schema: String,
    pub version: String,
    pub argv: Vec<String>,
    #[serde(default)]
    pub started_unix_seconds: Option<u64>,
    #[serde(default)]
    pub host: Option<String>,
    pub generator: GeneratorDescription,
    pub method: SearchMethod,
    pub transactions_per_second: ConfidenceInterval,
    pub spread_ratio: f64,
    pub loss_ratio: f64,
    pub latency_ns: LatencyQuantiles,
    pub generator_bound: bool,
    #[serde(default)]
    pub left_as: LeftAs,
    pub confirmed: usize,
    pub neighbourhood: SearchSample,
    pub searches: Vec<SearchSample>,
    #[serde(default)]
    pub overload: Vec<OverloadResult>,
    #[serde(default)]
    pub missed: Vec<String>,
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct SearchSample {
    pub transactions_per_second: f64,
    pub loss_ratio: f64,
    pub latency_ns: LatencyQuantiles,
    pub generator_bound: bool,
    pub ended: SearchEnd,
    pub slots: Vec<ProbedRate>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct ProbedRate {
    pub offered_per_second: f64,
    pub loss_ratio: f64,
    pub latency_ns: LatencyQuantiles,
    pub verdict: ProbeVerdict,
}
