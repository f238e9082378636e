//! The outcome of a slot from the counters of the program and the reports of the threads.

use std::sync::atomic::Ordering;

use super::judge::BadReply;
use super::program::LoadProgram;
use super::slot::LatencyBuckets;
use super::worker::XdpWorkerReport;
use crate::generator::account::{self, SendReport};
use crate::generator::bursts::BurstLengths;
use crate::generator::plan::{SlotFacts, SlotSpan};
use crate::outcome::{CodeCount, SelfWatch, SendMethod, SlotInterval, SlotOutcome};
use crate::sys::xdp::{INTERVALS, SEGMENTS};
use crate::workload::ReplyCode;

/// `failures`: replies that did not verify; `unjudged`: the number of replies that were not verified.
pub(super) fn outcome(
    program: &LoadProgram,
    facts: &SlotFacts<'_>,
    reports: &[XdpWorkerReport],
    mut intervals: Vec<SlotInterval>,
    failures: &[BadReply],
    unjudged: u64,
) -> SlotOutcome {
    let send_errors = program.send_errors();
    let sent = program.sum(|row| &row.sent).saturating_sub(send_errors.unsent());
    // Before the latencies: a reply's latency is counted before the reply.
    let [answered, in_time] = [program.sum(|row| &row.answered), program.sum(|row| &row.in_time)];
    let mut buckets = LatencyBuckets::read(program);
    for failure in failures {
        buckets.remove_latency(segment(&facts.span, failure.intended_ns), failure.latency_ns);
    }
    let failures_that =
        |is_such: fn(&BadReply) -> bool| failures.iter().filter(|failure| is_such(failure)).count() as u64;
    let mut bursts = BurstLengths::default();
    reports.iter().for_each(|report| bursts.merge(&report.bursts));
    let longest_ns = program.longest_ns();
    let latency_of = |range| buckets.segment_latency(range, longest_ns);
    let answered = answered.saturating_sub(failures.len() as u64);
    let counted = SlotOutcome {
        sent,
        // A reply may be counted between the reads of two rows.
        answered: answered.min(sent),
        duplicate: program.sum(|row| &row.duplicate),
        reordered: program.sum(|row| &row.reordered),
        corrupt: program.sum(|row| &row.corrupt) + failures_that(|failure| !failure.late),
        unsolicited: program.sum(|row| &row.unsolicited),
        late: program.sum(|row| &row.late) + failures_that(|failure| failure.late),
        fragmented: program.sum(|row| &row.fragments),
        send_errors,
        latency_ns: latency_of(0..SEGMENTS),
        second_half_ns: latency_of(1..SEGMENTS),
        codes: facts.code.map_or_else(Vec::new, |code| codes(program, code, failures)),
        unverified: program.sum(|row| &row.unverified) + unjudged,
        bursts: bursts.summary(),
        self_watch: SelfWatch {
            send_method: reports.first().map_or(SendMethod::Clones, |report| report.send_method),
            refused_by_link: program.refused_by_link(),
            ..SelfWatch::default()
        },
        ..SlotOutcome::default()
    };
    let sends: Vec<SendReport> = reports.iter().map(|report| report.sends).collect();
    let latencies = [&latency_of(0..1), &latency_of(2..3)];
    let in_time = in_time.saturating_sub(failures_that(|failure| failure.in_time));
    let outcome = account::complete(counted, in_time, latencies, facts, &sends);
    complete_intervals(program, facts, failures, &outcome, &mut intervals);
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
    facts: &SlotFacts<'_>,
    failures: &[BadReply],
    outcome: &SlotOutcome,
    intervals: &mut Vec<SlotInterval>,
) {
    let (span, sent, duration) = (facts.span, outcome.sent, outcome.duration);
    intervals.retain(|interval| interval.begins_seconds < duration.as_secs_f64());
    for (number, interval) in intervals.iter_mut().enumerate() {
        let failures_at = |time_ns: fn(&BadReply) -> u64| {
            failures.iter().filter(|failure| span.interval_number(time_ns(failure)) == number).count() as u64
        };
        let answered = program.sum_in(number, |row| &row.answered_in);
        interval.answered = Some(answered.saturating_sub(failures_at(|failure| failure.intended_ns)));
        let received = program.sum_in(number, |row| &row.received_in);
        let arrived_failures = failures_at(|failure| failure.intended_ns + failure.latency_ns);
        interval.received = received.saturating_sub(arrived_failures);
        interval.sent = program.sent_in(number);
        interval.seconds = interval.seconds.min(duration.as_secs_f64() - interval.begins_seconds);
    }
    debug_assert!(intervals.len() <= INTERVALS);
    // The last requests may be meant to leave after the end.
    let sent_in_intervals: u64 = intervals.iter().map(|interval| interval.sent).sum();
    if let Some(last) = intervals.last_mut() {
        last.sent = (last.sent + sent).saturating_sub(sent_in_intervals);
    }
}
