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

/// The results of a slot so far, by index of the host.
struct RemoteSlot {
    number: u64,
    began: Instant,
    hosts: usize,
    done: BTreeMap<usize, LoadReport>,
    /// Hosts that could not run the slot but are still connected.
    failed: BTreeMap<usize, String>,
    lost: BTreeMap<usize, String>,
    cancelled: usize,
    intervals: MergedIntervals,
}

impl RemoteSlot {
    fn is_over(&self) -> bool {
        self.done.len() + self.failed.len() + self.lost.len() + self.cancelled >= self.hosts
    }

    fn knows(&self, place: usize) -> bool {
        self.done.contains_key(&place) || self.failed.contains_key(&place) || self.lost.contains_key(&place)
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
        let ahead = slot.start_at_realtime_ns.map_or(0, |at_ns| at_ns.saturating_sub(clock::realtime_ns()));
        let ahead = Duration::from_nanos(ahead);
        if ahead > LATEST_START {
            let problem =
                format!("{} s ahead, other hosts take at most {} s", ahead.as_secs(), LATEST_START.as_secs());
            return Err(GeneratorError::Option { option: "start_at_realtime_ns", problem });
        }
        let mut pending = self.order(slot);
        let deadline = pending.began + ahead + LEAD + MAX_CLOCK_ERROR + slot.duration + slot.drain + GRACE;
        self.follow(&mut pending, deadline, observer);
        self.finish(pending)
    }

    fn order(&mut self, slot: &LoadSlot) -> RemoteSlot {
        self.slots += 1;
        let hosts = self.links.len();
        let pending = RemoteSlot {
            number: self.slots,
            began: Instant::now(),
            hosts,
            done: BTreeMap::new(),
            failed: BTreeMap::new(),
            lost: BTreeMap::new(),
            cancelled: 0,
            intervals: MergedIntervals::default(),
        };
        let doubt_ns =
            self.links.iter().filter_map(|link| Some(link.clock()?.uncertain_ns)).max().unwrap_or(0);
        let lead = LEAD + Duration::from_nanos(doubt_ns.saturating_mul(4)).min(MAX_CLOCK_ERROR);
        let soon_ns = clock::realtime_ns().saturating_add(u64::try_from(lead.as_nanos()).unwrap_or(0));
        let begin_ns = slot.start_at_realtime_ns.unwrap_or(soon_ns);
        for link in &self.links {
            let remote_ns = link.clock().map_or(begin_ns, |offset| offset.to_remote(begin_ns));
            let order = RemoteOrder::Slot(SlotOrder::new(pending.number, slot, hosts, remote_ns));
            // The end of the answers reports a broken connection, with the reason.
            let _ = link.line().send(&order);
        }
        pending
    }

    /// Waits until all hosts have a result or failed.
    fn follow(
        &mut self,
        pending: &mut RemoteSlot,
        deadline: Instant,
        observer: &mut dyn FnMut(&SlotInterval),
    ) {
        let mut stopped = false;
        while !pending.is_over() {
            if !stopped && self.options.cancel.load(Ordering::Relaxed) {
                stopped = true;
                for link in &self.links {
                    // The end of the answers reports a broken connection.
                    let _ = link.line().send(&RemoteOrder::Stop);
                }
            }
            match self.next_event(deadline.min(Instant::now() + CANCEL_POLL)) {
                Some((place, news)) => self.take(pending, place, news, observer),
                None if Instant::now() >= deadline => {
                    let silent: Vec<usize> =
                        (0..pending.hosts).filter(|place| !pending.knows(*place)).collect();
                    for place in silent {
                        pending.lost.insert(place, "no account of the slot came back".to_owned());
                    }
                    return;
                }
                None => {}
            }
        }
    }

    fn take(
        &mut self,
        pending: &mut RemoteSlot,
        place: usize,
        news: LinkNews,
        observer: &mut dyn FnMut(&SlotInterval),
    ) {
        let number = pending.number;
        match news {
            LinkNews::Answer(RemoteAnswer::Interval { slot, interval }) if slot == number => {
                let silent = pending.lost.len() + pending.failed.len();
                if let Some(whole) =
                    pending.intervals.add(interval, pending.hosts - silent.min(pending.hosts))
                {
                    observer(&whole);
                }
            }
            LinkNews::Answer(RemoteAnswer::Done { slot, report }) if slot == number => {
                match report.check() {
                    Ok(()) => pending.done.insert(place, self.by_local_clock(place, *report)).map(drop),
                    Err(why) => pending.failed.insert(place, why).map(drop),
                };
            }
            LinkNews::Answer(RemoteAnswer::Failed { slot, cancelled, why }) if slot == number => {
                if cancelled {
                    pending.cancelled += 1;
                } else {
                    pending.failed.insert(place, why);
                }
            }
            LinkNews::Gone => {
                let why = self.lose(place, Some(pending.began.elapsed()));
                pending.lost.insert(place, why);
            }
            LinkNews::Odd(words) => {
                pending.failed.insert(place, format!("'{words}' came where an account should"));
            }
            // An answer to an earlier slot, or a time.
            LinkNews::Answer(_) => {}
        }
    }

    fn by_local_clock(&self, place: usize, mut report: LoadReport) -> LoadReport {
        if let Some(offset) = self.links.get(place).and_then(|link| link.clock()) {
            let started = &mut report.outcome.started_realtime_ns;
            *started = offset.to_local(*started);
        }
        report
    }

    /// The merged result, or the host that prevented it.
    fn finish(&mut self, pending: RemoteSlot) -> Result<SlotOutcome, GeneratorError> {
        let into_slot = pending.began.elapsed();
        for (place, why) in &pending.lost {
            if let Some(link) = self.links.get(*place) {
                let (host, why) = (link.host.clone(), why.clone());
                if !self.lost.iter().any(|loss| loss.host == host) {
                    self.lost.push(LostHost { host, into_slot: Some(into_slot), why });
                }
            }
        }
        let blamed =
            pending.lost.iter().chain(&pending.failed).map(|(place, why)| (*place, why.clone())).next();
        let parts: Vec<_> =
            pending.done.into_iter().map(|(place, report)| (self.name(place), report)).collect();
        let measured = parts.len();
        let merged = if parts.is_empty() { Err(String::new()) } else { merged_outcome(parts) };
        if let Some((place, why)) = blamed {
            let others = merged.ok().map(|(outcome, _)| outcome);
            let kept = others.as_ref().map_or_else(
                || "nothing else was measured".to_owned(),
                |outcome| {
                    let (sent, answered) = (outcome.sent, outcome.answered);
                    format!("the other {measured} sent {sent} and had {answered} answered")
                },
            );
            let why =
                format!("{why}; noticed {:.1} s after the slot was ordered, {kept}", into_slot.as_secs_f64());
            return Err(GeneratorError::Incomplete {
                who: self.name(place),
                why,
                others: others.map(Box::new),
            });
        }
        if measured == 0 {
            return Err(GeneratorError::Cancelled);
        }
        let (outcome, warnings) =
            merged.map_err(|why| GeneratorError::Incomplete { who: "ssh".to_owned(), why, others: None })?;
        for warning in warnings {
            self.warn(warning);
        }
        Ok(outcome)
    }

    fn name(&self, place: usize) -> String {
        self.links.get(place).map_or_else(String::new, |link| link.host.to_string())
    }
}

/// The results of all hosts as one, with the warnings of the merging.
fn merged_outcome(mut parts: Vec<(String, LoadReport)>) -> Result<(SlotOutcome, Vec<String>), String> {
    if parts.len() == 1 {
        let only = parts.pop().ok_or_else(|| "no part".to_owned())?;
        return Ok((only.1.outcome, Vec::new()));
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
            Some((count, mut all)) => {
                all.join(&interval);
                (count + 1, all)
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
    fn the_queue_that_grew_most_is_shown() {
        let queue = |early, late| QueueMedians { first_half_ns: early, last_quarter_ns: late };
        let all =
            [queue(Some(5), Some(4)), queue(Some(1), Some(9)), queue(None, Some(100)), queue(None, None)];
        assert_eq!(worst_queue(all.into_iter()), all[1]);
        assert_eq!(worst_queue([queue(None, None)].into_iter()), QueueMedians::default());
    }

    #[test]
    fn an_interval_is_complete_when_all_hosts_reported_it() {
        let interval = |number, sent| SlotInterval {
            number,
            begins_seconds: 0.0,
            seconds: 1.0,
            sent,
            received: sent,
            answered: None,
            latency_ns: linerate_load::LatencyQuantiles::default(),
        };
        let mut intervals = MergedIntervals::default();
        assert_eq!(intervals.add(interval(0, 5), 2), None);
        assert_eq!(intervals.add(interval(1, 7), 2), None);
        assert_eq!(intervals.add(interval(0, 6), 2).map(|all| all.sent), Some(11));
        assert_eq!(intervals.add(interval(1, 1), 1).map(|all| all.sent), Some(8));
    }
}
