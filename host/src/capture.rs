//! Captures: everything that was read from a host, in one file or directory, so that another
//! machine gives the same result.
//!
//! A capture is a tree with `proc` and `sys`, and kernel answers that are not files in `calls`; a
//! second reading is in `later`. `capture.json` describes the capture and records details that a
//! tree of files cannot: failed reads, links, and directories that were not read completely. A
//! single-file capture is a tar archive compressed with gzip.

mod anonymous;
mod archive;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};

use crate::recording::{RecordedFailure, RecordedResult};
use crate::{Host, HostRecording, Scope};

pub use anonymous::anonymise;
pub use archive::{read_tar, write};

pub const SCHEMA: &str = "linerate.capture/1";
const SCHEMA_NAME: &str = "linerate.capture/";
const SCHEMA_NUMBER: u32 = 1;

// First bytes of a zstd frame (RFC 8878, section 3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

const ABOUT: &str = "capture.json";
const LATER: &str = "later";

#[derive(Debug)]
pub struct OpenedCapture {
    /// `None` for a tree without `capture.json`.
    pub about: Option<CaptureInfo>,
    pub first: Host,
    /// `None` if the host was read once.
    pub later: Option<Host>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaptureInfo {
    pub schema: String,
    pub version: String,
    /// When the last reading began, in seconds since 1970.
    pub unix_seconds: u64,
    #[serde(default)]
    pub kernel: Option<String>,
    /// Whether addresses and names were replaced.
    #[serde(default)]
    pub anonymous: bool,
    #[serde(default)]
    pub scope: Scope,
    /// One item per reading, in order.
    #[serde(default)]
    pub readings: Vec<CaptureExtras>,
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

#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: {reason}")]
    Garbled { path: PathBuf, reason: String },
    #[error("{path}: its schema is {schema}, and this program reads {SCHEMA}: a newer linerate can read it")]
    Newer { path: PathBuf, schema: String },
}

impl OpenedCapture {
    /// Opens a directory or an archive.
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
        let mut file = File::open(path)?;
        let mut start = Vec::new();
        file.by_ref().take(4).read_to_end(&mut start)?;
        if start == ZSTD_MAGIC {
            let advice = "unpack it with 'tar --zstd -xf' and give the directory";
            return Err(CaptureFault::Garbled(format!("a capture of linerate 0.1 under zstd: {advice}")));
        }
        let (about, recordings) = read_tar(GzDecoder::new(start.as_slice().chain(file)))?;
        let mut hosts = recordings.into_iter().map(Host::recorded);
        let first = hosts.next().unwrap_or_else(|| Host::recorded(HostRecording::new()));
        Ok(Self { about, first, later: hosts.next() })
    }
}

impl CaptureExtras {
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

    fn complete(self, recording: &mut HostRecording) {
        recording.files.extend(
            self.unreadable.into_iter().map(|(path, failure)| (path, RecordedResult::Failed(failure))),
        );
        recording.links.extend(self.links);
        recording.directories.extend(self.directories);
    }
}

#[derive(Debug)]
pub enum CaptureFault {
    Io(io::Error),
    Garbled(String),
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

// Reads `capture.json`. Checks the schema first, because nothing else of a later one can be
// understood.
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
