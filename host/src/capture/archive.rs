//! A capture as a tar archive compressed with gzip.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::path::{Component, Path};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Archive, Builder, Entry, EntryType, Header};

use super::info::{ABOUT, CaptureInfo, LATER, parse_info};
use crate::HostRecording;
use crate::recording::{CaptureExtras, RecordedResult};
use crate::root::tree::LARGEST_FILE;

// The limit of an archive's content, ten times the capture of a large host. A few bytes of gzip can
// expand to gigabytes.
const MOST_BYTES: u64 = 512 << 20;
const MOST_ENTRIES: usize = 1_000_000;

// Unit of a tar archive.
const BLOCK: u64 = 512;

const TOO_LARGE: &str = "more than any capture holds";

/// Fails above the limits of [`read_tar`], so that every capture that is written can be read.
pub fn write(output: impl Write, about: &CaptureInfo, readings: &[HostRecording]) -> io::Result<()> {
    let extras = readings.iter().map(CaptureExtras::of).collect();
    let about = CaptureInfo { readings: extras, ..about.clone() };
    let mut writer = ArchiveWriter {
        builder: Builder::new(GzEncoder::new(output, Compression::default())),
        time: about.unix_seconds.unwrap_or(0),
        entries: 0,
        bytes: 2 * BLOCK,
    };
    writer.append(ABOUT, &serde_json::to_vec(&about)?)?;
    for (index, reading) in readings.iter().enumerate() {
        let prefix = if index == 0 { String::new() } else { format!("{LATER}/") };
        for (path, result) in &reading.files {
            if let RecordedResult::Read(content) = result {
                writer.append(&format!("{prefix}{}", path.trim_start_matches('/')), content)?;
            }
        }
    }
    writer.builder.into_inner()?.finish()?.flush()
}

struct ArchiveWriter<W: Write> {
    builder: Builder<GzEncoder<W>>,
    /// Seconds since 1970.
    time: u64,
    entries: usize,
    /// With headers and the end of the archive.
    bytes: u64,
}

impl<W: Write> ArchiveWriter<W> {
    fn append(&mut self, path: &str, content: &[u8]) -> io::Result<()> {
        let length = content.len() as u64;
        self.entries += 1;
        // A name that does not fit into the header has its own entry.
        let header_blocks = if path.len() < 100 { 1 } else { 3 };
        self.bytes += length.next_multiple_of(BLOCK) + header_blocks * BLOCK;
        if self.entries > MOST_ENTRIES || length > LARGEST_FILE || self.bytes > MOST_BYTES {
            return Err(io::Error::other(format!("{path}: {TOO_LARGE}")));
        }
        let mut header = Header::new_gnu();
        header.set_size(length);
        header.set_mode(0o600);
        header.set_mtime(self.time);
        self.builder.append_data(&mut header, path, content)
    }
}

/// Reads a decompressed archive. Rejects archives larger than any capture, and paths that lead out
/// of the archive.
pub fn read_tar(input: impl Read) -> io::Result<(Option<CaptureInfo>, Vec<HostRecording>)> {
    // One byte above the limit, so that a larger archive can be detected.
    let mut archive = Archive::new(input.take(MOST_BYTES + 1));
    let mut reader = ArchiveReader::default();
    for (index, entry) in archive.entries()?.enumerate() {
        if index >= MOST_ENTRIES {
            return Err(io::Error::other(format!("more than {MOST_ENTRIES} entries")));
        }
        reader.read_entry(&mut entry.map_err(|error| archive_error(&error))?)?;
    }
    reader.finish()
}

fn archive_error(error: &io::Error) -> io::Error {
    io::Error::other(format!("no whole archive of a capture: {error}"))
}

#[derive(Default)]
struct ArchiveReader {
    about: Option<CaptureInfo>,
    first: HostRecording,
    later: Option<HostRecording>,
    /// Directories that have their own entry, such as empty ones.
    directories: [BTreeSet<String>; 2],
    bytes: u64,
}

impl ArchiveReader {
    fn read_entry(&mut self, entry: &mut Entry<'_, impl Read>) -> io::Result<()> {
        let name = entry.path()?.into_owned();
        let (is_later, path) = host_path(&name)?;
        match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let content = self.read_content(entry, &name)?;
                if !is_later && path == format!("/{ABOUT}") {
                    self.about = Some(parse_info(&content)?);
                } else {
                    self.recording(is_later).insert_file(path, content);
                }
            }
            EntryType::Symlink => {
                let target = entry.link_name()?.unwrap_or_default().to_string_lossy().into_owned();
                self.recording(is_later).links.insert(path, RecordedResult::Read(target));
            }
            EntryType::Directory => {
                if let Some(directories) = self.directories.get_mut(usize::from(is_later)) {
                    directories.insert(path);
                }
            }
            EntryType::XGlobalHeader => {}
            _ => {
                return Err(io::Error::other(format!(
                    "{}: neither file, link nor directory",
                    name.display()
                )));
            }
        }
        Ok(())
    }

    fn read_content(&mut self, entry: &mut impl Read, name: &Path) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        entry.take(LARGEST_FILE + 1).read_to_end(&mut content).map_err(|error| archive_error(&error))?;
        let length = content.len() as u64;
        self.bytes += length;
        if length > LARGEST_FILE || self.bytes > MOST_BYTES {
            return Err(io::Error::other(format!("{}: {TOO_LARGE}", name.display())));
        }
        Ok(content)
    }

    fn recording(&mut self, is_later: bool) -> &mut HostRecording {
        if is_later { self.later.get_or_insert_default() } else { &mut self.first }
    }

    fn finish(mut self) -> io::Result<(Option<CaptureInfo>, Vec<HostRecording>)> {
        if self.about.is_none() && self.first == HostRecording::default() {
            return Err(io::Error::other("nothing is in it"));
        }
        for (later, directories) in [false, true].into_iter().zip(std::mem::take(&mut self.directories)) {
            let recording = self.recording(later);
            for path in directories {
                // Files of a directory already list it; an empty directory has none.
                if recording.list(&path).is_err() {
                    recording.directories.insert(path, RecordedResult::Read(Vec::new()));
                }
            }
        }
        let mut readings = vec![self.first];
        readings.extend(self.later.filter(|later| *later != HostRecording::default()));
        let extras = self.about.as_ref().map(|about| about.readings.clone()).unwrap_or_default();
        for (reading, extras) in readings.iter_mut().zip(extras) {
            extras.complete(reading);
        }
        Ok((self.about, readings))
    }
}

/// The host path of an entry, and whether it belongs to the later reading.
fn host_path(name: &Path) -> io::Result<(bool, String)> {
    let mut names = Vec::new();
    for component in name.components() {
        match component {
            Component::Normal(part) => match part.to_str() {
                Some(part) => names.push(part),
                None => return Err(io::Error::other(format!("{}: no text", name.display()))),
            },
            Component::CurDir | Component::RootDir => {}
            _ => return Err(io::Error::other(format!("{}: leads out of the archive", name.display()))),
        }
    }
    let is_later = names.first() == Some(&LATER);
    let path: String = names.iter().skip(usize::from(is_later)).flat_map(|name| ["/", name]).collect();
    Ok((is_later, path))
}
