//! Evidence of what happens now: what tracepoints see, and counters before and after.

mod reading;
mod sampling;

use std::time::Duration;

use linerate_host::Host;

use super::ledger::Evidence;
use super::seen::{Direction, Look, Point, Seen, Subject};
use crate::TraceError;
use crate::window;
use reading::{Drops, Reading};

pub use sampling::SampledWatch;

/// All that is read at one time.
#[derive(Debug, Clone)]
struct Moment {
    reading: Reading,
    /// What sockets have dropped, read before `seen`.
    before: Drops,
    seen: Seen,
    /// The same, read after `seen`.
    after: Drops,
}

impl Moment {
    /// The moment when counting begins, which `reading` was read before.
    fn first(
        host: &Host,
        look: &Look,
        reading: Reading,
        subject: &Subject,
        interfaces: &[String],
    ) -> Result<Self, TraceError> {
        let mut seen = look.read(host)?;
        let after = Drops::of(host, subject, interfaces);
        look.settle(&mut seen, 0)?;
        Ok(Self { before: reading.drops(), reading, seen, after })
    }
}

/// A look at packets that goes on until this is dropped.
#[derive(Debug)]
pub struct Watch {
    look: Look,
    subject: Subject,
    interfaces: Vec<String>,
    first: Moment,
    last: Moment,
}

impl Watch {
    /// Begins to count, for the calling thread's network namespace; `host` has to be of the same. `interfaces` are those whose
    /// counters are read, by name; none: as [`linerate_host::Scope`] chooses.
    ///
    /// # Errors
    /// [`TraceError`] when the programs cannot be loaded. Counters that cannot be read are told with the evidence.
    pub fn start(host: &Host, subject: &Subject, interfaces: &[String]) -> Result<Self, TraceError> {
        // Before anything is seen, so that whatever counts it has it as well.
        let reading = Reading::of(host, subject, interfaces);
        let look = Look::start(host, subject)?;
        let first = Moment::first(host, &look, reading, subject, interfaces)?;
        let last = first.clone();
        Ok(Self { look, subject: subject.clone(), interfaces: interfaces.to_vec(), first, last })
    }

    /// Takes the programs from their tracepoints.
    fn pause(&mut self) -> Result<(), TraceError> {
        self.look.pause()
    }

    /// Begins anew, with programs that are loaded.
    fn resume(&mut self, host: &Host) -> Result<(), TraceError> {
        let reading = Reading::of(host, &self.subject, &self.interfaces);
        self.look.resume()?;
        self.first = Moment::first(host, &self.look, reading, &self.subject, &self.interfaces)?;
        self.last = self.first.clone();
        Ok(())
    }

    /// What sockets have dropped until now.
    fn socket_drops(&self, host: &Host) -> Drops {
        Drops::of(host, &self.subject, &self.interfaces)
    }

    /// All since it began, and all since the last lap.
    fn total_and_lap(&mut self, host: &Host) -> Result<(Evidence, Evidence), TraceError> {
        let now = self.now(host, &self.last.seen)?;
        let earlier = std::mem::replace(&mut self.last, now);
        Ok((self.evidence(&self.first.clone()), self.evidence(&earlier)))
    }

    /// All since it began.
    ///
    /// # Errors
    /// [`TraceError`] when the kernel's tables cannot be read.
    pub fn total(&mut self, host: &Host) -> Result<Evidence, TraceError> {
        self.last = self.now(host, &self.first.seen)?;
        Ok(self.evidence(&self.first.clone()))
    }

    /// What came since the last lap, or the beginning.
    ///
    /// # Errors
    /// [`TraceError`] when the kernel's tables cannot be read.
    pub fn lap(&mut self, host: &Host) -> Result<Evidence, TraceError> {
        let now = self.now(host, &self.last.seen)?;
        let earlier = std::mem::replace(&mut self.last, now);
        Ok(self.evidence(&earlier))
    }

    fn now(&self, host: &Host, earlier: &Seen) -> Result<Moment, TraceError> {
        let before = Drops::of(host, &self.subject, &self.interfaces);
        let mut seen = self.look.read(host)?;
        let waiting = Drops::of(host, &self.subject, &self.interfaces).waiting();
        let now = seen.since(earlier);
        let unanswered = now.packets(Point::Read, Direction::Request);
        self.look.settle(&mut seen, unanswered.saturating_sub(now.packets(Point::Sent, Direction::Reply)))?;
        let mut reading = Reading::of(host, &self.subject, &self.interfaces);
        reading.waits_at_least(waiting);
        Ok(Moment { before, seen, after: reading.drops(), reading })
    }

    fn evidence(&mut self, earlier: &Moment) -> Evidence {
        let now = &self.last;
        let seen = now.seen.since(&earlier.seen);
        let mut evidence = now.reading.since(&earlier.reading, self.subject.clone(), seen);
        evidence.within = now.before.since(&earlier.after);
        evidence.overhead = self.look.overhead();
        evidence
    }
}

/// Looks for a time, or until `stop` says so; see [`Watch::start`]. [`Ledger::make`](super::Ledger::make) makes a ledger of it.
///
/// # Errors
/// [`TraceError`] when the programs cannot be loaded or read.
pub fn observe(
    host: &Host,
    subject: &Subject,
    interfaces: &[String],
    duration: Duration,
    stop: &dyn Fn() -> bool,
) -> Result<Evidence, TraceError> {
    let mut watch = Watch::start(host, subject, interfaces)?;
    window::wait(duration, stop);
    watch.total(host)
}
