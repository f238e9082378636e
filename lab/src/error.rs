//! What can go wrong, said so that the reader knows what to do about it.

use std::io;
use std::path::PathBuf;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a lab could not be made, used or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused a network namespace.
    #[error(
        "cannot make a network namespace: needs CAP_SYS_ADMIN (run as root), or unprivileged user namespaces: {why}"
    )]
    NoNamespace {
        /// Why neither is to be had here.
        why: String,
    },
    /// An option of the lab is out of range.
    #[error("{option} {value} is out of range: {allowed}")]
    OutOfRange {
        /// The option, as the builder calls it.
        option: &'static str,
        /// What was asked for.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// A name that cannot name a lab.
    #[error("lab name {name:?} is not usable: 1 to 32 of a-z, 0-9 and '-', beginning with a letter or digit")]
    BadName {
        /// The name as given.
        name: String,
    },
    /// A netlink request was refused.
    #[error("{host}: cannot {what}: {source}{}", detail.as_ref().map(|d| format!(" (kernel: {d})")).unwrap_or_default())]
    Netlink {
        /// The host in which it was tried.
        host: String,
        /// What was tried.
        what: String,
        /// The error number.
        source: io::Error,
        /// The kernel's own words (extended acknowledgement), where it had any.
        detail: Option<String>,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// The error number.
        source: io::Error,
    },
    /// A file could not be read, written or removed.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// `read`, `write`, ...
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error number.
        source: io::Error,
    },
    /// A link did not come up.
    #[error("{host}: {interface} did not come up within {seconds} s")]
    NoCarrier {
        /// The host.
        host: String,
        /// The interface.
        interface: String,
        /// How long was waited, in seconds.
        seconds: u64,
    },
    /// Code run inside a host panicked.
    #[error("code run in lab host {host} panicked: {message}")]
    Panicked {
        /// The host.
        host: String,
        /// What the panic said.
        message: String,
    },
    /// The thread that holds a host has ended.
    #[error("lab host {host} has ended")]
    Ended {
        /// The host.
        host: String,
    },
    /// There is no sysfs that shows the host's network namespace.
    #[error("lab host {host} has no /sys of its own: {why}")]
    NoSysfs {
        /// The host.
        host: String,
        /// Every way tried and what each said.
        why: String,
    },
}

impl Error {
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }

    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Self {
        Self::File { what, path: path.into(), source: source.into() }
    }
}
