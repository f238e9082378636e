//! One slot on all hosts.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use linerate_load::report::{self, LEAST_OVERLAP, LoadPart, LoadReport, MergeError};
use linerate_load::{GeneratorError, LoadSlot, QueueMedians, SlotInterval, SlotOutcome};

use super::clock;
use super::link::{HostLink, LinkNews};
use super::protocol::{RemoteAnswer, RemoteOrder, SlotOrder};
use super::{CANCEL_POLL, RemoteGenerators};

/// Time from the order to the start of the slot, for the connection and the preparation on the
/// host.
const LEAD: Duration = Duration::from_millis(100);
/// Most additional time because of an uncertain clock.
const MAX_CLOCK_ERROR: Duration = Duration::from_secs(2);
/// Longest delay of a result.
const GRACE: Duration = Duration::from_secs(10);
/// The latest start. A remote generator treats a much later start as a sign that a clock was set.
const LATEST_START: Duration = Duration::from_secs(20);

enum HostOutcome {
    Done(Box<LoadReport>),
    Cancelled,
    /// The host could not run the slot but is still connected.
    Failed(String),
    Lost(String),
}

/// The results of a slot so far.
struct RemoteSlot {
    number: u64,
    began: Instant,
    /// By index of the host.
    outcomes: Vec<Option<HostOutcome>>,
    intervals: MergedIntervals,
}

impl RemoteSlot {
    fn new(number: u64, hosts: usize) -> Self {
        let outcomes = std::iter::repeat_with(|| None).take(hosts).collect();
        RemoteSlot { number, began: Instant::now(), outcomes, intervals: MergedIntervals::default() }
    }

    fn is_over(&self) -> bool {
        self.outcomes.iter().all(Option::is_some)
    }

    /// The first outcome of a host counts, unless its connection ends later.
    fn record(&mut self, host_index: usize, outcome: HostOutcome) {
        let recorded = self.outcomes.get_mut(host_index);
        if let Some(recorded) =
            recorded.filter(|recorded| recorded.is_none() || matches!(outcome, HostOutcome::Lost(_)))
        {
            *recorded = Some(outcome);
        }
    }

    fn record_silent_hosts(&mut self) {
        for outcome in &mut self.outcomes {
            outcome.get_or_insert_with(|| HostOutcome::Lost("no account of the slot came back".to_owned()));
        }
    }

    /// The hosts that may still send intervals.
    fn reporting_hosts(&self) -> usize {
        let has_failed = |outcome: &&Option<HostOutcome>| {
            matches!(outcome, Some(HostOutcome::Failed(_) | HostOutcome::Lost(_)))
        };
        self.outcomes.iter().filter(|outcome| !has_failed(outcome)).count()
    }
}

impl RemoteGenerators {
    pub(super) fn carry_out(
        &mut self,
        slot: &LoadSlot,
        observer: &mut dyn FnMut(&SlotInterval),
    ) -> Result<SlotOutcome, GeneratorError> {
        slot.check()?;
        if let Some((host, why)) = self.links.iter().find_map(|link| Some((&link.host, link.lost.as_ref()?)))
        {
            let why = format!("its generator is lost, nothing was sent: {why}");
            return Err(GeneratorError::Incomplete { who: host.to_string(), why, others: None });
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
        let pending = RemoteSlot::new(self.slots, hosts);
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
                if let Some(why) = self.links.get_mut(host_index).map(HostLink::record_loss) {
                    pending.record(host_index, HostOutcome::Lost(why));
                }
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
        let (mut parts, mut losses, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        for (link, outcome) in self.links.iter_mut().zip(pending.outcomes) {
            let name = link.host.to_string();
            match outcome {
                // Merging refuses equal runs, and two hosts can have equal results.
                Some(HostOutcome::Done(report)) => {
                    parts.push(LoadPart { argv: vec![name.clone()], name, report: *report });
                }
                Some(HostOutcome::Failed(why)) => failures.push((name, why)),
                Some(HostOutcome::Lost(why)) => {
                    link.lost.get_or_insert_with(|| why.clone());
                    losses.push((name, why));
                }
                Some(HostOutcome::Cancelled) | None => {}
            }
        }
        let measured_count = parts.len();
        let merged = (measured_count > 0).then(|| merged_outcome(parts));
        if let Some((who, why)) = losses.into_iter().chain(failures).next() {
            let others = merged.and_then(Result::ok).map(|(outcome, _)| Box::new(outcome));
            let others_text = others.as_ref().map_or_else(
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
            return Err(GeneratorError::Incomplete { who, why, others });
        }
        let (outcome, overlap_ratio) = merged.ok_or(GeneratorError::Cancelled)?.map_err(|error| {
            GeneratorError::Incomplete { who: "ssh".to_owned(), why: error.to_string(), others: None }
        })?;
        self.late_slots.record(overlap_ratio);
        Ok(outcome)
    }
}

/// Shares of their time that hosts sent together, of the slots below [`LEAST_OVERLAP`].
#[derive(Debug, Default)]
pub(super) struct LateSlots(Vec<f64>);

impl LateSlots {
    fn record(&mut self, overlap_ratio: f64) {
        if overlap_ratio < LEAST_OVERLAP {
            self.0.push(overlap_ratio);
        }
    }

    pub(super) fn warning(&self, slots: u64) -> Option<String> {
        let (count, least) = (self.0.len(), self.0.iter().copied().reduce(f64::min)?);
        Some(format!(
            "in {count} of {slots} slots the hosts did not send at the same time (down to {:.0} % of a slot in common), so \
             these rates are too low",
            least * 100.0
        ))
    }
}

/// With the share of the shortest part in which all parts sent.
fn merged_outcome(parts: Vec<LoadPart>) -> Result<(SlotOutcome, f64), MergeError> {
    let parts = match <[LoadPart; 1]>::try_from(parts) {
        Ok([single]) => return Ok((single.report.outcome, 1.0)),
        Err(parts) => parts,
    };
    let (mut merged, _) = report::merge(&parts)?;
    merged.outcome.queue = worst_queue(parts.iter().map(|part| part.report.outcome.queue));
    Ok((merged.outcome, merged.overlap_ratio.unwrap_or(1.0)))
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
    fn late_slots_become_one_warning() {
        let mut late_slots = LateSlots::default();
        late_slots.record(LEAST_OVERLAP);
        assert_eq!(late_slots.warning(1), None);
        [0.8, 0.62, 0.7].into_iter().for_each(|overlap_ratio| late_slots.record(overlap_ratio));
        let warning = late_slots.warning(9).expect("a warning");
        assert!(warning.contains("3 of 9 slots") && warning.contains("62 %"), "{warning}");
    }

    #[test]
    fn only_hosts_without_an_outcome_are_lost_at_the_deadline() {
        let mut slot = RemoteSlot::new(1, 3);
        slot.record(0, HostOutcome::Cancelled);
        slot.record(1, HostOutcome::Failed("an odd line".to_owned()));
        slot.record(1, HostOutcome::Cancelled);
        assert!(!slot.is_over() && slot.reporting_hosts() == 2);
        slot.record_silent_hosts();
        assert!(slot.is_over());
        let [Some(HostOutcome::Cancelled), Some(HostOutcome::Failed(_)), Some(HostOutcome::Lost(_))] =
            &slot.outcomes[..]
        else {
            panic!("the first outcome of a host counts");
        };
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
