//! Why a journal cannot be read or written.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("{path}: cannot {what}: {source}")]
    File {
        path: String,
        /// The operation that failed.
        what: &'static str,
        source: io::Error,
    },
    /// There is no space for the records that must be written before any change.
    #[error(
        "{path}: no space for {bytes} bytes of journal ({source}): free some, or give another --state-dir"
    )]
    NoSpace { path: String, bytes: u64, source: io::Error },
    /// Another process holds the lock for appending.
    #[error("linerate is changing settings already{}: wait until it has ended", process(*.pid))]
    Busy {
        /// Its process id. `None` if the lock does not report it.
        pid: Option<u32>,
    },
    /// A user who can write the file could make root write any setting.
    #[error("{path}: {why}: not used, because its values would be written as root")]
    NotOurs { path: String, why: String },
    /// A line is whole, but this version does not know its content.
    #[error(
        "{path} line {line}: made by a newer linerate ({why}): use that version to undo, or upgrade this one"
    )]
    Newer {
        path: String,
        /// The line, from 1.
        line: u64,
        why: String,
    },
    /// An earlier write failed, so the content of the disk is uncertain.
    #[error("{path}: an earlier write failed, nothing more is written by this process")]
    Broken { path: String },
}

fn process(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}
