//! The generator's counts, from the file that `linerate load` wrote.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use linerate_load::report::LoadReport;
use linerate_trace::drops::GeneratorSaid;

use crate::envelope::Envelope;

/// A file that a run of `load` writes while packets are counted.
pub(crate) struct LoadFile {
    pub(super) name: String,
    /// When counting began.
    begun: SystemTime,
    // Modification time of the file when counting began; `None` if there was no such file.
    before: Option<SystemTime>,
}

impl LoadFile {
    /// Call before packets are counted.
    pub(super) fn expected(name: &str) -> Result<Self> {
        let before = fs::metadata(name).and_then(|metadata| metadata.modified()).ok();
        ensure!(
            !fs::metadata(name).is_ok_and(|metadata| metadata.is_dir()),
            "--load {name}: it is a directory"
        );
        Ok(Self { name: name.to_owned(), begun: SystemTime::now(), before })
    }

    /// Reads the counts after the load has ended.
    pub(super) fn read(&self) -> Result<GeneratorSaid> {
        let name = &self.name;
        let read_error = || format!("cannot read --load {name}: the load has to end before counting does");
        let modified =
            fs::metadata(name).and_then(|metadata| metadata.modified()).with_context(read_error)?;
        ensure!(
            self.before != Some(modified),
            "--load {name} is older than this run: have linerate load write it meanwhile"
        );
        let envelope = Envelope::<LoadReport>::read(Path::new(name)).context("--load")?;
        let outcome = &envelope.result.outcome;
        let counting_start = self.begun.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        ensure!(
            u128::from(outcome.started_realtime_ns) >= counting_start.as_nanos(),
            "--load {name}: that load began before packets were counted, so that the two cannot agree"
        );
        Ok(GeneratorSaid {
            sent: outcome.sent,
            answered: outcome.answered,
            lost: outcome.lost,
            late: outcome.late,
            duplicate: outcome.duplicate,
            unsolicited: outcome.unsolicited.saturating_add(outcome.corrupt),
        })
    }
}
