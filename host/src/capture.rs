//! Captures: all that was read of a host, in one file or a directory, to be read again elsewhere with the same result.
//!
//! A capture is a tree with `proc`, `sys`, and in `calls` what the kernel answered that is no file; a second reading is
//! below `later`. `capture.json` says what it is, and holds what a tree of files cannot show: what could not be read,
//! links, and directories that held more than was read of them. In a single file all that is a tar archive under zstd.

mod anonymous;
mod archive;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::recording::{RecordedFailure, RecordedResult};
use crate::{Host, HostRecording, Scope};

pub use anonymous::anonymise;
pub use archive::{read_tar, write};

/// The schema of `capture.json`.
pub const SCHEMA: &str = "linerate.capture/1";
const SCHEMA_NAME: &str = "linerate.capture/";
const SCHEMA_NUMBER: u32 = 1;

/// The file that says what a capture is.
const ABOUT: &str = "capture.json";
/// The directory of the second reading.
const LATER: &str = "later";

/// A capture that was opened.
#[derive(Debug)]
pub struct OpenedCapture {
    /// What it says of itself; none for a tree that somebody put together.
    pub about: Option<CaptureInfo>,
    /// The host as it was first.
    pub first: Host,
    /// The host as it was later; none where it was read once.
    pub later: Option<Host>,
}

/// What a capture says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaptureInfo {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the program that wrote it.
    pub version: String,
    /// When the last reading began, in seconds since 1970.
    pub unix_seconds: u64,
    /// The host's kernel; none where it was not to be read.
    #[serde(default)]
    pub kernel: Option<String>,
    /// Whether addresses and names were replaced.
    #[serde(default)]
    pub anonymous: bool,
    /// What was looked at.
    #[serde(default)]
    pub scope: Scope,
    /// What the files of each reading do not show, the first reading first.
    #[serde(default)]
    pub readings: Vec<CaptureExtras>,
}

/// What a tree of files cannot show of a reading.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaptureExtras {
    /// Files that could not be read, without those that are not there.
    pub unreadable: BTreeMap<String, RecordedFailure>,
    /// Symbolic links.
    pub links: BTreeMap<String, RecordedResult<String>>,
    /// Directories of which less is in the tree than they held.
    pub directories: BTreeMap<String, RecordedResult<Vec<String>>>,
}

/// Why a capture cannot be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file or directory cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// The system's reason, or the archive's.
        source: io::Error,
    },
    /// It holds what no capture holds.
    #[error("{path}: {reason}")]
    Garbled {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A later version of linerate wrote it.
    #[error("{path}: its schema is {schema}, and this program reads {SCHEMA}: a newer linerate can read it")]
    Newer {
        /// Which.
        path: PathBuf,
        /// Its schema.
        schema: String,
    },
}

impl OpenedCapture {
    /// Opens a directory or an archive.
    ///
    /// # Errors
    /// [`CaptureError`], with the path.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let fault = |fault: CaptureFault| fault.at(path);
        let metadata = std::fs::metadata(path).map_err(|source| fault(source.into()))?;
        if metadata.is_dir() {
            Self::directory(path).map_err(fault)
        } else {
            Self::archive(path).map_err(fault)
        }
    }

    fn directory(path: &Path) -> Result<Self, CaptureFault> {
        let about = match crate::root::read_file(&path.join(ABOUT)) {
            Ok(text) => Some(about(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let later = path.join(LATER);
        let is_there = later.is_dir();
        if about.is_none() && !path.join("proc").is_dir() && !path.join("sys").is_dir() {
            return Err(CaptureFault::Garbled("neither proc nor sys nor capture.json is in it".to_owned()));
        }
        let mut asides = about.as_ref().map(|about| about.readings.clone()).unwrap_or_default().into_iter();
        let mut host = |path: PathBuf| Host::captured_with(path, asides.next().unwrap_or_default());
        Ok(Self { first: host(path.to_owned()), later: is_there.then(|| host(later)), about })
    }

    fn archive(path: &Path) -> Result<Self, CaptureFault> {
        let decoder = zstd::Decoder::new(File::open(path)?)
            .map_err(|error| CaptureFault::Garbled(format!("no zstd archive: {error}")))?;
        let (about, recordings) = read_tar(decoder)?;
        let mut hosts = recordings.into_iter().map(Host::recorded);
        let first = hosts.next().unwrap_or_else(|| Host::recorded(HostRecording::new()));
        Ok(Self { about, first, later: hosts.next() })
    }
}

impl CaptureExtras {
    /// What a tree with the files of this recording would not show.
    fn of(recording: &HostRecording) -> Self {
        let unreadable = recording.files.iter().filter_map(|(path, kept)| match kept {
            RecordedResult::Failed(failure) if !failure.is_missing() => Some((path.clone(), failure.clone())),
            _ => None,
        });
        let links = recording.links.iter().filter(|(_, kept)| match kept {
            RecordedResult::Read(_) => true,
            RecordedResult::Failed(failure) => !failure.is_missing(),
        });
        let directories = recording.directories.iter().filter(|(path, kept)| match kept {
            // A tree of files has no empty directory.
            RecordedResult::Read(names) => names.is_empty() || *names != recording.names_of_files(path),
            RecordedResult::Failed(failure) => !failure.is_missing(),
        });
        Self {
            unreadable: unreadable.collect(),
            links: links.map(|(path, kept)| (path.clone(), kept.clone())).collect(),
            directories: directories.map(|(path, kept)| (path.clone(), kept.clone())).collect(),
        }
    }

    /// Adds to a recording of the files what they do not show.
    fn complete(self, recording: &mut HostRecording) {
        recording.files.extend(
            self.unreadable.into_iter().map(|(path, failure)| (path, RecordedResult::Failed(failure))),
        );
        recording.links.extend(self.links);
        recording.directories.extend(self.directories);
    }
}

/// What is wrong with a capture whose path the caller knows.
#[derive(Debug)]
pub enum CaptureFault {
    /// It cannot be read or written.
    Io(io::Error),
    /// It holds what no capture holds.
    Garbled(String),
    /// A later version of linerate wrote it: its schema.
    Newer(String),
}

impl CaptureFault {
    fn at(self, path: &Path) -> CaptureError {
        let path = path.to_owned();
        match self {
            CaptureFault::Io(source) => CaptureError::Io { path, source },
            CaptureFault::Garbled(reason) => CaptureError::Garbled { path, reason },
            CaptureFault::Newer(schema) => CaptureError::Newer { path, schema },
        }
    }
}

impl From<io::Error> for CaptureFault {
    fn from(error: io::Error) -> Self {
        CaptureFault::Io(error)
    }
}

/// Reads `capture.json`. Its schema is looked at first: of a later one nothing else can be understood.
fn about(text: &[u8]) -> Result<CaptureInfo, CaptureFault> {
    #[derive(Deserialize)]
    struct CaptureSchema {
        schema: String,
    }
    let garbled = |error: serde_json::Error| CaptureFault::Garbled(format!("{ABOUT}: {error}"));
    let CaptureSchema { schema } = serde_json::from_slice(text).map_err(garbled)?;
    match schema.strip_prefix(SCHEMA_NAME).and_then(|number| number.parse::<u32>().ok()) {
        Some(SCHEMA_NUMBER) => serde_json::from_slice(text).map_err(garbled),
        Some(later) if later > SCHEMA_NUMBER => Err(CaptureFault::Newer(schema)),
        _ => Err(CaptureFault::Garbled(format!("{ABOUT}: its schema is '{schema}', not {SCHEMA}"))),
    }
}

#[cfg(test)]
mod tests;
