//! The outcome of a slot from the counters of the program and the reports of the threads.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::judge::BadReply;
use super::program::LoadProgram;
use super::slot::{LatencyBuckets, RowTotals};
use super::worker::XdpWorkerReport;
use crate::generator::account::{self, SendReport};
use crate::generator::bursts::BurstLengths;
use crate::generator::plan::{SlotFacts, SlotPlan, SlotSpan};
use crate::outcome::{CodeCount, SelfWatch, SendMethod, SlotInterval, SlotOutcome};
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
    let mut totals = RowTotals::read(program, slot.hands_over);
    let intervals = std::mem::take(&mut slot.intervals);
    let XdpSlot { facts, failures, reports, .. } = &slot;
    let mut buckets = LatencyBuckets::read(program);
    for failure in failures {
        buckets.remove_latency(segment(&facts.span, failure.intended_ns), failure.latency_ns);
        totals.answered = totals.answered.saturating_sub(1);
        totals.in_time = totals.in_time.saturating_sub(failure.in_time.into());
        *if failure.late { &mut totals.late } else { &mut totals.corrupt } += 1;
    }
    let mut bursts = BurstLengths::default();
    reports.iter().for_each(|report| bursts.merge(&report.bursts));
    let latency_of = |range| buckets.segment_latency(range, totals.longest_ns);
    let counted = SlotOutcome {
        sent: totals.sent,
        // A reply may be counted between the reads of two rows.
        answered: totals.answered.min(totals.sent),
        duplicate: totals.duplicate,
        reordered: totals.reordered,
        corrupt: totals.corrupt,
        unsolicited: totals.unsolicited,
        late: totals.late,
        fragmented: totals.fragments,
        send_errors: totals.errors,
        latency_ns: latency_of(0..SEGMENTS),
        second_half_ns: latency_of(1..SEGMENTS),
        codes: facts.code.map_or_else(Vec::new, |code| codes(program, code, failures)),
        unverified: totals.unverified + slot.unjudged,
        bursts: bursts.summary(),
        self_watch: SelfWatch {
            send_method: reports.first().map_or(SendMethod::Clones, |report| report.send_method),
            refused_by_link: totals.refused,
            ..SelfWatch::default()
        },
        ..SlotOutcome::default()
    };
    let sends: Vec<SendReport> = reports.iter().map(|report| report.sends).collect();
    let latencies = [&latency_of(0..1), &latency_of(2..3)];
    let outcome = account::complete(counted, totals.in_time, latencies, facts, &sends);
    let intervals = complete_intervals(program, &slot, intervals, totals.sent, outcome.duration);
    SlotOutcome { intervals, ..outcome }
}

fn segment(span: &SlotSpan, intended_ns: u64) -> usize {
    match intended_ns {
        time_ns if time_ns < span.half_ns() => 0,
        time_ns if time_ns < span.last_quarter_ns() => 1,
        _ => 2,
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
