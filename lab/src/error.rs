//! Errors, each with its remedy if there is one.

use std::io;
use std::path::PathBuf;

pub type Result<T, E = LabError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The kernel refused a network namespace.
    #[error(
        "cannot make a network namespace: needs CAP_SYS_ADMIN (run as root), or unprivileged user namespaces: {why}"
    )]
    NoNamespace { why: String },
    /// An option of the lab is out of range.
    #[error("{option} {value} is out of range: {allowed}")]
    OutOfRange { option: &'static str, value: String, allowed: String },
    #[error("lab name {name:?} is not usable: 1 to 32 of a-z, 0-9 and '-', beginning with a letter or digit")]
    BadName { name: String },
    /// A netlink request was refused.
    #[error("{host}: cannot {what}: {source}")]
    Netlink { host: String, what: String, source: io::Error },
    #[error("cannot {what}: {source}")]
    System { what: String, source: io::Error },
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// `read`, `write`, ...
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{host}: {interface} did not come up within {seconds} s")]
    NoCarrier { host: String, interface: String, seconds: u64 },
    /// Code run inside a host panicked.
    #[error("code run in lab host {host} panicked: {message}")]
    Panicked { host: String, message: String },
    #[error(
        "a lab named {name} is up (process {pid}): choose another name, or take it down with `linerate lab down {name}`"
    )]
    NameTaken { name: String, pid: i32 },
    #[error("no lab named {name} is up; {}", join_names("up are", known))]
    NoSuchLab { name: String, known: Vec<String> },
    #[error(
        "lab {name} belongs to a command that is running (process {pid}): end that, or run `linerate lab clean --all`"
    )]
    NotHeld { name: String, pid: i32 },
    #[error("lab {lab} has no host {name}; {}", join_names("its hosts are", known))]
    NoSuchHost { lab: String, name: String, known: Vec<String> },
    #[error(
        "{key} is changed for the lab {name} (process {pid}): {}",
        if *alive { "wait until that has ended" } else { "that was killed, run `linerate lab clean` first" }
    )]
    HostWideTaken { key: String, name: String, pid: i32, alive: bool },
    /// Other users can write to the directory.
    #[error("{} cannot be used: {why}; remove it or set XDG_RUNTIME_DIR", path.display())]
    NotOurs { path: PathBuf, why: &'static str },
    #[error("{} is not the state of a lab: {why}; look at it and remove it", path.display())]
    BadState { path: PathBuf, why: String },
    #[error("cannot bring up the lab: {why}")]
    Holder { why: String },
    /// `/sys` shows the devices of a network namespace that this process is not in.
    #[error(
        "/sys shows the devices of another network namespace, as after nsenter --net, and another sysfs \
         cannot be mounted ({why}): run linerate as root, outside of the namespace, with --netns NAME|PID|PATH"
    )]
    OtherSysfs { why: String },
    /// There is no sysfs that shows the host's network namespace.
    #[error("lab host {host} has no /sys of its own: {why}")]
    NoSysfs { host: String, why: String },
}

impl LabError {
    pub(crate) fn system(operation: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { what: operation.into(), source: source.into() }
    }

    pub(crate) fn file(
        operation: &'static str,
        path: impl Into<PathBuf>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::File { what: operation, path: path.into(), source: source.into() }
    }
}

fn join_names(intro: &str, names: &[String]) -> String {
    if names.is_empty() { "none is".to_owned() } else { format!("{intro} {}", names.join(", ")) }
}

/// Prints a warning to standard error, for code without a result such as the end of a lab.
pub(crate) fn warn(text: &str) {
    use std::io::Write as _;
    // One write, so that lines are not mixed. Standard error may be closed.
    let _ = std::io::stderr().write_all(format!("linerate: {text}\n").as_bytes());
}
