//! Why an exchange could not be made.

/// Why a text, a file or an option makes no exchange. One line each: what, where, what to do.
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
        /// What is wrong with it.
        problem: String,
    },
    /// A file as a whole.
    #[error("{file}: {problem}")]
    File {
        /// The file as the user named it.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    #[error("{option}: {problem}")]
    Option {
        option: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

impl SourceError {
    pub(super) fn option(option: &'static str, problem: impl Into<String>) -> Self {
        SourceError::Option { option, problem: problem.into() }
    }
}
