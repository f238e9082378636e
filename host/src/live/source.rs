//! A host that is read repeatedly.

mod plan;
mod recently_removed;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::counter_sample::{CounterSample, SampleReader};
use crate::diagnosis;
use crate::{Finding, Host, HostView, Known, OpenedCapture, PacketPath, Scope};

use crate::live::build::{self, SnapshotInput};
use crate::live::snapshot::{HostLine, LiveFinding, Snapshot, SnapshotCost};
use plan::{FullReading, ReadingPlan};
use recently_removed::RecentlyRemoved;

#[derive(Debug)]
pub enum SnapshotSource {
    /// The local host: each reading is compared with the previous one.
    Live(Host),
    /// A captured host: each time, its later reading is compared with its first, if it has a later
    /// one.
    Captured(Box<OpenedCapture>),
}

#[derive(Debug)]
pub struct LiveHost {
    source: SnapshotSource,
    scope: Scope,
    path: PacketPath,
    plan: ReadingPlan,
    findings: Vec<LiveFinding>,
    host: HostLine,
    reader: SampleReader,
    before: Option<(Instant, CounterSample)>,
    removed: RecentlyRemoved,
}

impl SnapshotSource {
    pub fn live() -> Self {
        Self::Live(Host::live())
    }

    /// The first of two readings of a capture.
    fn first_of_two(&self) -> Option<&Host> {
        match self {
            Self::Captured(capture) if capture.later.is_some() => Some(&capture.first),
            _ => None,
        }
    }

    fn now(&self) -> &Host {
        match self {
            Self::Live(host) => host,
            Self::Captured(capture) => capture.later.as_ref().unwrap_or(&capture.first),
        }
    }
}

impl From<OpenedCapture> for SnapshotSource {
    fn from(capture: OpenedCapture) -> Self {
        Self::Captured(Box::new(capture))
    }
}

impl LiveHost {
    /// Reads the whole host once.
    pub fn open(source: SnapshotSource, scope: Scope) -> Self {
        let full_reading = FullReading::now();
        let path = PacketPath::observe(source.now(), &scope);
        let before = source.first_of_two().map(|first| PacketPath::observe(first, &scope));
        let view = HostView { now: &path, before: before.as_ref() };
        let findings = build::live_findings(&path, &findings(&view));
        let host = build::host_line(&path, host_name(source.now()));
        let mut reader = SampleReader::new(&path);
        let before = source.first_of_two().map(|first| (full_reading.at, reader.read(first)));
        let plan = ReadingPlan::new(&path, &full_reading);
        Self {
            source,
            scope,
            plan,
            findings,
            host,
            reader,
            before,
            removed: RecentlyRemoved::default(),
            path,
        }
    }

    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The configuration of the path, as of the last full reading.
    pub fn path(&self) -> &PacketPath {
        &self.path
    }

    /// Reads the counters, and builds a snapshot from them and the previous reading.
    pub fn refresh(&mut self) -> Snapshot {
        let start = Instant::now();
        let mut sample = self.reader.read(self.source.now());
        let read_time = start.elapsed();
        if matches!(self.source, SnapshotSource::Live(_))
            && self.plan.is_due(self.source.now(), &self.scope, &sample)
        {
            self.read_whole();
            // New items are read from now on, and have a rate after the next reading.
            sample = self.reader.read(self.source.now());
        }
        let at = Instant::now();
        let readings = SnapshotInput {
            path: &self.path,
            before: self.before.as_ref().map(|(_, sample)| sample),
            now: &sample,
            seconds: self.seconds(at, &sample),
            findings: &self.findings,
        };
        let mut snapshot = readings.snapshot(self.host.clone());
        snapshot.unix_seconds = self.unix_seconds();
        snapshot.cost = SnapshotCost {
            read_seconds: read_time.as_secs_f64(),
            whole_reading_seconds: self.plan.duration().as_secs_f64(),
            whole_reading_age_seconds: self.plan.age().as_secs_f64(),
        };
        if let SnapshotSource::Live(_) = self.source {
            self.removed.add_to(&mut snapshot, at, &self.scope);
            self.before = Some((at, sample));
        }
        if snapshot.services.value().is_some_and(Vec::is_empty) {
            snapshot.services = self.missing_service().map_or(snapshot.services, Known::unknown);
        }
        snapshot
    }

    /// Why the named port or process has no service; `None` if none is named.
    fn missing_service(&self) -> Option<String> {
        self.scope.port.map(u32::from).or(self.scope.pid)?;
        Some(match self.scope.check_sockets(&self.path.socket) {
            Err(error) => error.to_string(),
            Ok(()) => "no UDP socket of that port or process is open, and TCP is not shown".to_owned(),
        })
    }

    fn read_whole(&mut self) {
        let full_reading = FullReading::now();
        let path = PacketPath::observe(self.source.now(), &self.scope);
        let view = HostView::twice(&self.path, &path);
        // A full reading shortly after another would contain almost no traffic.
        let view =
            if view.seconds().is_some_and(|seconds| seconds >= 1.0) { view } else { HostView::once(&path) };
        self.findings = build::live_findings(&path, &findings(&view));
        self.host = build::host_line(&path, self.host.name.clone());
        self.reader = SampleReader::new(&path);
        self.plan = ReadingPlan::new(&path, &full_reading);
        self.path = path;
    }

    /// The clock of a live host has a finer resolution than its uptime.
    fn seconds(&self, at: Instant, now: &CounterSample) -> Option<f64> {
        let (earlier, before) = self.before.as_ref()?;
        let seconds = match &self.source {
            SnapshotSource::Live(_) => at.duration_since(*earlier).as_secs_f64(),
            SnapshotSource::Captured(_) => now.uptime_seconds.value()? - before.uptime_seconds.value()?,
        };
        (seconds > 0.0).then_some(seconds)
    }

    fn unix_seconds(&self) -> Option<f64> {
        match &self.source {
            SnapshotSource::Live(_) => {
                SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|elapsed| elapsed.as_secs_f64())
            }
            SnapshotSource::Captured(capture) => {
                capture.about.as_ref().and_then(|about| about.unix_seconds.map(|seconds| seconds as f64))
            }
        }
    }
}

/// Unknown values are not collected here: snapshots report their own, and collecting costs more
/// than the rules.
fn findings(view: &HostView<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = diagnosis::rules().flat_map(|rule| rule.findings(view)).collect();
    // The sort is stable: within a severity, findings keep the order of the rules.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

fn host_name(host: &Host) -> Known<String> {
    Known::from(host.read("/proc/sys/kernel/hostname")).map(|name| name.trim().to_owned())
}

#[cfg(test)]
mod tests;
