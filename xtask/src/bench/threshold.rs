//! Thresholds of benches, and their verdicts.

use std::fmt;

use linerate_load::stats::ConfidenceInterval;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThresholdVerdict {
    Pass,
    Miss,
    /// This machine cannot show it.
    NotHere,
    /// A ratio without a threshold.
    Unjudged,
}

/// A threshold and the ratio that was measured.
#[derive(Debug)]
pub(super) struct JudgedThreshold {
    pub(super) what: String,
    pub(super) verdict: ThresholdVerdict,
    pub(super) ratio: Option<ConfidenceInterval>,
    pub(super) remarks: Vec<String>,
}

/// Whether no threshold is missed.
pub(super) fn none_missed<'a>(thresholds: impl IntoIterator<Item = &'a JudgedThreshold>) -> bool {
    thresholds.into_iter().all(|threshold| threshold.verdict != ThresholdVerdict::Miss)
}

impl fmt::Display for JudgedThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict_text = match self.verdict {
            ThresholdVerdict::Pass => "PASS",
            ThresholdVerdict::Miss => "MISS",
            ThresholdVerdict::NotHere => "NOT HERE",
            ThresholdVerdict::Unjudged => "not judged",
        };
        write!(f, "{verdict_text:8} {}", self.what)?;
        if let Some(ratio) = &self.ratio {
            write!(f, ": {}", interval_text(ratio, 1.0, 2))?;
        }
        self.remarks.iter().try_for_each(|remark| write!(f, "; {remark}"))
    }
}

/// A scaled median with its interval.
pub(super) fn interval_text(interval: &ConfidenceInterval, scale: f64, decimals: usize) -> String {
    let median = interval.median * scale;
    match interval.low.zip(interval.high) {
        Some((low, high)) => {
            format!("{median:.decimals$} ({:.decimals$}-{:.decimals$})", low * scale, high * scale)
        }
        None => format!("{median:.decimals$}"),
    }
}
