//! Results of `linerate tune`: the applied changes, and the files that make them persist.

use linerate_host::finding::{Finding, Severity};
use linerate_host::{Diagnosis, Known, Setting};
use serde::{Deserialize, Serialize};

use crate::journal::record::UndoDeadline;
use crate::measure::ChangeMeasurement;
use crate::persist::{PersistFiles, WrittenFiles};
use crate::plan::PlannedChange;
use crate::transaction::ChangeOutcome;

/// Outcome of `tune apply`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuneApplyReport {
    /// Number of the tune; `None` if nothing was changed.
    pub tune: Option<u64>,
    pub goal: String,
    /// When linerate undoes the tune by itself; `None` for never.
    pub until: Option<UndoDeadline>,
    /// The attempted changes in their order.
    pub changes: Vec<AppliedChange>,
    /// Why changes are missing; `None` if all were made.
    pub broke_off: Option<String>,
    /// Findings of `doctor` after the changes; `None` if the host could not be read.
    pub findings: Option<Vec<RemainingFinding>>,
    /// The effect of the changes on the service; unknown if it was not measured.
    #[serde(default)]
    pub measurement: Known<ChangeMeasurement>,
    /// Whether the tune was undone: the service was worse or not measured, or its time was over.
    #[serde(default)]
    pub undone: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedChange {
    pub setting: Setting,
    pub name: String,
    pub from: String,
    pub to: String,
    pub outcome: ChangeOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemainingFinding {
    pub id: String,
    pub severity: Severity,
    pub title: String,
}

/// Outcome of `tune persist`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PersistReport {
    /// The files with their contents.
    pub files: PersistFiles,
    /// Settings that are not persistent, with the reason.
    pub left_out: Vec<String>,
    pub wrote: WrittenFiles,
}

impl AppliedChange {
    pub fn new(change: &PlannedChange, outcome: ChangeOutcome) -> Self {
        Self {
            setting: change.setting.clone(),
            name: change.setting.to_string(),
            from: change.from.to_string(),
            to: change.to.to_string(),
            outcome,
        }
    }
}

impl RemainingFinding {
    pub fn all_of(diagnosis: &Diagnosis) -> Vec<Self> {
        let remaining = |finding: &Finding| Self {
            id: finding.id.to_owned(),
            severity: finding.severity,
            title: finding.title.clone(),
        };
        diagnosis.findings.iter().map(remaining).collect()
    }
}
