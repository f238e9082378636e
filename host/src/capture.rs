//! Captures: all data that was read from a host, in one file or directory, so that another machine
//! computes the same result.
//!
//! A capture is a tree with `proc` and `sys`, and kernel answers that are not files in `calls`; a
//! second reading is in `later`. `capture.json` describes the capture and records details that a
//! tree of files cannot: failed reads, links, and directories that were not read completely. A
//! single-file capture is a tar archive compressed with gzip.

mod anonymous;
mod archive;
mod info;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

use crate::{Host, HostError, HostRecording};

pub use anonymous::anonymise;
pub use archive::{read_tar, write};
use info::{ABOUT, LATER, parse_info};
pub use info::{CaptureInfo, SCHEMA};

// First bytes of a zstd frame (RFC 8878, section 3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

#[derive(Debug)]
pub struct OpenedCapture {
    /// `None` for a tree without `capture.json`.
    pub about: Option<CaptureInfo>,
    pub first: Host,
    /// `None` if the host was read once.
    pub later: Option<Host>,
}

impl OpenedCapture {
    /// Opens a directory or an archive.
    pub fn open(path: &Path) -> Result<Self, HostError> {
        let capture = match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Self::open_directory(path),
            Ok(_) => Self::open_archive(path),
            Err(error) => Err(error),
        };
        capture.map_err(|error| HostError::Garbled {
            path: path.display().to_string(),
            reason: error.to_string(),
        })
    }

    fn open_directory(path: &Path) -> io::Result<Self> {
        let about = match crate::root::tree::read_file(&path.join(ABOUT)) {
            Ok(text) => Some(parse_info(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let later = path.join(LATER);
        let has_later = later.is_dir();
        if about.is_none() && !path.join("proc").is_dir() && !path.join("sys").is_dir() {
            return Err(io::Error::other("neither proc nor sys nor capture.json is in it"));
        }
        let mut extras = about.as_ref().map(|about| about.readings.clone()).unwrap_or_default().into_iter();
        let mut host = |path: PathBuf| Host::captured_with(path, extras.next().unwrap_or_default());
        Ok(Self { first: host(path.to_owned()), later: has_later.then(|| host(later)), about })
    }

    fn open_archive(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut start = Vec::new();
        file.by_ref().take(4).read_to_end(&mut start)?;
        if start == ZSTD_MAGIC {
            let advice = "unpack it with 'tar --zstd -xf' and give the directory";
            return Err(io::Error::other(format!("a capture of linerate 0.1 under zstd: {advice}")));
        }
        let (about, recordings) = read_tar(GzDecoder::new(start.as_slice().chain(file)))?;
        let mut hosts = recordings.into_iter().map(Host::recorded);
        let first = hosts.next().unwrap_or_else(|| Host::recorded(HostRecording::new()));
        Ok(Self { about, first, later: hosts.next() })
    }
}

#[cfg(test)]
mod tests;
