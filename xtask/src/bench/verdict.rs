//! Whether a promise of a bench is kept.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ThresholdVerdict {
    Pass,
    Miss,
    /// This machine cannot show it.
    NotHere,
    /// A ratio without a promise.
    Told,
}
