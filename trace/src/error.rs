//! Errors of tracing, each one line for people.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A missing privilege.
    #[error("{what} requires {capabilities}: run it as root, or give the program these capabilities")]
    NotPermitted {
        what: &'static str,
        /// Such as `CAP_BPF and CAP_PERFMON`.
        capabilities: &'static str,
    },
    #[error("{what}: this kernel has no {feature}, which {since}")]
    NotHere {
        what: &'static str,
        /// Such as `tracepoint lock:contention_begin`.
        feature: String,
        /// Such as `came with Linux 5.19`.
        since: &'static str,
    },
    #[error("{what}: {source}")]
    Kernel { what: &'static str, source: io::Error },
    #[error(transparent)]
    Host(#[from] linerate_host::HostError),
}
