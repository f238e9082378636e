//! What can go wrong, said so that the reader knows what to do about it.

use std::io;
use std::path::PathBuf;

/// The result of everything in this crate that can fail.
pub type Result<T, E = LabError> = std::result::Result<T, E>;

/// Why a lab could not be made, used or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
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
        what: String,
        source: io::Error,
        /// The kernel's own words (extended acknowledgement), where it had any.
        detail: Option<String>,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System { what: String, source: io::Error },
    /// A file could not be read, written or removed.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// `read`, `write`, ...
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A link did not come up.
    #[error("{host}: {interface} did not come up within {seconds} s")]
    NoCarrier {
        host: String,
        interface: String,
        /// How long was waited, in seconds.
        seconds: u64,
    },
    /// Code run inside a host panicked.
    #[error("code run in lab host {host} panicked: {message}")]
    Panicked {
        host: String,
        /// What the panic said.
        message: String,
    },
    /// The thread that holds a host has ended.
    #[error("lab host {host} has ended")]
    Ended { host: String },
    /// A lab of that name is there.
    #[error(
        "a lab named {name} is up (process {pid}): choose another name, or take it down with `linerate lab down {name}`"
    )]
    NameTaken {
        name: String,
        /// The process that holds it.
        pid: i32,
    },
    /// There is no lab of that name.
    #[error("no lab named {name} is up; {}", listed("up are", known))]
    NoSuchLab {
        name: String,
        /// The names of those that are up.
        known: Vec<String>,
    },
    /// A lab that is not held cannot be taken down.
    #[error(
        "lab {name} belongs to a command that is running (process {pid}): end that, or run `linerate lab clean --all`"
    )]
    NotHeld {
        name: String,
        /// The process that uses it.
        pid: i32,
    },
    /// A lab has no host of that name.
    #[error("lab {lab} has no host {name}; {}", listed("its hosts are", known))]
    NoSuchHost {
        lab: String,
        name: String,
        /// The names of those it has.
        known: Vec<String>,
    },
    /// A host-wide setting is changed for another lab.
    #[error(
        "{key} is changed for the lab {name} (process {pid}): {}",
        if *alive { "wait until that has ended" } else { "that was killed, run `linerate lab clean` first" }
    )]
    HostWideTaken {
        key: String,
        name: String,
        pid: i32,
        /// Whether that lab is alive.
        alive: bool,
    },
    /// A directory that others could use to mislead this program.
    #[error("{} cannot be used: {why}; remove it or set XDG_RUNTIME_DIR", path.display())]
    NotOurs {
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The file of a lab makes no sense.
    #[error("{} is not the state of a lab: {why}; look at it and remove it", path.display())]
    BadState {
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The process that is to hold a lab has not come to do so.
    #[error("cannot bring up the lab: {why}")]
    Holder {
        /// What it said, or how it ended.
        why: String,
    },
    /// `/sys` shows the devices of another network namespace than this process is in.
    #[error(
        "/sys shows the devices of another network namespace, as after nsenter --net, and another sysfs \
         cannot be mounted ({why}): run linerate as root, outside of the namespace, with --netns NAME|PID|PATH"
    )]
    OtherSysfs {
        /// Why none can be mounted.
        why: String,
    },
    /// There is no sysfs that shows the host's network namespace.
    #[error("lab host {host} has no /sys of its own: {why}")]
    NoSysfs {
        host: String,
        /// Every way tried and what each said.
        why: String,
    },
}

impl LabError {
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }

    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Self {
        Self::File { what, path: path.into(), source: source.into() }
    }
}

fn listed(intro: &str, names: &[String]) -> String {
    if names.is_empty() { "none is".to_owned() } else { format!("{intro} {}", names.join(", ")) }
}

/// Tells what went wrong where no result can carry it, as when a lab ends, on standard error.
pub(crate) fn warn(text: &str) {
    use std::io::Write as _;
    // In one write, so that it is not mixed with others' lines; nobody may be there to read it.
    let _ = std::io::stderr().write_all(format!("linerate: {text}\n").as_bytes());
}
