//! Intervals of a slot: counted per thread, and merged while the slot runs.

use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use super::totals::ReceivedTotals;
use crate::generator::MAX_BURST;
use crate::generator::account::SendReport;
use crate::generator::clock;
use crate::generator::plan::SlotSpan;
use crate::latency::Latency;
use crate::outcome::SlotInterval;

#[derive(Debug)]
pub(super) enum IntervalMessage {
    /// An interval is over. Each thread reports them in order.
    Over { counts: IntervalCounts, latency: Latency },
    /// The slot is over: its last message.
    Done(Box<SocketWorkerReport>),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct IntervalCounts {
    /// Requests with an intended time in it.
    pub(super) sent: u64,
    /// First replies that arrived in it.
    pub(super) received: u64,
    /// Requests with an intended time in it that were answered.
    pub(super) answered: u64,
}

// Counters of the requests of a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendCounts {
    pub(super) sent: u64,
    /// Send calls that did not send all requests, for example because the socket's buffer was full.
    pub(super) short_calls: u64,
    /// Number of bursts by length.
    pub(super) bursts: [u64; MAX_BURST + 1],
}

impl Default for SendCounts {
    fn default() -> Self {
        SendCounts { sent: 0, short_calls: 0, bursts: [0; MAX_BURST + 1] }
    }
}

#[derive(Debug, Default)]
pub(super) struct SocketWorkerReport {
    pub(super) sends: SendReport,
    pub(super) counts: SendCounts,
    pub(super) totals: ReceivedTotals,
    pub(super) intervals: Vec<IntervalCounts>,
    pub(super) receive_drops: u64,
    /// Growth of the network namespace's counter; of one thread only.
    pub(super) send_buffer_errors: u64,
}

pub(super) struct ThreadIntervals {
    span: SlotSpan,
    /// Empty without intervals.
    counts: Vec<IntervalCounts>,
    /// The first interval that is not over, whose replies `latency` has.
    current: usize,
    latency: Latency,
    messages: Sender<IntervalMessage>,
    // Emptied distributions for reuse, so that no memory is allocated during a slot.
    emptied: Receiver<Latency>,
}

impl ThreadIntervals {
    pub(super) fn new(messages: Sender<IntervalMessage>, emptied: Receiver<Latency>) -> Self {
        ThreadIntervals {
            span: SlotSpan::default(),
            counts: Vec::new(),
            current: 0,
            latency: Latency::new(),
            messages,
            emptied,
        }
    }

    pub(super) fn begin(&mut self, span: SlotSpan) {
        self.span = span;
        self.current = 0;
        self.latency.clear();
        self.counts.clear();
        self.counts.resize(span.interval_count(), IntervalCounts::default());
    }

    /// Counts requests by their intended times, which rise.
    pub(super) fn record_sent(&mut self, count: u64, intended: impl Fn(u64) -> u64) {
        let Some(last_number) = self.counts.len().checked_sub(1) else { return };
        for number in (0..count).map(|index| self.span.interval_number(intended(index)).min(last_number)) {
            self.counts[number].sent += 1;
        }
    }

    /// Counts a first reply.
    pub(super) fn record_answered(&mut self, intended_ns: u64, received_ns: u64) {
        let Some(last_number) = self.counts.len().checked_sub(1) else { return };
        self.counts[self.span.interval_number(intended_ns).min(last_number)].answered += 1;
        // A reply that another socket received shortly before the interval counts in this interval.
        let number = self.span.interval_number(received_ns).max(self.current);
        self.advance_to(number);
        if let Some(counts) = self.counts.get_mut(number) {
            counts.received += 1;
            self.latency.record(received_ns.saturating_sub(intended_ns));
        }
    }

    /// Reports intervals that are over.
    pub(super) fn end_elapsed(&mut self) {
        if self.current < self.counts.len() {
            self.advance_to(self.span.interval_number(clock::now_ns()));
        }
    }

    /// Ends the slot, early or not; returns the counts of its intervals.
    pub(super) fn end(&mut self, cancelled: bool) -> Vec<IntervalCounts> {
        if cancelled {
            self.end_elapsed();
            let elapsed_count = (self.current + 1).min(self.counts.len());
            self.advance_to(elapsed_count);
            self.counts.truncate(elapsed_count);
        } else {
            self.advance_to(self.counts.len());
        }
        std::mem::take(&mut self.counts)
    }

    fn advance_to(&mut self, number: usize) {
        while self.current < number.min(self.counts.len()) {
            let next = self.emptied.try_recv().unwrap_or_default();
            let latency = std::mem::replace(&mut self.latency, next);
            // It fails only if the receiver is gone.
            let _ = self.messages.send(IntervalMessage::Over { counts: self.counts[self.current], latency });
            self.current += 1;
        }
    }
}

/// The channels of a thread for merging.
#[derive(Debug)]
pub(super) struct IntervalSource {
    pub(super) messages: Receiver<IntervalMessage>,
    pub(super) emptied: Sender<Latency>,
}

// Merges the parts of all threads, passes each interval to `observer`, and returns the reports and all
// intervals; `None` if a thread is gone.
pub(super) fn merge_intervals(
    sources: &[IntervalSource],
    span: &SlotSpan,
    observer: &mut dyn FnMut(&SlotInterval),
) -> Option<(Vec<SocketWorkerReport>, Vec<SlotInterval>)> {
    let mut reports: Vec<Option<Box<SocketWorkerReport>>> = sources.iter().map(|_| None).collect();
    let mut intervals = Vec::new();
    let mut latency = Latency::new();
    while span.interval_ns > 0 && reports.iter().any(Option::is_none) {
        let mut interval = span.interval(intervals.len());
        let mut has_parts = false;
        for (source, report) in sources.iter().zip(&mut reports).filter(|(_, report)| report.is_none()) {
            match source.messages.recv().ok()? {
                IntervalMessage::Done(worker_report) => *report = Some(worker_report),
                IntervalMessage::Over { counts, latency: mut part } => {
                    has_parts = true;
                    interval.sent += counts.sent;
                    interval.received += counts.received;
                    latency.merge(&part);
                    part.clear();
                    // A thread that is gone shows at the next message.
                    let _ = source.emptied.send(part);
                }
            }
        }
        if has_parts {
            interval.latency_ns = latency.quantiles();
            latency.clear();
            observer(&interval);
            intervals.push(interval);
        }
    }
    for (source, report) in sources.iter().zip(&mut reports) {
        while report.is_none() {
            if let IntervalMessage::Done(worker_report) = source.messages.recv().ok()? {
                *report = Some(worker_report);
            }
        }
    }
    Some((reports.into_iter().flatten().map(|report| *report).collect(), intervals))
}

/// Completes the intervals at the end of a slot of `duration`.
pub(super) fn complete_intervals(
    intervals: &mut Vec<SlotInterval>,
    duration: Duration,
    reports: &[SocketWorkerReport],
) {
    intervals.retain(|interval| interval.begins_seconds < duration.as_secs_f64());
    for (number, interval) in intervals.iter_mut().enumerate() {
        let counts = || reports.iter().filter_map(|report| report.intervals.get(number));
        interval.sent = counts().map(|counts| counts.sent).sum();
        interval.received = counts().map(|counts| counts.received).sum();
        interval.answered = Some(counts().map(|counts| counts.answered).sum());
        interval.seconds = interval.seconds.min(duration.as_secs_f64() - interval.begins_seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const SPAN: SlotSpan =
        SlotSpan { epoch: 0, start_ns: 1_000, start_realtime_ns: 0, duration_ns: 250, interval_ns: 100 };

    fn intervals() -> (ThreadIntervals, Receiver<IntervalMessage>, Sender<Latency>) {
        let (sender, messages) = channel();
        let (emptied, empty) = channel();
        let mut intervals = ThreadIntervals::new(sender, empty);
        intervals.begin(SPAN);
        (intervals, messages, emptied)
    }

    fn parts(messages: &Receiver<IntervalMessage>) -> Vec<(u64, u64, u64)> {
        let part = |message| match message {
            IntervalMessage::Over { counts, latency } => (counts.sent, counts.received, latency.count()),
            IntervalMessage::Done(_) => panic!("no slot ends here"),
        };
        messages.try_iter().map(part).collect()
    }

    #[test]
    fn intervals_count_requests_by_intended_time_and_replies_by_arrival() {
        let (mut intervals, messages, _emptied) = intervals();
        intervals.record_sent(3, |index| 1_000 + 90 * index);
        intervals.record_answered(1_000, 1_050);
        intervals.record_answered(1_090, 1_130);
        assert_eq!(parts(&messages), [(2, 1, 1)], "a reply of the next interval ends the first");
        // The reply reached another socket earlier, but the thread reads it only now.
        intervals.record_answered(1_010, 1_080);
        // After the slot: it answers a request of the slot, but came in no interval.
        intervals.record_answered(1_180, 1_900);
        let counts = intervals.end(false);
        assert_eq!(parts(&messages), [(1, 2, 2), (0, 0, 0)]);
        let of = |sent, received, answered| IntervalCounts { sent, received, answered };
        assert_eq!(counts, [of(2, 1, 3), of(1, 2, 1), of(0, 0, 0)]);
    }

    #[test]
    fn a_slot_without_intervals_sends_no_interval_messages() {
        let (mut intervals, messages, _emptied) = intervals();
        intervals.begin(SlotSpan { interval_ns: 0, ..SPAN });
        intervals.record_sent(2, |_| 1_000);
        intervals.record_answered(1_000, 1_300);
        intervals.end_elapsed();
        assert!(intervals.end(false).is_empty() && parts(&messages).is_empty());
    }

    #[test]
    fn follow_returns_none_after_a_thread_ends() {
        let (mut intervals, messages, emptied) = intervals();
        intervals.record_answered(1_000, 1_150);
        drop(intervals);
        let source = IntervalSource { messages, emptied };
        let mut interval_count = 0;
        assert!(merge_intervals(&[source], &SPAN, &mut |_| interval_count += 1).is_none());
        assert_eq!(interval_count, 1);
    }

    #[test]
    fn a_slot_that_ended_early_keeps_only_its_elapsed_intervals() {
        let mut intervals: Vec<SlotInterval> = (0..3).map(|number| SPAN.interval(number)).collect();
        assert!((intervals[2].seconds - 50e-9).abs() < 1e-15);
        complete_intervals(&mut intervals, Duration::from_nanos(120), &[]);
        assert_eq!(intervals.len(), 2);
        assert!((intervals[1].seconds - 20e-9).abs() < 1e-15);
        assert_eq!(intervals[1].answered, Some(0));
    }
}
