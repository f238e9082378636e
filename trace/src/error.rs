//! Errors of tracing, each one line for people.

use std::io;
use std::time::Duration;

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
    #[error(
        "{what}: the events of {asked:?} would take {} MB; the longest window that fits is {:?}",
        (*needed / 1e6).ceil(), Duration::from_millis(longest.as_millis() as u64)
    )]
    TooLarge {
        what: &'static str,
        asked: Duration,
        /// Bytes, at the present rate of events.
        needed: f64,
        longest: Duration,
    },
    #[error(transparent)]
    Host(#[from] linerate_host::HostError),
}

/// The result; `None`, after printing SKIP, if this kernel does not permit the observation.
#[cfg(test)]
pub(crate) fn skip_unless_permitted<T>(test: &str, result: Result<T, TraceError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(why @ (TraceError::NotPermitted { .. } | TraceError::NotHere { .. })) => {
            linerate_testkit::skip(test, why);
            None
        }
        Err(why) => panic!("{why}"),
    }
}
