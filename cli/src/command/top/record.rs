//! Snapshots as JSON, and the file that records them.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use linerate_host::live::Snapshot;
use linerate_host::live::snapshot::SCHEMA;

use crate::envelope::Envelope;
use crate::origin::HostSummary;
use crate::output;

/// The document that `--json` prints, and `--record` writes as one line.
pub(super) fn envelope(snapshot: &Snapshot) -> Envelope<&Snapshot> {
    let host = HostSummary {
        name: snapshot.host.name.value().cloned(),
        kernel: snapshot.host.kernel.value().cloned(),
        ..HostSummary::default()
    };
    Envelope::with_schema(SCHEMA, host, snapshot.unix_seconds.map(|seconds| seconds as u64), snapshot)
}

/// A file that is appended to.
#[derive(Debug)]
pub(super) struct RecordFile {
    file: File,
    path: PathBuf,
}

impl RecordFile {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let open_error = || format!("cannot record in {}", path.display());
        let mut options = OpenOptions::new();
        let mut file = output::open_in_place(path, options.read(true).append(true).create(true))?;
        let mut last_byte = [b'\n'];
        if file.metadata().with_context(open_error)?.is_file() && file.seek(SeekFrom::End(-1)).is_ok() {
            file.read_exact(&mut last_byte).with_context(open_error)?;
        }
        // Appending after an incomplete line would make both lines unreadable.
        ensure!(
            last_byte == [b'\n'],
            "{}: it ends in the middle of a line, as when its writer was killed: name another file",
            path.display()
        );
        Ok(Self { file, path: path.to_owned() })
    }

    // One write per snapshot, so that a concurrent reader sees whole lines.
    pub(super) fn write(&mut self, snapshot: &Snapshot) -> Result<()> {
        let mut line =
            serde_json::to_vec(&envelope(snapshot)).context("a snapshot cannot be written as JSON")?;
        line.push(b'\n');
        self.file.write_all(&line).with_context(|| format!("cannot record in {}", self.path.display()))
    }
}
