//! Errors of host reads and writes.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: io::Error },
    #[error("cannot write '{value}' to {path}: {source}")]
    Write { path: String, value: String, source: io::Error },
    #[error("{program}: {reason}")]
    Program {
        program: String,
        /// The message of the program, or why it did not start.
        reason: String,
    },
    #[error("{what}: {source}")]
    Call {
        /// The operation.
        what: String,
        source: io::Error,
    },
    /// Invalid content of a file, a recording or an answer, or a capture that cannot be opened.
    #[error("{path}: {reason}")]
    Garbled {
        path: String,
        /// With the line if it is known.
        reason: String,
    },
    #[error("{what}: not available from a capture")]
    NotLive { what: String },
}

impl HostError {
    pub fn is_missing(&self) -> bool {
        matches!(self, HostError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// The file is missing, or its thread ended while the file was open (`ESRCH`).
    pub(crate) fn is_ended(&self) -> bool {
        self.is_missing() || self.errno() == Some(libc::ESRCH)
    }

    /// `EOPNOTSUPP`.
    pub fn is_unsupported(&self) -> bool {
        self.errno() == Some(libc::EOPNOTSUPP)
    }

    /// `ENOENT`, `ENODEV`.
    pub fn is_gone(&self) -> bool {
        matches!(self.errno(), Some(libc::ENOENT | libc::ENODEV))
    }

    /// `EPERM`, `EACCES`, or `EROFS` if a container has /proc or /sys read-only.
    pub fn is_denied(&self) -> bool {
        matches!(self.errno(), Some(libc::EPERM | libc::EACCES | libc::EROFS))
    }

    pub fn errno(&self) -> Option<i32> {
        match self {
            HostError::Read { source, .. }
            | HostError::Write { source, .. }
            | HostError::Call { source, .. } => {
                ExplainedErrno::of(source).map_or(source.raw_os_error(), |explained| Some(explained.errno))
            }
            HostError::Program { .. } | HostError::Garbled { .. } | HostError::NotLive { .. } => None,
        }
    }
}

// An error number with the kernel's message (`NLMSGERR_ATTR_MSG`, Linux 4.12).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {words}", io::Error::from_raw_os_error(*errno))]
pub(crate) struct ExplainedErrno {
    pub(crate) errno: i32,
    pub(crate) words: String,
}

impl ExplainedErrno {
    pub(crate) fn error(errno: i32, words: impl Into<String>) -> io::Error {
        io::Error::other(ExplainedErrno { errno, words: words.into() })
    }

    pub(crate) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}
