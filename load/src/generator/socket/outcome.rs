//! The outcome of a slot from the reports of all threads.

use super::intervals;
use super::intervals::SocketWorkerReport;
use crate::generator::account::{self, SendReport};
use crate::generator::bursts::BurstLengths;
use crate::generator::plan::SlotFacts;
use crate::latency::Latency;
use crate::outcome::{CodeCount, SelfWatch, SendErrors, SlotInterval, SlotOutcome};
use crate::workload::ReplyCode;

pub(super) fn outcome(
    facts: &SlotFacts<'_>,
    reports: &[SocketWorkerReport],
    mut intervals: Vec<SlotInterval>,
) -> SlotOutcome {
    let (mut latency_ns, mut send_errors) = (Latency::new(), SendErrors::default());
    let (mut first_half, mut last_quarter) = (Latency::new(), Latency::new());
    for report in reports {
        latency_ns.merge(&report.totals.latency);
        first_half.merge(&report.totals.first_half);
        last_quarter.merge(&report.totals.last_quarter);
        send_errors.add(&report.totals.errors);
    }
    let sum = |counter: fn(&SocketWorkerReport) -> u64| reports.iter().map(counter).sum::<u64>();
    let sent = sum(|report| report.counts.sent);
    let answered = sum(|report| report.totals.counts.answered);
    // The counter is that of the network namespace, so that other programs may add to it.
    let send_drops =
        sum(|report| report.send_buffer_errors).saturating_sub(sum(|report| report.counts.short_calls));
    let counted = SlotOutcome {
        sent,
        answered,
        duplicate: sum(|report| report.totals.counts.duplicate),
        reordered: sum(|report| report.totals.counts.reordered),
        corrupt: sum(|report| report.totals.counts.corrupt),
        unsolicited: sum(|report| report.totals.counts.unsolicited),
        late: sum(|report| report.totals.counts.late),
        send_errors,
        second_half_ns: latency_ns.without(&first_half),
        latency_ns,
        codes: facts.code.map_or_else(Vec::new, |code| codes(code, reports)),
        bursts: bursts(reports).summary(),
        self_watch: SelfWatch {
            receive_drops: sum(|report| report.receive_drops),
            send_drops: send_drops.min(sent - answered),
            ..SelfWatch::default()
        },
        ..SlotOutcome::default()
    };
    let in_time = sum(|report| report.totals.counts.answered_in_time);
    let sends: Vec<SendReport> = reports.iter().map(|report| report.sends).collect();
    let outcome = account::complete(counted, in_time, [&first_half, &last_quarter], facts, &sends);
    intervals::complete_intervals(&mut intervals, outcome.duration, reports);
    SlotOutcome { intervals, ..outcome }
}

fn codes(code: ReplyCode, reports: &[SocketWorkerReport]) -> Vec<CodeCount> {
    code.counts(|value| reports.iter().map(|report| report.totals.codes[usize::from(value)]).sum())
}

fn bursts(reports: &[SocketWorkerReport]) -> BurstLengths {
    let mut bursts = BurstLengths::default();
    for (length, count) in reports.iter().flat_map(|report| (0..).zip(&report.counts.bursts)) {
        bursts.add(length, *count);
    }
    bursts
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::generator::LoadSlot;
    use crate::generator::plan::SlotSpan;
    use crate::generator::socket::totals::DatagramCounts;
    use crate::outcome::{BoundReason, SendBursts};
    use crate::workload::ReplyMark;

    const SECOND: Duration = Duration::from_secs(1);

    fn report(sent: u64, answered: u64) -> SocketWorkerReport {
        let (last_sent_ns, ended_ns) = (1_000_000_000, 1_000_000_000);
        let mut report = SocketWorkerReport {
            sends: SendReport { last_sent_ns, ended_ns, cpu_ratio: 0.5, ..SendReport::default() },
            ..SocketWorkerReport::default()
        };
        report.counts.sent = sent;
        report.totals.counts =
            DatagramCounts { answered, answered_in_time: answered, ..DatagramCounts::default() };
        report
    }

    fn facts(slot: &LoadSlot) -> SlotFacts<'_> {
        let span = SlotSpan::default();
        SlotFacts { slot, span, plans: &[], cancelled: false, code: None, tags: None }
    }

    fn outcome_of(slot: &LoadSlot, cancelled: bool, reports: &[SocketWorkerReport]) -> SlotOutcome {
        outcome(&SlotFacts { cancelled, ..facts(slot) }, reports, Vec::new())
    }

    #[test]
    fn outcome_sums_threads_and_is_not_generator_bound() {
        let outcome = outcome_of(&LoadSlot::rate(200.0, SECOND), false, &[report(100, 99), report(100, 90)]);
        assert_eq!((outcome.sent, outcome.answered, outcome.lost), (200, 189, 11));
        assert_eq!((outcome.offered_per_second, outcome.answered_per_second), (200.0, 189.0));
        assert!(!outcome.generator_bound && outcome.self_watch.thread_cpu_ratio == [0.5, 0.5]);
    }

    #[test]
    fn second_half_has_the_latencies_after_the_first_half() {
        let (mut first, mut second) = (report(2, 2), report(1, 1));
        for (report, half, third_quarter_ns) in [(&mut first, 5_000, 70), (&mut second, 6_000, 80)] {
            report.totals.first_half.record(half);
            report.totals.latency.record(half);
            report.totals.latency.record(third_quarter_ns);
        }
        let outcome = outcome_of(&LoadSlot::rate(3.0, SECOND), false, &[first, second]);
        assert_eq!((outcome.latency_ns.count(), outcome.second_half_ns.count()), (4, 2));
        assert_eq!(outcome.second_half_ns.quantile(0.99), Some(80));
    }

    #[test]
    fn bound_because_names_each_limit_of_the_generator() {
        let reasons = |mode: &LoadSlot, report: SocketWorkerReport| {
            outcome_of(mode, false, &[report]).self_watch.bound_because
        };
        let paced = LoadSlot::rate(1_000.0, SECOND);
        let window = LoadSlot::window(1, SECOND);
        assert_eq!(reasons(&paced, report(980, 980)), [BoundReason::OfferedTooLittle { ratio: 0.98 }]);
        // A slot has whole requests.
        assert_eq!(reasons(&LoadSlot::rate(1.4, SECOND), report(1, 1)), []);
        let mut late = report(1_000, 1_000);
        late.sends.late_sends = 20;
        assert_eq!(reasons(&paced, late), [BoundReason::SentLate { ratio: 0.02 }]);
        let mut busy = report(1_000, 1_000);
        busy.sends.cpu_ratio = 0.97;
        assert_eq!(reasons(&window, busy), [BoundReason::ThreadBusy { cpu_ratio: 0.97 }]);
        let lossy = SocketWorkerReport { receive_drops: 10, ..report(1_000, 990) };
        assert_eq!(reasons(&paced, lossy), [BoundReason::RepliesDropped { ratio: 0.01 }]);
        let dropped = SocketWorkerReport { send_buffer_errors: 12, ..report(1_000, 990) };
        assert_eq!(reasons(&paced, dropped), [BoundReason::RequestsDropped { ratio: 0.01 }]);
        let mut overtime = report(1_000, 1_000);
        overtime.sends.last_sent_ns = 1_100_000_000;
        assert!(outcome_of(&paced, false, &[overtime]).generator_bound);
    }

    #[test]
    fn late_replies_to_used_up_tags_are_the_generators_limit() {
        let used_up = [BoundReason::TagsUsedUp { ratio: 0.1 }];
        for (tags, answered, late, duplicate, expected) in [
            (None, 900, 100, 0, &[][..]),
            // Late replies of the slot before, because no tag was used twice.
            (Some(1_000), 900, 100, 100, &[]),
            (Some(512), 900, 100, 0, &used_up),
            // Each of 100 replies answered a later request, whose reply is the duplicate.
            (Some(512), 900, 0, 100, &used_up),
            // A network that duplicates datagrams.
            (Some(512), 1_000, 0, 100, &[]),
        ] {
            let slot = LoadSlot::rate(1_000.0, SECOND);
            let slot_facts = SlotFacts { tags, ..facts(&slot) };
            let mut report = report(1_000, answered);
            (report.totals.counts.late, report.totals.counts.duplicate) = (late, duplicate);
            let outcome = outcome(&slot_facts, &[report], Vec::new());
            assert_eq!(outcome.self_watch.bound_because, expected);
        }
    }

    #[test]
    fn forbidden_sends_do_not_count_as_generator_bound() {
        let mut forbidden = report(500, 0);
        forbidden.totals.errors.forbidden = 500;
        assert!(!outcome_of(&LoadSlot::rate(1_000.0, SECOND), false, &[forbidden]).generator_bound);
        let mut refused = report(500, 0);
        refused.totals.errors.refused = 500;
        assert!(outcome_of(&LoadSlot::rate(1_000.0, SECOND), false, &[refused]).generator_bound);
    }

    #[test]
    fn a_cancelled_slot_ends_with_its_cancellation_and_not_with_its_last_request() {
        let report_until = |last_sent_ns, ended_ns, count| {
            let mut report = report(count, count);
            (report.sends.last_sent_ns, report.sends.ended_ns) = (last_sent_ns, ended_ns);
            report
        };
        let once = report_until(100_000, 500_000_000, 1);
        let span = SlotSpan { duration_ns: 1_000_000_000, interval_ns: 100_000_000, ..SlotSpan::default() };
        let intervals = (0..10).map(|number| span.interval(number)).collect();
        let slot = LoadSlot::rate(1.0, SECOND);
        let slot_facts = SlotFacts { cancelled: true, ..facts(&slot) };
        let outcome = outcome(&slot_facts, &[once], intervals);
        assert_eq!(outcome.duration, SECOND / 2);
        assert_eq!((outcome.offered_per_second, outcome.answered_per_second), (2.0, 2.0));
        assert_eq!(outcome.intervals.len(), 5, "intervals without requests count");
        let half = report_until(500_000_000, 500_000_000, 500);
        let outcome = outcome_of(&LoadSlot::rate(1_000.0, SECOND), true, &[half]);
        assert_eq!(outcome.duration, SECOND / 2);
        assert_eq!(outcome.offered_per_second, 1_000.0);
        let none = report_until(0, 0, 0);
        let outcome = outcome_of(&LoadSlot::rate(1_000.0, SECOND), true, &[none]);
        assert_eq!((outcome.sent, outcome.loss_ratio()), (0, 1.0));
    }

    #[test]
    fn outcome_merges_reply_codes_and_bursts_of_all_threads() {
        let (mut first, mut second) = (report(30, 30), report(12, 12));
        first.totals.codes[0] = 28;
        first.totals.codes[3] = 2;
        second.totals.codes[3] = 7;
        second.totals.codes[0x83] = 5;
        first.counts.bursts[1] = 6;
        first.counts.bursts[24] = 1;
        second.counts.bursts[3] = 4;
        let name = |code| (code == 3).then_some("NXDOMAIN");
        let truncated = Some(ReplyMark { offset: 2, mask: 2, value: 2 });
        let code = ReplyCode { offset: 3, mask: 0x0f, truncated, name };
        let reports = [first, second];
        let code_counts = codes(code, &reports);
        let fields = |code: &CodeCount| (code.code, code.name.clone(), code.count, code.truncated);
        assert_eq!(
            code_counts.iter().map(fields).collect::<Vec<_>>(),
            [(0, None, 28, 0), (3, Some("NXDOMAIN".to_owned()), 14, 5)]
        );
        assert_eq!(bursts(&reports).summary(), SendBursts { median_requests: 1, max_requests: 24 });
    }
}
