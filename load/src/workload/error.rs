//! Errors of workloads.

use std::fmt::Display;

/// Why a text, a file or an option makes no exchange. One line each: the problem, the place, the
/// fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SourceError(String);

impl SourceError {
    // `line` counts from 1; `item` is its wrong part.
    pub(super) fn line(file: &str, line: usize, item: &str, problem: impl Display) -> Self {
        SourceError(format!("{file}, line {line}: \"{item}\": {problem}"))
    }

    pub(super) fn file(file: &str, problem: impl Display) -> Self {
        SourceError(format!("{file}: {problem}"))
    }

    pub(super) fn option(option: &'static str, problem: impl Display) -> Self {
        SourceError(format!("{option}: {problem}"))
    }
}
