//! Why something cannot be traced.

use std::io;

/// Why something cannot be traced here. Each is one line for a person.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The right is missing.
    #[error("{what} takes {capabilities}: run it as root, or give the program these capabilities")]
    NotPermitted {
        /// What was to be done.
        what: &'static str,
        /// Such as `CAP_BPF and CAP_PERFMON`.
        capabilities: &'static str,
    },
    /// The kernel does not have it.
    #[error("{what}: this kernel has no {feature}, which {since}")]
    NotHere {
        /// What was to be done.
        what: &'static str,
        /// What it lacks, such as `tracepoint lock:contention_begin`.
        feature: String,
        /// Where it would be, such as `came with Linux 5.19`.
        since: &'static str,
    },
    #[error("{what}: {source}")]
    Kernel {
        /// What was to be done.
        what: &'static str,
        source: io::Error,
    },
    /// The host's files could not be read.
    #[error(transparent)]
    Host(#[from] linerate_host::HostError),
}
