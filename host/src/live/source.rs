//! A host that is read again and again.

mod departed;
mod plan;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::diagnosis;
use crate::pulse::{Pulse, Reader};
use crate::{Capture, Finding, Host, Known, PacketPath, Scope, View};

use crate::live::making::{self, Readings};
use crate::live::picture::{Cost, Found, HostLine, Picture};
use departed::Departed;
use plan::{Begun, Plan};

/// Where readings come from.
#[derive(Debug)]
pub enum Source {
    /// The host this runs on: each reading is compared with the one before it.
    Live(Host),
    /// A host that was captured: its later reading, if it has one, is compared with its first, each time.
    Captured(Box<Capture>),
}

/// A host, what of it is looked at, and its last reading.
#[derive(Debug)]
pub struct Live {
    source: Source,
    scope: Scope,
    path: PacketPath,
    /// What was read with the path: the time is that of its reading, the findings are of it and the path before it.
    plan: Plan,
    findings: Vec<Found>,
    host: HostLine,
    reader: Reader,
    before: Option<(Instant, Pulse)>,
    departed: Departed,
}

impl Source {
    /// The host this runs on.
    #[must_use]
    pub fn here() -> Self {
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

impl From<Capture> for Source {
    fn from(capture: Capture) -> Self {
        Self::Captured(Box::new(capture))
    }
}

impl Live {
    /// Reads the host once, whole.
    #[must_use]
    pub fn open(source: Source, scope: Scope) -> Self {
        let begun = Begun::now();
        let path = PacketPath::observe(source.now(), &scope);
        let before = source.first_of_two().map(|first| PacketPath::observe(first, &scope));
        let view = View { now: &path, before: before.as_ref() };
        let findings = making::found(&path, &findings(&view));
        let host = making::host_line(&path, name(source.now()));
        let mut reader = Reader::new(&path);
        let before = source.first_of_two().map(|first| (begun.at, reader.read(first)));
        let plan = Plan::new(&path, &begun);
        Self { source, scope, plan, findings, host, reader, before, departed: Departed::default(), path }
    }

    /// What is looked at.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// What the path is set to, as of the last whole reading.
    #[must_use]
    pub fn path(&self) -> &PacketPath {
        &self.path
    }

    /// Reads what changes each second, and makes a picture of it and the reading before.
    pub fn refresh(&mut self) -> Picture {
        let at = Instant::now();
        let mut pulse = self.reader.read(self.source.now());
        let read = at.elapsed();
        if matches!(self.source, Source::Live(_)) && self.plan.is_due(self.source.now(), &self.scope, &pulse)
        {
            self.read_whole();
            // What has just come is looked at from now on, and has a rate with the next reading.
            pulse = self.reader.read(self.source.now());
        }
        let at = Instant::now();
        let readings = Readings {
            path: &self.path,
            before: self.before.as_ref().map(|(_, pulse)| pulse),
            now: &pulse,
            seconds: self.seconds(at, &pulse),
            findings: &self.findings,
        };
        let mut picture = readings.picture(self.host.clone());
        picture.unix_seconds = self.unix_seconds();
        picture.cost = Cost {
            read_seconds: read.as_secs_f64(),
            whole_reading_seconds: self.plan.took().as_secs_f64(),
            whole_reading_age_seconds: self.plan.age().as_secs_f64(),
        };
        if let Source::Live(_) = self.source {
            self.departed.keep(&mut picture, at, &self.scope);
            self.before = Some((at, pulse));
        }
        picture
    }

    fn read_whole(&mut self) {
        let begun = Begun::now();
        let path = PacketPath::observe(self.source.now(), &self.scope);
        let view = View::twice(&self.path, &path);
        // A whole reading very soon after another would judge by next to nothing.
        let view =
            if view.seconds().is_some_and(|seconds| seconds >= 1.0) { view } else { View::once(&path) };
        self.findings = making::found(&path, &findings(&view));
        self.host = making::host_line(&path, self.host.name.clone());
        self.reader = Reader::new(&path);
        self.plan = Plan::new(&path, &begun);
        self.path = path;
    }

    /// The clock of a live host is finer than what it says of its uptime.
    fn seconds(&self, at: Instant, now: &Pulse) -> Option<f64> {
        let (earlier, before) = self.before.as_ref()?;
        let seconds = match &self.source {
            Source::Live(_) => at.duration_since(*earlier).as_secs_f64(),
            Source::Captured(_) => now.uptime_seconds.value()? - before.uptime_seconds.value()?,
        };
        (seconds > 0.0).then_some(seconds)
    }

    fn unix_seconds(&self) -> Option<f64> {
        match &self.source {
            Source::Live(_) => {
                SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs_f64())
            }
            #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are exact in 52 bits")]
            Source::Captured(capture) => capture.about.as_ref().map(|about| about.unix_seconds as f64),
        }
    }
}

/// What the rules find. What is unknown is told by the pictures themselves, and costs more to collect than the rules do.
fn findings(view: &View<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = diagnosis::rules().flat_map(|rule| rule.findings(view)).collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

fn name(host: &Host) -> Known<String> {
    Known::from(host.read("/proc/sys/kernel/hostname")).map(|name| name.trim().to_owned())
}

/// How long a whole reading may stay.
const USUAL_AGE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
