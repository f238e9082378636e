//! Recorded snapshots, one JSON line each.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;

use crate::HostError;
use crate::live::Snapshot;
use crate::live::snapshot::SCHEMA;

// A longer line was not written by linerate.
const LONGEST_LINE: u64 = 64 << 20;

/// Recorded snapshots in order, at least one.
#[derive(Debug, Clone)]
pub struct SnapshotRecording {
    snapshots: Vec<Snapshot>,
    /// Whether the last line is incomplete, for example because its writer was killed.
    is_cut: bool,
}

impl SnapshotRecording {
    /// Reads a recording without an incomplete last line.
    pub fn open(path: &Path) -> Result<Self, HostError> {
        let read_error = |source| HostError::Read { path: path.display().to_string(), source };
        Self::read(BufReader::new(File::open(path).map_err(read_error)?), path)
    }

    /// Reads from any reader; `path` is for errors.
    pub fn read(mut reader: impl BufRead, path: &Path) -> Result<Self, HostError> {
        let path = || path.display().to_string();
        let garbled = |reason| HostError::Garbled { path: path(), reason };
        let mut snapshots = Vec::new();
        let mut is_cut = false;
        for line in 1.. {
            let mut bytes = Vec::new();
            let read_result = io::Read::take(&mut reader, LONGEST_LINE).read_until(b'\n', &mut bytes);
            if read_result.map_err(|source| HostError::Read { path: path(), source })? == 0 {
                break;
            }
            let is_complete = bytes.last() == Some(&b'\n');
            match snapshot(&bytes) {
                Ok(snapshot) => snapshots.push(snapshot),
                Err(_) if !is_complete && !snapshots.is_empty() => is_cut = true,
                Err(reason) => return Err(garbled(format!("line {line}: {reason}"))),
            }
        }
        if snapshots.is_empty() {
            let reason = "no snapshot in it: only files of 'linerate top --record' can be read";
            Err(garbled(reason.to_owned()))
        } else {
            Ok(Self { snapshots, is_cut })
        }
    }

    pub fn snapshots(&self) -> &[Snapshot] {
        &self.snapshots
    }

    /// Whether the last line was incomplete and was left out.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }
}

fn snapshot(line: &[u8]) -> Result<Snapshot, String> {
    #[derive(Deserialize)]
    struct NamedDocument {
        schema: String,
    }
    #[derive(Deserialize)]
    struct SnapshotDocument {
        result: Snapshot,
    }
    let header: NamedDocument = serde_json::from_slice(line)
        .map_err(|_| "no snapshot: only files of 'linerate top --record' can be read".to_owned())?;
    if header.schema != SCHEMA {
        return Err(format!("its schema is {}, and this program reads {SCHEMA}", header.schema));
    }
    let document = serde_json::from_slice::<SnapshotDocument>(line);
    document.map(|document| document.result).map_err(|error| format!("incomplete snapshot: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::{LiveHost, SnapshotSource};
    use crate::{Host, Scope};

    fn line() -> String {
        let host = Host::scripted([("/proc/stat", "cpu0 1 0 1 1 0 0 1 0\n"), ("/proc/uptime", "3 1\n")]);
        let snapshot = LiveHost::open(SnapshotSource::Live(host), Scope::default()).refresh();
        format!("{}\n", serde_json::json!({"schema": SCHEMA, "result": snapshot}))
    }

    fn read(text: &str) -> Result<SnapshotRecording, HostError> {
        SnapshotRecording::read(text.as_bytes(), Path::new("x.jsonl"))
    }

    #[test]
    fn truncated_last_line_is_ignored_and_earlier_garbage_is_an_error() {
        let line = line();
        let recording = read(&format!("{line}{line}{}", &line[..line.len() / 2])).expect("read");
        assert_eq!((recording.snapshots().len(), recording.is_cut()), (2, true));
        let error = read(&format!("{line}{{}}\n{line}")).expect_err("garbled").to_string();
        assert!(error.starts_with("x.jsonl: line 2: no snapshot"), "{error}");
        let error = read(&line.replace(SCHEMA, "linerate.top/9")).expect_err("newer").to_string();
        assert!(error.contains("its schema is linerate.top/9"), "{error}");
        let error = read("").expect_err("empty").to_string();
        assert!(error.starts_with("x.jsonl: no snapshot in it"), "{error}");
    }
}
