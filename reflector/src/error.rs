//! What can go wrong.

use std::io;
use std::net::SocketAddr;

/// Why a reflector does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be had.
    #[error("cannot serve {address}: {source}; choose an address of this host and a free port")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A setting out of range.
    #[error("{setting} is {value}: give {allowed}")]
    OutOfRange {
        /// Its name.
        setting: &'static str,
        /// What it was set to.
        value: String,
        /// What it may be.
        allowed: &'static str,
    },
}

impl Error {
    pub(crate) fn system(what: &'static str, source: impl Into<io::Error>) -> Self {
        Error::System { what, source: source.into() }
    }
}
