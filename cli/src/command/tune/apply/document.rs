//! What was done, as one document.

use linerate_host::Diagnosis;
use linerate_host::finding::{Finding, Severity};
use linerate_tune::journal::record::UndoDeadline;
use serde::Serialize;

use super::carrying::AppliedChange;

/// The schema of `--json`.
pub(super) const SCHEMA: &str = "linerate.tune-apply/1";

/// What was done.
#[derive(Serialize)]
pub(crate) struct TuneApplyDocument<'a> {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    pub(crate) argv: Vec<String>,
    /// When the changes began.
    pub(crate) started_unix_seconds: Option<u64>,
    /// Number of the tune.
    pub(crate) tune: u64,
    pub(crate) goal: &'a str,
    pub(crate) host: &'a str,
    /// When it is undone without being asked; null for never.
    pub(crate) until: Option<UndoDeadline>,
    /// The changes in the order in which they were made; one that is not here was not made.
    pub(crate) changes: &'a [AppliedChange],
    /// Why not all were made; null where they were.
    pub(crate) broke_off: Option<&'a str>,
    /// What doctor finds afterwards; null where the host could not be read.
    pub(crate) findings: Option<Vec<RemainingFinding>>,
}

/// A finding that remains.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RemainingFinding {
    pub(crate) id: &'static str,
    pub(crate) severity: Severity,
    pub(crate) title: String,
}

impl RemainingFinding {
    /// All that is found.
    pub(super) fn of(diagnosis: &Diagnosis) -> Vec<Self> {
        let remaining = |finding: &Finding| Self {
            id: finding.id,
            severity: finding.severity,
            title: finding.title.clone(),
        };
        diagnosis.findings.iter().map(remaining).collect()
    }
}
