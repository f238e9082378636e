//! What a host refused.

use std::io;

/// What a host refused.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The path on the host.
        path: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A file could not be written.
    #[error("cannot write '{value}' to {path}: {source}")]
    Write {
        /// The path on the host.
        path: String,
        /// What should have been written.
        value: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A program could not be run, or said no.
    #[error("{program}: {reason}")]
    Program {
        /// The program's name.
        program: String,
        /// Its own words, or why it did not start.
        reason: String,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Call {
        /// What was asked of the kernel.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// An answer in a capture is not what it should be.
    #[error("{path}: {reason}")]
    Garbled {
        /// The file in the capture.
        path: String,
        /// What is wrong with it, with line and column.
        reason: String,
    },
    /// The handle is not of the live host.
    #[error("{what}: not to be had from a capture")]
    NotLive {
        /// What was asked.
        what: String,
    },
}

impl HostError {
    /// Whether the program or file is simply not there.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, HostError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether the host says that it has no such thing: `EOPNOTSUPP`.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        self.errno() == Some(libc::EOPNOTSUPP)
    }

    /// Whether what was asked for is not there: `ENOENT`, `ENODEV`.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self.errno(), Some(libc::ENOENT | libc::ENODEV))
    }

    /// Whether the caller may not: `EPERM`, `EACCES`, or `EROFS` where a container has /proc or /sys read-only.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self.errno(), Some(libc::EPERM | libc::EACCES | libc::EROFS))
    }

    /// The system's error number.
    #[must_use]
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

/// An error number with the kernel's own words (`NLMSGERR_ATTR_MSG`, Linux 4.12).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {words}", io::Error::from_raw_os_error(*errno))]
pub(crate) struct ExplainedErrno {
    pub(crate) errno: i32,
    pub(crate) words: String,
}

impl ExplainedErrno {
    pub(crate) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<ExplainedErrno> for io::Error {
    fn from(explained: ExplainedErrno) -> Self {
        io::Error::other(explained)
    }
}
