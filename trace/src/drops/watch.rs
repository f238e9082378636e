//! Live evidence: tracepoints, and counters before and after.

mod reading;
mod sampling;

use std::time::Duration;

use linerate_host::Host;

use super::ledger::PacketEvidence;
use super::packet_counts::{DropsTracer, PacketCounts, PacketDirection, PathPoint, PortSubject};
use crate::TraceError;
use reading::{DropsReading, SocketDrops};

pub use sampling::DropsWatch;

// The longest wait for replies of a program.
const LONGEST_REPLY_WAIT: Duration = Duration::from_millis(500);

#[derive(Debug, Clone)]
struct DropsMoment {
    reading: DropsReading,
    /// Socket drops, read before `seen`.
    before: SocketDrops,
    seen: PacketCounts,
    /// Socket drops, read after `seen`.
    after: SocketDrops,
}

impl DropsMoment {
    /// The start of counting; `reading` was read before.
    fn first(
        host: &Host,
        tracer: &DropsTracer,
        mut reading: DropsReading,
        subject: &PortSubject,
        interfaces: &[String],
    ) -> Result<Self, TraceError> {
        let mut counts = tracer.read(host)?;
        let after = SocketDrops::observe(host, subject, interfaces);
        // Programs were attached since the reading. The losses of devices must be of the same time
        // as the packets, to which they are added.
        reading.replace_devices(reading.devices(host));
        tracer.settle(&mut counts, 0, LONGEST_REPLY_WAIT)?;
        Ok(Self { before: reading.drops(), reading, seen: counts, after })
    }
}

/// The packets of a time without a pause. Observes until it is dropped.
#[derive(Debug)]
struct CountedWindow {
    look: DropsTracer,
    subject: PortSubject,
    interfaces: Vec<String>,
    first: DropsMoment,
    last: DropsMoment,
}

impl CountedWindow {
    fn start(host: &Host, subject: &PortSubject, interfaces: &[String]) -> Result<Self, TraceError> {
        // Before the tracepoints, so that counters include all packets that the tracepoints see.
        let reading = DropsReading::observe(host, subject, interfaces);
        let tracer = DropsTracer::start(host, subject)?;
        let first = DropsMoment::first(host, &tracer, reading, subject, interfaces)?;
        let last = first.clone();
        let (subject, interfaces) = (subject.clone(), interfaces.to_vec());
        Ok(Self { look: tracer, subject, interfaces, first, last })
    }

    fn resume(&mut self, host: &Host) -> Result<(), TraceError> {
        let reading = DropsReading::observe(host, &self.subject, &self.interfaces);
        self.look.resume()?;
        self.first = DropsMoment::first(host, &self.look, reading, &self.subject, &self.interfaces)?;
        self.last = self.first.clone();
        Ok(())
    }

    fn socket_drops(&self, host: &Host) -> SocketDrops {
        SocketDrops::observe(host, &self.subject, &self.interfaces)
    }

    // Everything since the start, and since the last lap. Waits up to `longest` for replies.
    fn total_and_lap(
        &mut self,
        host: &Host,
        longest: Duration,
    ) -> Result<(PacketEvidence, PacketEvidence), TraceError> {
        let now = self.read_moment(host, &[&self.first, &self.last], longest)?;
        let earlier = std::mem::replace(&mut self.last, now);
        Ok((self.evidence(&self.first), self.evidence(&earlier)))
    }

    /// Everything since the last lap, or the start.
    fn lap(&mut self, host: &Host) -> Result<PacketEvidence, TraceError> {
        let now = self.read_moment(host, &[&self.last], LONGEST_REPLY_WAIT)?;
        let earlier = std::mem::replace(&mut self.last, now);
        Ok(self.evidence(&earlier))
    }

    fn read_moment(
        &self,
        host: &Host,
        earlier: &[&DropsMoment],
        longest: Duration,
    ) -> Result<DropsMoment, TraceError> {
        let before = self.socket_drops(host);
        let mut counts = self.look.read(host)?;
        let waiting = self.socket_drops(host).waiting();
        let devices = self.first.reading.devices(host);
        let unanswered = earlier.iter().map(|earlier| self.unanswered(&counts.since(&earlier.seen))).max();
        self.look.settle(&mut counts, unanswered.unwrap_or_default(), longest)?;
        let mut reading = DropsReading::observe(host, &self.subject, &self.interfaces);
        reading.waits_at_least(waiting);
        reading.replace_devices(devices);
        Ok(DropsMoment { before, seen: counts, after: reading.drops(), reading })
    }

    // Requests without a reply; zero if the program answers nothing, or sends no replies.
    fn unanswered(&self, counts: &PacketCounts) -> u64 {
        let sent = counts.packets(PathPoint::Sent, PacketDirection::Reply);
        let is_answering = sent > 0 && !self.subject.ports.is_empty();
        let read = counts.packets(PathPoint::Read, PacketDirection::Request);
        if is_answering { read.saturating_sub(sent) } else { 0 }
    }

    fn evidence(&self, earlier: &DropsMoment) -> PacketEvidence {
        let now = &self.last;
        let counts = now.seen.since(&earlier.seen);
        let mut evidence = now.reading.since(&earlier.reading, self.subject.clone(), counts);
        evidence.within = now.before.since(&earlier.after);
        evidence.overhead = self.look.overhead();
        evidence
    }
}

#[cfg(test)]
mod tests;
