//! The account of one slot of load as a document: schema `linerate.load/1`.

mod merge;
mod results;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::generator::GeneratorDescription;
use crate::outcome::SlotOutcome;

pub use merge::{MergeError, merge};
pub use results::{
    OVERLOAD_SCHEMA, OverloadDocument, ProbedRate, RAMP_SCHEMA, RampDocument, SEARCH_SCHEMA, SearchDocument,
    SearchMethod, SearchSample, SearchSummary,
};

/// The schema's name and version.
pub const SCHEMA: &str = "linerate.load/1";

/// Counts beyond this are no longer told apart by JSON readers, and far from anything a run can reach.
const MOST: u64 = 1 << 53;

/// What a run of load came to, with all that is needed to understand and to merge it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadDocument {
    /// [`SCHEMA`].
    pub schema: String,
    pub version: String,
    /// How it was called.
    pub argv: Vec<String>,
    /// What the host that offered the load calls itself, several of them one after the other; none where it was not told.
    #[serde(default)]
    pub host: Option<String>,
    /// What offered the load.
    pub generator: GeneratorDescription,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: SlotOutcome,
    /// Thresholds that were missed, one line each.
    #[serde(default)]
    pub missed: Vec<String>,
    /// What a reader has to know, one line each.
    pub warnings: Vec<String>,
    /// What it was merged from; empty if it was not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<MergedRun>,
    /// Share of the shortest run's time in which all that were merged ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_ratio: Option<f64>,
}

/// One of the runs that were merged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MergedRun {
    pub name: String,
    /// How that run was called.
    pub argv: Vec<String>,
    /// When it began, ns of `CLOCK_REALTIME` of its own host.
    pub started_realtime_ns: u64,
    /// How long it sent, s.
    pub duration_seconds: f64,
    pub sent: u64,
    /// Requests answered.
    pub answered: u64,
    pub generator: GeneratorDescription,
}

/// Why a text is no such document.
#[derive(Debug, thiserror::Error)]
pub enum LoadDocumentError {
    #[error("no JSON document: {0}")]
    NoJson(#[source] serde_json::Error),
    /// JSON of some other kind.
    #[error("schema {found}, not {SCHEMA}: only what 'linerate load --json' wrote of one run can be merged")]
    Schema {
        /// What it says to be.
        found: String,
    },
    /// It lacks something, or holds what does not belong.
    #[error("not a sound {SCHEMA} document: {0}")]
    Malformed(#[source] serde_json::Error),
    /// Its figures contradict each other.
    #[error("not a sound {SCHEMA} document: {0}")]
    Contradiction(String),
}

impl LoadDocument {
    /// Reads a document, and checks that its figures agree with each other.
    ///
    /// # Errors
    /// A text that is no such document, or a damaged one.
    pub fn parse(text: &str) -> Result<Self, LoadDocumentError> {
        let value: serde_json::Value = serde_json::from_str(text).map_err(LoadDocumentError::NoJson)?;
        match value.get("schema").and_then(|schema| schema.as_str()) {
            Some(SCHEMA) => {}
            other => {
                let found = other.map_or_else(|| "missing".to_owned(), |found| format!("'{found}'"));
                return Err(LoadDocumentError::Schema { found });
            }
        }
        let document: LoadDocument = serde_json::from_value(value).map_err(LoadDocumentError::Malformed)?;
        document.check().map_err(LoadDocumentError::Contradiction)?;
        Ok(document)
    }

    fn check(&self) -> Result<(), String> {
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
            outcome.foreign,
            outcome.late,
            outcome.unverified,
            outcome.latency_ns.count(),
            outcome.self_watch.late_sends,
            outcome.self_watch.receive_drops,
            outcome.self_watch.refused_by_link,
            outcome.self_watch.timed_out,
        ];
        let errors = &outcome.send_errors;
        counts.extend([errors.refused, errors.unreachable, errors.too_long, errors.forbidden]);
        counts.extend([errors.no_buffers, errors.other]);
        counts.extend(outcome.codes.iter().flat_map(|code| [code.count, code.truncated]));
        let intervals = &outcome.intervals;
        counts.extend(intervals.iter().flat_map(|interval| [interval.sent, interval.received]));
        counts.extend(intervals.iter().filter_map(|interval| interval.answered));
        if let Some(count) = counts.into_iter().find(|count| *count > MOST) {
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
