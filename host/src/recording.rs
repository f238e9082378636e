//! What was read of a host, kept so that it can be read again: the files, links and answers of a capture.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

/// What was read of a host, by absolute path.
///
/// Answers of the kernel that are no files are kept as JSON below `/calls`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording {
    entries: BTreeMap<String, Entry>,
}

/// What a path gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A file's content.
    File(Vec<u8>),
    /// A symbolic link's target.
    Link(String),
    /// The names in a directory.
    Directory(Vec<String>),
    /// It could not be read.
    Failed(Failure),
}

/// Why something could not be read, so that it can be said again in the same words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Failure {
    /// The system's error number.
    Errno {
        /// As in errno(3).
        errno: i32,
    },
    /// Other words.
    Text {
        /// What was said.
        error: String,
    },
}

impl Recording {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Everything in it, by path.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// What a path gave.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// Keeps what a path gave.
    pub fn insert(&mut self, path: impl Into<String>, entry: Entry) {
        self.entries.insert(path.into(), entry);
    }

    pub(crate) fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        match self.entries.get(path) {
            Some(Entry::File(content)) => Ok(content.clone()),
            Some(Entry::Failed(failure)) => Err(failure.error()),
            Some(Entry::Directory(_)) => Err(io::ErrorKind::IsADirectory.into()),
            Some(Entry::Link(_)) | None => Err(not_found()),
        }
    }

    pub(crate) fn read_link(&self, path: &str) -> io::Result<String> {
        match self.entries.get(path) {
            Some(Entry::Link(target)) => Ok(target.clone()),
            Some(Entry::Failed(failure)) => Err(failure.error()),
            Some(_) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
            None => Err(not_found()),
        }
    }

    /// Names in a directory: those it was seen to hold, or where it was not listed, those of what was read in it.
    pub(crate) fn list(&self, path: &str) -> io::Result<Vec<String>> {
        match self.entries.get(path) {
            Some(Entry::Directory(names)) => return Ok(names.clone()),
            Some(Entry::Failed(failure)) => return Err(failure.error()),
            _ => {}
        }
        let prefix = format!("{}/", path.trim_end_matches('/'));
        let below = self.entries.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        let mut names: Vec<String> = below
            .filter_map(|(path, _)| path.get(prefix.len()..)?.split('/').next().map(str::to_owned))
            .collect();
        names.dedup();
        if names.is_empty() { Err(not_found()) } else { Ok(names) }
    }
}

impl Failure {
    pub(crate) fn of(error: &io::Error) -> Self {
        error
            .raw_os_error()
            .map_or_else(|| Failure::Text { error: error.to_string() }, |errno| Failure::Errno { errno })
    }

    pub(crate) fn error(&self) -> io::Error {
        match self {
            Failure::Errno { errno } => io::Error::from_raw_os_error(*errno),
            Failure::Text { error } => io::Error::other(error.clone()),
        }
    }
}

impl From<&io::Error> for Failure {
    fn from(error: &io::Error) -> Self {
        Failure::of(error)
    }
}

impl From<&serde_json::Error> for Failure {
    fn from(error: &serde_json::Error) -> Self {
        Failure::Text { error: error.to_string() }
    }
}

/// As the system says it.
fn not_found() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_listed_has_the_names_of_what_was_read() {
        let mut recording = Recording::new();
        recording.insert("/sys/class/net/eth0/mtu", Entry::File(b"1500\n".to_vec()));
        recording.insert("/sys/class/net/eth0/device/driver", Entry::Link("../ixgbe".into()));
        recording.insert("/proc/1", Entry::Directory(vec!["comm".into(), "fd".into()]));
        assert_eq!(recording.list("/sys/class/net/eth0").expect("names"), ["device", "mtu"]);
        assert_eq!(recording.list("/proc/1/").expect_err("no such name").raw_os_error(), Some(libc::ENOENT));
        assert_eq!(recording.list("/proc/1").expect("names"), ["comm", "fd"]);
        assert_eq!(recording.read_link("/sys/class/net/eth0/device/driver").expect("a link"), "../ixgbe");
    }

    #[test]
    fn a_failure_says_the_same_again() {
        for error in [io::Error::from_raw_os_error(libc::EACCES), io::Error::other("too short")] {
            let text = serde_json::to_string(&Failure::of(&error)).expect("written");
            let again: Failure = serde_json::from_str(&text).expect("read");
            assert_eq!(again.error().to_string(), error.to_string());
        }
    }
}
