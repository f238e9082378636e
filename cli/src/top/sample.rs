//! Snapshots of `linerate top` for tests.

use linerate_host::live::snapshot::{HostLine, PathTotals, SnapshotCost};
use linerate_host::live::{LiveHost, Snapshot, SnapshotSource};
use linerate_host::{Known, OpenedCapture, Scope};

use crate::fixture_hosts;

/// A host of four CPUs and an interface with two queues, one of which loses packets.
pub(crate) fn small() -> Snapshot {
    serde_json::from_str(include_str!("sample.json")).expect("the fixture is a snapshot")
}

/// A host without any values.
pub(crate) fn empty() -> Snapshot {
    let reason = "cannot read /proc/stat: Permission denied";
    Snapshot {
        unix_seconds: None,
        interval_seconds: None,
        host: HostLine { name: Known::unknown(reason), kernel: Known::unknown(reason), nodes: Vec::new() },
        interfaces: Vec::new(),
        cpus: Known::unknown(reason),
        services: Known::Value(Vec::new()),
        threads: Known::unknown("cannot list /proc: Permission denied"),
        findings: Vec::new(),
        totals: PathTotals::default(),
        unknown: Vec::new(),
        cost: SnapshotCost::default(),
    }
}

/// The fixture of 128 CPUs and four interfaces of 64 queues.
pub(crate) fn big() -> Snapshot {
    let fixture = linerate_testkit::fixture::fixture("many").expect("a fixture");
    let [first, later] = fixture_hosts::readings(&fixture);
    let source = SnapshotSource::from(OpenedCapture { about: None, first, later: Some(later) });
    LiveHost::open(source, Scope::default()).refresh()
}
