//! Intervals and end of a running slot.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::program::LoadProgram;
use super::slot::LatencyBuckets;
use super::worker::XdpWorkerReport;
use crate::generator::drain::DrainWait;
use crate::generator::plan::SlotSpan;
use crate::generator::thread::GeneratorThread;
use crate::generator::{LoadSlot, clock};
use crate::latency::LatencyQuantiles;
use crate::outcome::SlotInterval;

/// Polling interval of the counters during a drain.
const LOOK_AGAIN_NS: u64 = 1_000_000;

// Interval at which the threads of a slot are checked.
const LIVENESS_NS: u64 = 1_000_000_000;

/// The latencies until the end of the last interval.
pub(super) struct IntervalWatch<'a> {
    program: &'a LoadProgram,
    span: SlotSpan,
    buckets: LatencyBuckets,
    intervals: Vec<SlotInterval>,
}

impl<'a> IntervalWatch<'a> {
    pub(super) fn new(program: &'a LoadProgram, span: SlotSpan) -> Self {
        let buckets = LatencyBuckets::new();
        IntervalWatch { program, span, buckets, intervals: Vec::new() }
    }

    // Waits for the reports of all threads, and reports intervals that end until then. `None` if a thread
    // is gone.
    pub(super) fn collect_reports(
        &mut self,
        reports: &Receiver<XdpWorkerReport>,
        threads: &[GeneratorThread],
        observer: &mut dyn FnMut(&SlotInterval),
    ) -> Option<Vec<XdpWorkerReport>> {
        let mut thread_reports = Vec::with_capacity(threads.len());
        while thread_reports.len() < threads.len() {
            let wait_ns = self.boundary_ns().saturating_sub(clock::now_ns()).min(LIVENESS_NS);
            match reports.recv_timeout(Duration::from_nanos(wait_ns)) {
                Ok(report) => thread_reports.push(report),
                // The other threads keep the channel open.
                Err(RecvTimeoutError::Timeout) if threads.iter().any(GeneratorThread::is_finished) => {
                    return None;
                }
                Err(RecvTimeoutError::Timeout) if clock::now_ns() < self.boundary_ns() => {}
                Err(RecvTimeoutError::Timeout) => self.end_interval(observer),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        Some(thread_reports)
    }

    /// The end of the present interval; far in the future if there is none.
    fn boundary_ns(&self) -> u64 {
        let number = self.intervals.len();
        if number >= self.span.interval_count() {
            return self.span.end_ns() + 3_600_000_000_000;
        }
        (self.span.start_ns + self.span.interval_ns * (number as u64 + 1)).min(self.span.end_ns())
    }

    fn end_interval(&mut self, observer: &mut dyn FnMut(&SlotInterval)) {
        let number = self.intervals.len();
        if number >= self.span.interval_count() {
            return;
        }
        let buckets = LatencyBuckets::read(self.program);
        let latency = buckets.since(&self.buckets);
        let interval = SlotInterval {
            sent: self.program.sent_in(number),
            received: self.program.sum_in(number, |row| &row.received_in),
            latency_ns: if latency.count() == 0 { LatencyQuantiles::default() } else { latency.quantiles() },
            ..self.span.interval(number)
        };
        observer(&interval);
        self.buckets = buckets;
        self.intervals.push(interval);
    }

    /// Waits for stragglers, and returns all intervals.
    pub(super) fn finish(
        mut self,
        slot: &LoadSlot,
        cancel: &AtomicBool,
        observer: &mut dyn FnMut(&SlotInterval),
    ) -> Vec<SlotInterval> {
        // A schedule may end before its last interval.
        while self.boundary_ns() <= self.span.end_ns() {
            if cancel.load(Ordering::Relaxed) {
                self.end_interval(observer);
                break;
            }
            let boundary_ns = self.boundary_ns();
            clock::sleep_until(boundary_ns.min(clock::now_ns() + 10 * LOOK_AGAIN_NS));
            if clock::now_ns() >= boundary_ns {
                self.end_interval(observer);
            }
        }
        self.drain(DrainWait::new(slot.drain, slot.whole_drain, cancel));
        self.intervals
    }

    fn drain(&self, mut wait: DrainWait<'_>) {
        let mut last_arrivals = self.program.sum(|row| &row.arrivals);
        loop {
            let settled = self.program.sum(|row| &row.answered) + self.program.refused_by_link();
            let is_complete = settled >= self.program.sent();
            // Read last, because an arrival is counted before its answer.
            let arrivals = self.program.sum(|row| &row.arrivals);
            if arrivals != std::mem::replace(&mut last_arrivals, arrivals) {
                wait.note_arrival();
            }
            let (until_ns, now_ns) = (wait.until_ns(is_complete, self.program.longest_ns()), clock::now_ns());
            if now_ns >= until_ns {
                return;
            }
            clock::sleep_until(until_ns.min(now_ns + LOOK_AGAIN_NS));
        }
    }
}
