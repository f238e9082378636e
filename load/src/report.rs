//! The results of runs of load. Callers write them as JSON.

mod merge;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::capacity::{OverloadResult, RepeatedCapacity};
use crate::generator::GeneratorDescription;
use crate::outcome::SlotOutcome;

pub(crate) use merge::add_codes;
pub use merge::{LEAST_OVERLAP, LoadPart, MergeError, merge};

// JSON readers do not distinguish higher counts (IEEE 754 doubles), and no run reaches them.
const HIGHEST_COUNT: u64 = 1 << 53;

/// The result of one stretch of load, or of several merged.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LoadReport {
    pub generator: GeneratorDescription,
    #[serde(flatten)]
    pub outcome: SlotOutcome,
    /// Window mode: requests that each flow kept outstanding.
    #[serde(default)]
    pub window_requests: Option<u32>,
    /// Whether the service sends no replies. Then only the sent counts have a meaning: all requests are `lost`.
    #[serde(default)]
    pub no_reply: bool,
    /// Missed thresholds, one line each.
    #[serde(default)]
    pub missed: Vec<String>,
    /// The merged runs; empty for a single run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<MergedRun>,
    /// Share of the shortest run's time in which all merged runs sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_ratio: Option<f64>,
    /// The clock of a run with a start time: by adjtimex(2), or as another host measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOffset>,
}

/// What is known about `CLOCK_REALTIME` of a host.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// By how much it is ahead of the clock that it was compared with. The kernel's own estimate has 0.
    pub ahead_seconds: f64,
    /// Largest error of that in either direction.
    pub uncertain_seconds: f64,
}

impl ClockOffset {
    /// The kernel's bound; `None` if it refuses to answer, as in some sandboxes.
    pub fn from_kernel() -> Option<Self> {
        let max_error_us = crate::sys::max_clock_error_us().ok()?;
        Some(Self { ahead_seconds: 0.0, uncertain_seconds: max_error_us as f64 / 1e6 })
    }

    /// The largest error of the clock.
    pub fn max_error_seconds(self) -> f64 {
        self.ahead_seconds.abs() + self.uncertain_seconds
    }

    /// Time by which the clock is ahead, ns; 0 while it may be right, because a measurement over a
    /// network is worse than NTP.
    fn correction_ns(self) -> i64 {
        if self.ahead_seconds.abs() <= self.uncertain_seconds { 0 } else { (self.ahead_seconds * 1e9) as i64 }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MergedRun {
    pub name: String,
    pub argv: Vec<String>,
    /// By `CLOCK_REALTIME` of the run's own host.
    pub started_realtime_ns: u64,
    pub duration_seconds: f64,
    pub sent: u64,
    pub answered: u64,
    /// Whether this generator was the limit.
    #[serde(default)]
    pub generator_bound: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOffset>,
    pub generator: GeneratorDescription,
}

/// One rate after the other.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RampReport {
    pub generator: GeneratorDescription,
    pub steps: Vec<SlotOutcome>,
    /// Missed thresholds, one line each.
    #[serde(default)]
    pub missed: Vec<String>,
}

/// Multiples of a known capacity.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OverloadReport {
    pub generator: GeneratorDescription,
    /// The given capacity, requests per second.
    pub capacity_per_second: f64,
    pub overload: Vec<OverloadResult>,
}

/// A search for the capacity.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SearchReport {
    pub generator: GeneratorDescription,
    pub method: SearchMethod,
    #[serde(flatten)]
    pub capacity: RepeatedCapacity,
    /// Goodput above the capacity.
    #[serde(default)]
    pub overload: Vec<OverloadResult>,
    /// Missed thresholds, one line each.
    #[serde(default)]
    pub missed: Vec<String>,
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

impl LoadReport {
    /// # Errors
    /// An error if figures contradict each other or are impossible.
    pub fn check(&self) -> Result<(), String> {
        let outcome = &self.outcome;
        if outcome.answered.checked_add(outcome.lost) != Some(outcome.sent) {
            let (sent, answered, lost) = (outcome.sent, outcome.answered, outcome.lost);
            return Err(format!("{answered} answered and {lost} lost are not the {sent} sent"));
        }
        let mut counts = vec![
            outcome.sent,
            outcome.duplicate,
            outcome.reordered,
            outcome.corrupt,
            outcome.unsolicited,
            outcome.late,
            outcome.fragmented,
            outcome.unverified,
            outcome.mean_in_flight,
            outcome.latency_ns.count(),
            outcome.self_watch.late_sends,
            outcome.self_watch.receive_drops,
            outcome.self_watch.send_drops,
            outcome.self_watch.refused_by_link,
            outcome.self_watch.timed_out,
        ];
        let errors = &outcome.send_errors;
        counts.extend([
            errors.refused,
            errors.rejected,
            errors.unreachable,
            errors.too_long,
            errors.forbidden,
        ]);
        counts.extend([errors.no_buffers, errors.other]);
        counts.extend(outcome.codes.iter().flat_map(|code| [code.count, code.truncated]));
        let intervals = &outcome.intervals;
        counts.extend(intervals.iter().flat_map(|interval| [interval.sent, interval.received]));
        counts.extend(intervals.iter().filter_map(|interval| interval.answered));
        if let Some(count) = counts.into_iter().find(|count| *count > HIGHEST_COUNT) {
            return Err(format!("a count of {count} is beyond any run"));
        }
        let rates = [outcome.offered_per_second, outcome.answered_per_second];
        let times = intervals.iter().flat_map(|interval| [interval.begins_seconds, interval.seconds]);
        if let Some(figure) = rates.into_iter().chain(times).find(|figure| !(0.0..=1e12).contains(figure)) {
            return Err(format!("{figure} is neither a rate nor a time"));
        }
        if intervals.iter().any(|interval| interval.seconds == 0.0) {
            return Err("an interval has no length".to_owned());
        }
        if outcome.duration.is_zero() || outcome.duration.as_secs() > 1 << 32 {
            return Err(format!("a duration of {:?}", outcome.duration));
        }
        Ok(())
    }
}
