//! One slot on all hosts.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use linerate_load::report::{self, LoadPart, LoadReport};
use linerate_load::{GeneratorError, LoadSlot, QueueMedians, SlotInterval, SlotOutcome};

use super::clock;
use super::link::LinkNews;
use super::protocol::{RemoteAnswer, RemoteOrder, SlotOrder};
use super::{LostHost, RemoteGenerators};

/// Time from the order to the start of the slot, for the connection and the preparation on the
/// host.
const LEAD: Duration = Duration::from_millis(100);
/// Most additional time because of an uncertain clock.
const MAX_CLOCK_ERROR: Duration = Duration::from_secs(2);
/// Longest delay of a result.
const GRACE: Duration = Duration::from_secs(10);
/// The latest start. A remote generator treats a much later start as a sign that a clock was set.
const LATEST_START: Duration = Duration::from_secs(20);
const CANCEL_POLL: Duration = Duration::from_millis(50);

enum HostOutcome {
    Done(Box<LoadReport>),
    Cancelled,
    /// The host could not run the slot but is still connected.
    Failed(String),
    Lost(String),
}

impl HostOutcome {
    fn loss(&self) -> Option<&String> {
        if let HostOutcome::Lost(why) = self { Some(why) } else { None }
    }

    fn failure(&self) -> Option<&String> {
        if let HostOutcome::Failed(why) = self { Some(why) } else { None }
    }
}

/// The results of a slot so far, by index of the host.
struct RemoteSlot {
    number: u64,
    began: Instant,
    hosts: usize,
    outcomes: BTreeMap<usize, HostOutcome>,
    intervals: MergedIntervals,
}

impl RemoteSlot {
    fn is_over(&self) -> bool {
        self.outcomes.len() >= self.hosts
    }

    /// The first outcome of a host counts, unless its connection ends later.
    fn record(&mut self, host_index: usize, outcome: HostOutcome) {
        if outcome.loss().is_some() || !self.outcomes.contains_key(&host_index) {
            self.outcomes.insert(host_index, outcome);
        }
    }

    fn record_silent_hosts(&mut self) {
        for host_index in 0..self.hosts {
            self.outcomes
                .entry(host_index)
                .or_insert_with(|| HostOutcome::Lost("no account of the slot came back".to_owned()));
        }
    }

    /// The hosts that may still send intervals.
    fn reporting_hosts(&self) -> usize {
        let has_failed =
            |outcome: &&HostOutcome| matches!(outcome, HostOutcome::Failed(_) | HostOutcome::Lost(_));
        self.hosts.saturating_sub(self.outcomes.values().filter(has_failed).count())
    }
}

impl RemoteGenerators {
    pub(super) fn carry_out(
        &mut self,
        slot: &LoadSlot,
        observer: &mut dyn FnMut(&SlotInterval),
    ) -> Result<SlotOutcome, GeneratorError> {
        slot.check()?;
        if let Some(loss) = self.lost.first() {
            let why = format!("its generator is lost, nothing was sent: {}", loss.why);
            return Err(GeneratorError::Incomplete { who: loss.host.to_string(), why, others: None });
        }
        if self.options.cancel.load(Ordering::Relaxed) {
            return Err(GeneratorError::Cancelled);
        }
        let start_delay =
            slot.start_at_realtime_ns.map_or(0, |at_ns| at_ns.saturating_sub(clock::realtime_ns()));
        let start_delay = Duration::from_nanos(start_delay);
        if start_delay > LATEST_START {
            let problem = format!(
                "{} s ahead, other hosts take at most {} s",
                start_delay.as_secs(),
                LATEST_START.as_secs()
            );
            return Err(GeneratorError::option("start_at_realtime_ns", &problem));
        }
        let mut pending = self.send_orders(slot);
        let deadline =
            pending.began + start_delay + LEAD + MAX_CLOCK_ERROR + slot.duration + slot.drain + GRACE;
        self.await_results(&mut pending, deadline, observer);
        self.finish(pending)
    }

    fn send_orders(&mut self, slot: &LoadSlot) -> RemoteSlot {
        self.slots += 1;
        let hosts = self.links.len();
        let pending = RemoteSlot {
            number: self.slots,
            began: Instant::now(),
            hosts,
            outcomes: BTreeMap::new(),
            intervals: MergedIntervals::default(),
        };
        let uncertainty_ns =
            self.links.iter().filter_map(|link| Some(link.clock()?.uncertain_ns)).max().unwrap_or(0);
        let lead = LEAD + Duration::from_nanos(uncertainty_ns.saturating_mul(4)).min(MAX_CLOCK_ERROR);
        let earliest_ns = clock::realtime_ns().saturating_add(u64::try_from(lead.as_nanos()).unwrap_or(0));
        let begin_ns = slot.start_at_realtime_ns.unwrap_or(earliest_ns);
        for link in &self.links {
            let remote_ns = link.clock().map_or(begin_ns, |offset| offset.to_remote(begin_ns));
            let order = RemoteOrder::Slot(SlotOrder::new(pending.number, slot, hosts, remote_ns));
            // The end of the answers reports a broken connection, with the reason.
            let _ = link.line().send(&order);
        }
        pending
    }

    /// Waits until all hosts have a result or failed.
    fn await_results(
        &mut self,
        pending: &mut RemoteSlot,
        deadline: Instant,
        observer: &mut dyn FnMut(&SlotInterval),
    ) {
        let mut is_stopped = false;
        while !pending.is_over() {
            if !is_stopped && self.options.cancel.load(Ordering::Relaxed) {
                is_stopped = true;
                for link in &self.links {
                    // The end of the answers reports a broken connection.
                    let _ = link.line().send(&RemoteOrder::Stop);
                }
            }
            match self.next_event(deadline.min(Instant::now() + CANCEL_POLL)) {
                Some((host_index, news)) => self.handle_news(pending, host_index, news, observer),
                None if Instant::now() >= deadline => {
                    pending.record_silent_hosts();
                    return;
                }
                None => {}
            }
        }
    }

    fn handle_news(
        &mut self,
        pending: &mut RemoteSlot,
        host_index: usize,
        news: LinkNews,
        observer: &mut dyn FnMut(&SlotInterval),
    ) {
        let number = pending.number;
        match news {
            LinkNews::Answer(RemoteAnswer::Interval { slot, interval }) if slot == number => {
                let reporting_hosts = pending.reporting_hosts();
                if let Some(merged) = pending.intervals.add(interval, reporting_hosts) {
                    observer(&merged);
                }
            }
            LinkNews::Answer(RemoteAnswer::Done { slot, report }) if slot == number => {
                let outcome = match report.check() {
                    Ok(()) => HostOutcome::Done(self.to_local_clock(host_index, report)),
                    Err(why) => HostOutcome::Failed(why),
                };
                pending.record(host_index, outcome);
            }
            LinkNews::Answer(RemoteAnswer::Failed { slot, cancelled, why }) if slot == number => {
                let outcome = if cancelled { HostOutcome::Cancelled } else { HostOutcome::Failed(why) };
                pending.record(host_index, outcome);
            }
            LinkNews::Gone => {
                let why = self.record_loss(host_index, Some(pending.began.elapsed()));
                pending.record(host_index, HostOutcome::Lost(why));
            }
            LinkNews::Odd(words) => {
                let why = format!("'{words}' came where an account should");
                pending.record(host_index, HostOutcome::Failed(why));
            }
            // An answer to an earlier slot, or a time.
            LinkNews::Answer(_) => {}
        }
    }

    fn to_local_clock(&self, host_index: usize, mut report: Box<LoadReport>) -> Box<LoadReport> {
        if let Some(offset) = self.links.get(host_index).and_then(|link| link.clock()) {
            let started = &mut report.outcome.started_realtime_ns;
            *started = offset.to_local(*started);
        }
        report
    }

    /// The merged result, or the host that prevented it.
    fn finish(&mut self, pending: RemoteSlot) -> Result<SlotOutcome, GeneratorError> {
        let into_slot = pending.began.elapsed();
        for (host_index, outcome) in &pending.outcomes {
            if let (Some(link), Some(why)) = (self.links.get(*host_index), outcome.loss())
                && !self.is_lost(&link.host)
            {
                let (host, why) = (link.host.clone(), why.clone());
                self.lost.push(LostHost { host, into_slot: Some(into_slot), why });
            }
        }
        let first = |why_of: fn(&HostOutcome) -> Option<&String>| {
            let mut outcomes = pending.outcomes.iter();
            outcomes.find_map(|(host_index, outcome)| Some((*host_index, why_of(outcome)?.clone())))
        };
        let first_failure = first(HostOutcome::loss).or_else(|| first(HostOutcome::failure));
        let mut parts = Vec::new();
        for (host_index, outcome) in pending.outcomes {
            if let HostOutcome::Done(report) = outcome {
                parts.push((self.name(host_index), *report));
            }
        }
        let measured_count = parts.len();
        let merged = if parts.is_empty() { Err(String::new()) } else { merged_outcome(parts) };
        if let Some((host_index, why)) = first_failure {
            let other_outcome = merged.ok().map(|(outcome, _)| outcome);
            let others_text = other_outcome.as_ref().map_or_else(
                || "nothing else was measured".to_owned(),
                |outcome| {
                    let (sent, answered) = (outcome.sent, outcome.answered);
                    format!("the other {measured_count} sent {sent} and had {answered} answered")
                },
            );
            let why = format!(
                "{why}; noticed {:.1} s after the slot was ordered, {others_text}",
                into_slot.as_secs_f64()
            );
            return Err(GeneratorError::Incomplete {
                who: self.name(host_index),
                why,
                others: other_outcome.map(Box::new),
            });
        }
        if measured_count == 0 {
            return Err(GeneratorError::Cancelled);
        }
        let (outcome, warnings) =
            merged.map_err(|why| GeneratorError::Incomplete { who: "ssh".to_owned(), why, others: None })?;
        for warning in warnings {
            self.warn(warning);
        }
        Ok(outcome)
    }

    fn name(&self, host_index: usize) -> String {
        self.links.get(host_index).map_or_else(String::new, |link| link.host.to_string())
    }
}

fn merged_outcome(mut parts: Vec<(String, LoadReport)>) -> Result<(SlotOutcome, Vec<String>), String> {
    if parts.len() == 1 {
        let single = parts.pop().ok_or_else(|| "no part".to_owned())?;
        return Ok((single.1.outcome, Vec::new()));
    }
    // Merging refuses equal runs, and two hosts can have equal results.
    let parts: Vec<LoadPart> =
        parts.into_iter().map(|(name, report)| LoadPart { argv: vec![name.clone()], name, report }).collect();
    let (mut merged, warnings) = report::merge(&parts).map_err(|error| error.to_string())?;
    merged.outcome.queue = worst_queue(parts.iter().map(|part| part.report.outcome.queue));
    Ok((merged.outcome, warnings))
}

/// Medians cannot be added. The service has one queue, so the host that measured the largest growth
/// is right.
fn worst_queue(queues: impl Iterator<Item = QueueMedians>) -> QueueMedians {
    let growth = |queue: &QueueMedians| {
        queue.first_half_ns.zip(queue.last_quarter_ns).map(|(early, late)| late.saturating_sub(early))
    };
    queues.max_by_key(growth).unwrap_or_default()
}

/// Intervals that only some hosts have reported yet.
#[derive(Debug, Default)]
struct MergedIntervals {
    partial: BTreeMap<u32, (usize, SlotInterval)>,
}

impl MergedIntervals {
    /// Adds a host's interval. Returns the sum once this many hosts have reported it.
    fn add(&mut self, interval: SlotInterval, hosts: usize) -> Option<SlotInterval> {
        let number = interval.number;
        let reported = match self.partial.remove(&number) {
            None => (1, interval),
            Some((count, mut sum)) => {
                sum.join(&interval);
                (count + 1, sum)
            }
        };
        if reported.0 >= hosts {
            return Some(reported.1);
        }
        self.partial.insert(number, reported);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_queue_is_the_queue_that_grew_most() {
        let queue = |early, late| QueueMedians { first_half_ns: early, last_quarter_ns: late };
        let all =
            [queue(Some(5), Some(4)), queue(Some(1), Some(9)), queue(None, Some(100)), queue(None, None)];
        assert_eq!(worst_queue(all.into_iter()), all[1]);
        assert_eq!(worst_queue([queue(None, None)].into_iter()), QueueMedians::default());
    }

    #[test]
    fn only_hosts_without_an_outcome_are_lost_at_the_deadline() {
        let mut slot = RemoteSlot {
            number: 1,
            began: Instant::now(),
            hosts: 3,
            outcomes: BTreeMap::new(),
            intervals: MergedIntervals::default(),
        };
        slot.record(0, HostOutcome::Cancelled);
        slot.record(1, HostOutcome::Failed("an odd line".to_owned()));
        slot.record(1, HostOutcome::Cancelled);
        assert!(!slot.is_over() && slot.reporting_hosts() == 2);
        slot.record_silent_hosts();
        assert!(slot.is_over());
        let losses: Vec<bool> = slot.outcomes.values().map(|outcome| outcome.loss().is_some()).collect();
        assert_eq!(losses, [false, false, true]);
        assert!(slot.outcomes[&1].failure().is_some(), "the first outcome");
    }

    #[test]
    fn an_interval_is_complete_when_all_hosts_have_reported() {
        let interval = |number, sent| SlotInterval {
            number,
            seconds: 1.0,
            sent,
            received: sent,
            ..SlotInterval::default()
        };
        let mut intervals = MergedIntervals::default();
        assert_eq!(intervals.add(interval(0, 5), 2), None);
        assert_eq!(intervals.add(interval(1, 7), 2), None);
        assert_eq!(intervals.add(interval(0, 6), 2).map(|all| all.sent), Some(11));
        assert_eq!(intervals.add(interval(1, 1), 1).map(|all| all.sent), Some(8));
    }
}
