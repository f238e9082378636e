//! Errors of workloads.

/// Why a text, a file or an option makes no exchange. One line each: the problem, the place, the
/// fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// A line of a text file.
    #[error("{file}, line {line}: \"{item}\": {problem}")]
    Line {
        /// The file as the user named it.
        file: String,
        /// Its line, counted from 1.
        line: usize,
        /// The part of the line that is wrong.
        item: String,
        /// The fault.
        problem: String,
    },
    /// A file as a whole.
    #[error("{file}: {problem}")]
    File {
        /// The file as the user named it.
        file: String,
        /// The fault.
        problem: String,
    },
    #[error("{option}: {problem}")]
    Option {
        option: &'static str,
        /// The fault.
        problem: String,
    },
}

impl SourceError {
    pub(super) fn option(option: &'static str, problem: impl Into<String>) -> Self {
        SourceError::Option { option, problem: problem.into() }
    }
}
