//! The outcome of a slot from the counters of the program and the reports of the threads.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::judge::BadReply;
use super::program::LoadProgram;
use super::slot::{LatencyBuckets, RowTotals};
use super::worker::XdpWorkerReport;
use crate::generator::account::SlotRates;
use crate::generator::bursts::BurstLengths;
use crate::generator::plan::{SlotFacts, SlotPlan, SlotSpan};
use crate::outcome::{
    CodeCount, QueueMedians, SelfWatch, SendMethod, SlotInterval, SlotOutcome, mean_in_flight,
};
use crate::sys::xdp::{INTERVALS, SEGMENTS};
use crate::workload::ReplyCode;

/// The results of a slot that the program did not count.
pub(super) struct XdpSlot<'a> {
    pub(super) facts: SlotFacts<'a>,
    pub(super) hands_over: bool,
    pub(super) reports: &'a [XdpWorkerReport],
    pub(super) intervals: Vec<SlotInterval>,
    /// Replies that did not verify, and the number of replies that were not verified.
    pub(super) failures: Vec<BadReply>,
    pub(super) unjudged: u64,
}

pub(super) fn outcome(program: &LoadProgram, mut slot: XdpSlot<'_>) -> SlotOutcome {
    let totals = RowTotals::read(program, slot.hands_over);
    let intervals = std::mem::take(&mut slot.intervals);
    let XdpSlot { facts, failures, .. } = &slot;
    let failed_count = failures.len() as u64;
    let late_failures = failures.iter().filter(|failure| failure.late).count() as u64;
    let mut buckets = LatencyBuckets::read(program);
    for failure in failures {
        buckets.remove_latency(segment(&facts.span, failure.intended_ns), failure.latency_ns);
    }
    let last_sent_ns = slot.reports.iter().map(|report| report.last_sent_ns).max().unwrap_or(0);
    let ended_ns = slot.reports.iter().map(|report| report.ended_ns).max().unwrap_or(0);
    let rates = SlotRates::new(facts, last_sent_ns, ended_ns, totals.sent);
    let mut watch = self_watch(&slot);
    watch.refused_by_link = totals.refused;
    watch.bound_because = rates.bound_because(&totals.errors, &watch, totals.late, facts.tags);
    // A reply may be counted between the reads of two rows.
    let answered = totals.answered.saturating_sub(failed_count).min(totals.sent);
    let in_time =
        totals.in_time.saturating_sub(failures.iter().filter(|failure| failure.in_time).count() as u64);
    let mut bursts = BurstLengths::default();
    slot.reports.iter().for_each(|report| bursts.merge(&report.bursts));
    let latency_of = |range| buckets.segment_latency(range, totals.longest_ns);
    let first_half = latency_of(0..1);
    SlotOutcome {
        started_realtime_ns: facts.span.start_realtime_ns,
        sent: totals.sent,
        answered,
        lost: totals.sent - answered,
        duplicate: totals.duplicate,
        reordered: totals.reordered,
        corrupt: totals.corrupt + failed_count - late_failures,
        unsolicited: totals.unsolicited,
        late: totals.late + late_failures,
        fragmented: totals.fragments,
        send_errors: totals.errors,
        duration: rates.duration,
        requested_per_second: rates.requested_per_second,
        offered_per_second: rates.offered_per_second,
        answered_per_second: rates.per_second(in_time),
        latency_ns: latency_of(0..SEGMENTS),
        second_half_ns: latency_of(1..SEGMENTS),
        codes: facts.code.map_or_else(Vec::new, |code| codes(program, code, failures)),
        unverified: totals.unverified + slot.unjudged,
        bursts: bursts.summary(),
        queue: QueueMedians {
            first_half_ns: first_half.median(),
            last_quarter_ns: latency_of(2..3).median(),
        },
        mean_in_flight: mean_in_flight(answered, rates.duration, &first_half),
        generator_bound: !watch.bound_because.is_empty(),
        self_watch: watch,
        intervals: complete_intervals(program, &slot, intervals, totals.sent, rates.duration),
    }
}

fn segment(span: &SlotSpan, intended_ns: u64) -> usize {
    match intended_ns {
        time_ns if time_ns < span.half_ns() => 0,
        time_ns if time_ns < span.last_quarter_ns() => 1,
        _ => 2,
    }
}

fn self_watch(slot: &XdpSlot<'_>) -> SelfWatch {
    let reports = slot.reports;
    SelfWatch {
        late_sends: reports.iter().map(|report| report.late_sends).sum(),
        worst_lag_ns: reports.iter().map(|report| report.worst_lag_ns).max().unwrap_or(0),
        tick_ns: slot.facts.tick_ns(),
        send_method: reports.first().map_or(SendMethod::Clones, |report| report.send_method),
        thread_cpu_ratio: reports.iter().map(|report| report.cpu_ratio).collect(),
        timed_out: reports.iter().map(|report| report.timed_out).sum(),
        ..SelfWatch::default()
    }
}

fn codes(program: &LoadProgram, code: ReplyCode, failures: &[BadReply]) -> Vec<CodeCount> {
    code.counts(|value| {
        let count_in_row =
            |row: &crate::sys::xdp::XdpRow| row.codes[usize::from(value)].load(Ordering::Relaxed);
        let count: u64 = program.rows.iter().map(count_in_row).sum();
        count.saturating_sub(failures.iter().filter(|failure| failure.code == Some(value)).count() as u64)
    })
}

fn complete_intervals(
    program: &LoadProgram,
    slot: &XdpSlot<'_>,
    mut intervals: Vec<SlotInterval>,
    sent: u64,
    duration: Duration,
) -> Vec<SlotInterval> {
    let (span, failures) = (slot.facts.span, &slot.failures);
    let made_count: u64 = program.rows.iter().map(|row| row.sent.load(Ordering::Relaxed)).sum();
    if span.interval_ns == 0 {
        return Vec::new();
    }
    intervals.retain(|interval| interval.begins_seconds < duration.as_secs_f64());
    for (number, interval) in intervals.iter_mut().enumerate() {
        let answered = |row: &crate::sys::xdp::XdpRow| {
            row.intervals.get(number).map_or(0, |count| count.load(Ordering::Relaxed))
        };
        let begins_ns = span.start_ns + span.interval_ns * number as u64;
        let interval_failures =
            failures.iter().filter(|failure| span.interval_number(failure.intended_ns) == number);
        let answered: u64 = program.rows.iter().map(answered).sum();
        interval.answered = Some(answered.saturating_sub(interval_failures.count() as u64));
        // With a schedule, requests count by their intended times.
        let times = begins_ns..begins_ns + span.interval_ns;
        if let Some(due_count) = due_requests(program, slot.facts.plans, times) {
            interval.sent = sent_share(due_count, sent, made_count);
        }
        interval.seconds = interval.seconds.min(duration.as_secs_f64() - interval.begins_seconds);
    }
    debug_assert!(intervals.len() <= INTERVALS);
    // The last read may precede the last request.
    let sent_in_intervals: u64 = intervals.iter().map(|interval| interval.sent).sum();
    if let Some(last) = intervals.last_mut() {
        last.sent = (last.sent + sent).saturating_sub(sent_in_intervals);
    }
    intervals
}

// Requests that left of the `due_count` that were due, if `sent` of `made` left in all: errors are known
// only in total.
fn sent_share(due_count: u64, sent: u64, made: u64) -> u64 {
    (u128::from(due_count) * u128::from(sent) / u128::from(made.max(1))) as u64
}

// Requests with an intended time in `times`; `None` without a schedule.
fn due_requests(program: &LoadProgram, plans: &[SlotPlan], times: std::ops::Range<u64>) -> Option<u64> {
    let sent_by_row = |row: &crate::sys::xdp::XdpRow| row.sent.load(Ordering::Relaxed);
    let rows = program.rows.iter().filter(|row| row.thread.load(Ordering::Relaxed) != 0);
    // Rows are ordered by CPU and threads may not be. Each schedule ends with the requests of its row.
    let mut total = 0;
    for plan in plans {
        let schedule = plan.timing.schedule()?;
        let row = rows.clone().find(|row| row.first_flow.load(Ordering::Relaxed) == plan.thread as u32);
        let sent = row.map_or(0, sent_by_row);
        total += schedule.due_before(times.end).min(sent) - schedule.due_before(times.start).min(sent);
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::sent_share;

    #[test]
    fn requests_that_did_not_leave_are_spread_over_the_intervals() {
        for (due, sent, made, expected) in [(100, 300, 300, 100), (100, 291, 300, 97), (0, 0, 0, 0)] {
            assert_eq!(sent_share(due, sent, made), expected);
        }
    }
}
