//! The input of a snapshot.

use crate::counter_sample::CounterSample;
use crate::live::snapshot::LiveFinding;
use crate::{CpuSet, PacketPath};

pub(crate) struct SnapshotInput<'a> {
    pub(crate) path: &'a PacketPath,
    // `None` for the first snapshot.
    pub(crate) before: Option<&'a CounterSample>,
    pub(crate) now: &'a CounterSample,
    pub(crate) seconds: Option<f64>,
    pub(crate) findings: &'a [LiveFinding],
}

pub(super) fn list(cpus: &CpuSet) -> String {
    if cpus.is_empty() { String::new() } else { cpus.to_string() }
}
