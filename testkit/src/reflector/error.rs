use std::io;
use std::net::SocketAddr;

/// The reason why a reflector cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ReflectorError {
    /// The address is not available.
    #[error("cannot serve {address}: {source}; choose an address of this host and a free port")]
    Bind {
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// An XDP service cannot run.
    #[error("{what}: {why}")]
    Xdp {
        what: String,
        /// The causes, from the outermost to the innermost.
        why: String,
    },
    /// A setting out of range.
    #[error("{setting} is {value}: give {allowed}")]
    OutOfRange { setting: &'static str, value: String, allowed: &'static str },
}

impl ReflectorError {
    pub(crate) fn system(operation: &'static str, source: impl Into<io::Error>) -> Self {
        ReflectorError::System { what: operation, source: source.into() }
    }

    pub(crate) fn xdp(operation: &str, why: impl Into<Box<dyn std::error::Error>>) -> Self {
        let why = why.into();
        let mut line = why.to_string();
        let mut cause = why.source();
        while let Some(error) = cause {
            line = format!("{line}: {error}");
            cause = error.source();
        }
        // The verifier's log has many lines, but an error has one.
        ReflectorError::Xdp { what: operation.to_owned(), why: line.trim_end().replace('\n', "; ") }
    }
}
