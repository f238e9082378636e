//! A recording of reads: the files, links, directories and answers of a capture.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

/// Reads by absolute path.
///
/// A path can be read as file, link or directory, each with its own result: a link to a directory
/// is both. Kernel answers that are not files are JSON below `/calls`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostRecording {
    pub(crate) files: BTreeMap<String, RecordedResult<Vec<u8>>>,
    pub(crate) links: BTreeMap<String, RecordedResult<String>>,
    pub(crate) directories: BTreeMap<String, RecordedResult<Vec<String>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedEntry {
    File(Vec<u8>),
    Link(String),
    Directory(Vec<String>),
    Failed(RecordedFailure),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RecordedResult<T> {
    Failed(RecordedFailure),
    Read(T),
}

/// A failed read that can be repeated in the same words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RecordedFailure {
    Errno {
        /// As in errno(3).
        errno: i32,
    },
    Text {
        error: String,
    },
}

impl HostRecording {
    pub fn new() -> Self {
        Self::default()
    }

    /// With these files, by absolute path.
    pub fn from_files<P: Into<String>, C: Into<Vec<u8>>>(files: impl IntoIterator<Item = (P, C)>) -> Self {
        let mut recording = Self::default();
        files.into_iter().for_each(|(path, content)| recording.insert_file(path, content));
        recording
    }

    /// Adds links, by absolute path.
    #[must_use]
    pub fn with_links<P: Into<String>, T: Into<String>>(
        mut self,
        links: impl IntoIterator<Item = (P, T)>,
    ) -> Self {
        let links = links.into_iter();
        self.links.extend(links.map(|(path, target)| (path.into(), RecordedResult::Read(target.into()))));
        self
    }

    /// Includes kernel answers.
    pub fn files(&self) -> usize {
        self.files.values().filter(|result| matches!(result, RecordedResult::Read(_))).count()
    }

    pub fn insert(&mut self, path: impl Into<String>, entry: RecordedEntry) {
        let path = path.into();
        match entry {
            RecordedEntry::File(content) => drop(self.files.insert(path, RecordedResult::Read(content))),
            RecordedEntry::Link(target) => drop(self.links.insert(path, RecordedResult::Read(target))),
            RecordedEntry::Directory(names) => {
                drop(self.directories.insert(path, RecordedResult::Read(names)));
            }
            RecordedEntry::Failed(failure) => {
                self.files.insert(path.clone(), RecordedResult::Failed(failure.clone()));
                self.links.insert(path.clone(), RecordedResult::Failed(failure.clone()));
                self.directories.insert(path, RecordedResult::Failed(failure));
            }
        }
    }

    pub fn insert_file(&mut self, path: impl Into<String>, content: impl Into<Vec<u8>>) {
        self.insert(path, RecordedEntry::File(content.into()));
    }

    pub(crate) fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        match self.files.get(path) {
            Some(result) => result.to_result(),
            None if self.has_children(path) => Err(io::Error::from_raw_os_error(libc::EISDIR)),
            None => Err(not_found()),
        }
    }

    pub(crate) fn read_link(&self, path: &str) -> io::Result<String> {
        match self.links.get(path) {
            Some(result) => result.to_result(),
            None if self.files.contains_key(path) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
            None => Err(not_found()),
        }
    }

    /// Names in a directory as they were listed. If it was not listed, the names that were read in
    /// it.
    pub(crate) fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let path = path.trim_end_matches('/');
        if let Some(result) = self.directories.get(path) {
            return result.to_result();
        }
        let prefix = format!("{path}/");
        let mut names = children(&self.files, &prefix);
        names.extend(children(&self.links, &prefix));
        names.extend(children(&self.directories, &prefix));
        names.sort();
        names.dedup();
        if names.is_empty() { Err(not_found()) } else { Ok(names) }
    }

    // Names in a directory that a tree of readable files would show.
    pub(crate) fn names_of_files(&self, path: &str) -> Vec<String> {
        children(&self.files, &format!("{path}/"))
    }

    fn has_children(&self, path: &str) -> bool {
        self.directories.contains_key(path) || !self.names_of_files(path).is_empty()
    }
}

/// Direct children of a directory that could be read.
fn children<T>(entries: &BTreeMap<String, RecordedResult<T>>, prefix: &str) -> Vec<String> {
    let mut names: Vec<String> = entries
        .range(prefix.to_owned()..)
        .take_while(|(path, _)| path.starts_with(prefix))
        .filter(|(_, result)| matches!(result, RecordedResult::Read(_)))
        .filter_map(|(path, _)| path.get(prefix.len()..)?.split('/').next().map(str::to_owned))
        .collect();
    names.dedup();
    names
}

impl<T: Clone> RecordedResult<T> {
    pub(crate) fn to_result(&self) -> io::Result<T> {
        match self {
            RecordedResult::Read(value) => Ok(value.clone()),
            RecordedResult::Failed(failure) => Err(failure.error()),
        }
    }

    pub(crate) fn of(result: &io::Result<T>) -> Self {
        match result {
            Ok(value) => RecordedResult::Read(value.clone()),
            Err(error) => RecordedResult::Failed(RecordedFailure::of(error)),
        }
    }
}

impl RecordedFailure {
    pub(crate) fn of(error: &io::Error) -> Self {
        error.raw_os_error().map_or_else(
            || RecordedFailure::Text { error: error.to_string() },
            |errno| RecordedFailure::Errno { errno },
        )
    }

    pub(crate) fn error(&self) -> io::Error {
        match self {
            RecordedFailure::Errno { errno } => io::Error::from_raw_os_error(*errno),
            RecordedFailure::Text { error } => io::Error::other(error.clone()),
        }
    }

    /// Whether the path does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, RecordedFailure::Errno { errno } if *errno == libc::ENOENT)
    }
}

fn not_found() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

/// The parts of a reading that a tree of files cannot show.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaptureExtras {
    /// Files that could not be read, except missing ones.
    pub unreadable: BTreeMap<String, RecordedFailure>,
    pub links: BTreeMap<String, RecordedResult<String>>,
    /// Directories that contained more than the tree does.
    pub directories: BTreeMap<String, RecordedResult<Vec<String>>>,
}

impl CaptureExtras {
    pub(crate) fn of(recording: &HostRecording) -> Self {
        let unreadable = recording.files.iter().filter_map(|(path, result)| match result {
            RecordedResult::Failed(failure) if !failure.is_missing() => Some((path.clone(), failure.clone())),
            _ => None,
        });
        let links = recording.links.iter().filter(|(_, result)| match result {
            RecordedResult::Read(_) => true,
            RecordedResult::Failed(failure) => !failure.is_missing(),
        });
        let directories = recording.directories.iter().filter(|(path, result)| match result {
            // A tree of files has no empty directory.
            RecordedResult::Read(names) => names.is_empty() || *names != recording.names_of_files(path),
            RecordedResult::Failed(failure) => !failure.is_missing(),
        });
        Self {
            unreadable: unreadable.collect(),
            links: links.map(|(path, result)| (path.clone(), result.clone())).collect(),
            directories: directories.map(|(path, result)| (path.clone(), result.clone())).collect(),
        }
    }

    pub(crate) fn complete(self, recording: &mut HostRecording) {
        recording.files.extend(
            self.unreadable.into_iter().map(|(path, failure)| (path, RecordedResult::Failed(failure))),
        );
        recording.links.extend(self.links);
        recording.directories.extend(self.directories);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unrecorded_directories_list_their_recorded_entries() {
        let mut recording = HostRecording::from_files([("/sys/class/net/eth0/mtu", "1500\n")])
            .with_links([("/sys/class/net/eth0/device/driver", "../ixgbe")]);
        let names = vec!["comm".to_owned(), "fd".to_owned()];
        recording.directories.insert("/proc/1".into(), RecordedResult::Read(names.clone()));
        recording.files.insert(
            "/proc/2/comm".into(),
            RecordedResult::Failed(RecordedFailure::Errno { errno: libc::EACCES }),
        );
        assert_eq!(recording.list("/sys/class/net/eth0").expect("names"), ["device", "mtu"]);
        assert_eq!(recording.list("/proc/1/").expect("names"), names);
        assert_eq!(recording.list("/proc/2").expect_err("not there").raw_os_error(), Some(libc::ENOENT));
        assert_eq!(recording.read_link("/sys/class/net/eth0/device/driver").expect("a link"), "../ixgbe");
        let error = recording.read("/sys/class/net/eth0").expect_err("a directory");
        assert_eq!(error.raw_os_error(), Some(libc::EISDIR));
    }

    #[test]
    fn recorded_link_to_a_directory_is_readable_as_link_and_directory() {
        let mut recording = HostRecording::new().with_links([("/sys/class/net/eth0", "../../devices/eth0")]);
        recording.directories.insert("/sys/class/net/eth0".into(), RecordedResult::Read(vec!["mtu".into()]));
        assert_eq!(recording.read_link("/sys/class/net/eth0").expect("a link"), "../../devices/eth0");
        assert_eq!(recording.list("/sys/class/net/eth0").expect("names"), ["mtu"]);
    }

    #[test]
    fn recorded_failures_keep_their_message_through_json() {
        for error in [io::Error::from_raw_os_error(libc::EACCES), io::Error::other("too short")] {
            let text = serde_json::to_string(&RecordedFailure::of(&error)).expect("written");
            let again: RecordedFailure = serde_json::from_str(&text).expect("read");
            assert_eq!(again.error().to_string(), error.to_string());
        }
    }
}
