//! The account of a slot: what all threads tell, summed up and judged.

use std::time::Duration;

use super::intervals;
use super::worker::{SendTiming, SocketWorkerReport};
use crate::generator::MAX_BURST;
use crate::generator::bound::bound_because;
use crate::generator::{LoadSlot, PacingMode};
use crate::latency::Latency;
use crate::outcome::{CodeCount, QueueMedians, SelfWatch, SendBursts, SendErrors, SlotInterval, SlotOutcome};
use crate::workload::ReplyCode;

/// How a slot went, apart from what the threads tell.
#[derive(Debug, Clone, Copy)]
pub(super) struct SocketSlot {
    pub(super) timing: SendTiming,
    pub(super) start_ns: u64,
    pub(super) start_realtime_ns: u64,
    pub(super) cancelled: bool,
    pub(super) code: Option<ReplyCode>,
}

/// Sums up what the threads tell.
pub(super) fn account(
    slot: &LoadSlot,
    course: &SocketSlot,
    reports: &[SocketWorkerReport],
    mut intervals: Vec<SlotInterval>,
) -> SlotOutcome {
    let SocketSlot { timing, start_ns, start_realtime_ns, cancelled, code } = *course;
    let mut latency = Latency::new();
    let (mut first_half, mut last_quarter) = (Latency::new(), Latency::new());
    let mut errors = SendErrors::default();
    let mut watch = SelfWatch::default();
    for report in reports {
        latency.merge(&report.tally.latency);
        first_half.merge(&report.tally.first_half);
        last_quarter.merge(&report.tally.last_quarter);
        errors.add(&report.tally.errors);
        watch.late_sends += report.late_sends;
        watch.worst_lag_ns = watch.worst_lag_ns.max(report.worst_lag_ns);
        watch.receive_drops += report.receive_drops;
        watch.timed_out += report.timed_out;
        watch.thread_cpu_ratio.push(report.cpu_ratio);
    }
    let sum = |of: fn(&SocketWorkerReport) -> u64| reports.iter().map(of).sum::<u64>();
    let sent = sum(|report| report.sent);
    let answered = sum(|report| report.tally.counts.answered);
    let last_sent_ns = reports.iter().map(|report| report.last_sent_ns).max().unwrap_or(0);
    let elapsed = Duration::from_nanos(last_sent_ns.saturating_sub(start_ns));
    let duration = if cancelled { elapsed.min(slot.duration) } else { slot.duration };
    let seconds = duration.as_secs_f64().max(1e-9);
    intervals::complete(&mut intervals, duration, reports);
    let offered_per_second = sent as f64 / elapsed.max(duration).as_secs_f64().max(1e-9);
    let asked_per_second = match slot.mode {
        PacingMode::Rate { per_second } => Some(per_second),
        PacingMode::Window { .. } | PacingMode::Flood => None,
    };
    if let SendTiming::Paced { tick_ns, interval_ns, stride, .. } = timing {
        // Requests further apart than a tick leave at their time.
        watch.tick_ns = if interval_ns * stride as f64 >= tick_ns as f64 { 0 } else { tick_ns };
    }
    watch.bound_because =
        bound_because(asked_per_second, offered_per_second, sent, &errors, cancelled, &watch);
    SlotOutcome {
        started_realtime_ns: start_realtime_ns,
        sent,
        answered,
        lost: sent - answered,
        duplicate: sum(|report| report.tally.counts.duplicate),
        reordered: sum(|report| report.tally.counts.reordered),
        corrupt: sum(|report| report.tally.counts.corrupt),
        foreign: sum(|report| report.tally.counts.foreign),
        late: sum(|report| report.tally.counts.late),
        send_errors: errors,
        duration,
        asked_per_second,
        offered_per_second,
        answered_per_second: sum(|report| report.tally.counts.answered_in_time) as f64 / seconds,
        latency_ns: latency,
        codes: code.map_or_else(Vec::new, |code| codes(code, reports)),
        unverified: 0,
        bursts: bursts(reports),
        intervals,
        queue: QueueMedians { first_half_ns: first_half.median(), last_quarter_ns: last_quarter.median() },
        generator_bound: !watch.bound_because.is_empty(),
        self_watch: watch,
    }
}

fn codes(code: ReplyCode, reports: &[SocketWorkerReport]) -> Vec<CodeCount> {
    code.counts(|value| reports.iter().map(|report| report.tally.codes[usize::from(value)]).sum())
}

fn bursts(reports: &[SocketWorkerReport]) -> SendBursts {
    let of = |length: usize| reports.iter().map(|report| report.bursts[length]).sum::<u64>();
    let total: u64 = (1..=MAX_BURST).map(of).sum();
    let mut passed = 0;
    let median = (1..=MAX_BURST).find(|length| {
        passed += of(*length);
        passed * 2 >= total
    });
    let max = (1..=MAX_BURST).rev().find(|length| of(*length) > 0);
    let known = |length: Option<usize>| if total > 0 { length.unwrap_or(0) as u64 } else { 0 };
    SendBursts { median_requests: known(median), max_requests: known(max) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::socket::tally::{DatagramCounts, ReceivedTotals};
    use crate::outcome::BoundReason;
    use crate::workload::ReplyMark;

    const SECOND: Duration = Duration::from_secs(1);

    fn report(sent: u64, answered: u64) -> SocketWorkerReport {
        SocketWorkerReport {
            sent,
            tally: ReceivedTotals {
                counts: DatagramCounts { answered, answered_in_time: answered, ..DatagramCounts::default() },
                ..ReceivedTotals::default()
            },
            bursts: [0; MAX_BURST + 1],
            intervals: Vec::new(),
            late_sends: 0,
            worst_lag_ns: 0,
            timed_out: 0,
            receive_drops: 0,
            cpu_ratio: 0.5,
            last_sent_ns: 1_000_000_000,
        }
    }

    fn of(slot: &LoadSlot, cancelled: bool, reports: &[SocketWorkerReport]) -> SlotOutcome {
        let timing = SendTiming::Window { outstanding: 1, timeout_ns: 1 };
        let course = SocketSlot { timing, start_ns: 0, start_realtime_ns: 0, cancelled, code: None };
        account(slot, &course, reports, Vec::new())
    }

    #[test]
    fn threads_are_summed_and_the_generator_is_cleared() {
        let outcome = of(&LoadSlot::rate(200.0, SECOND), false, &[report(100, 99), report(100, 90)]);
        assert_eq!((outcome.sent, outcome.answered, outcome.lost), (200, 189, 11));
        assert_eq!((outcome.offered_per_second, outcome.answered_per_second), (200.0, 189.0));
        assert!(!outcome.generator_bound && outcome.self_watch.thread_cpu_ratio == [0.5, 0.5]);
    }

    #[test]
    fn a_generator_at_its_limit_says_why() {
        let reasons =
            |mode: &LoadSlot, report: SocketWorkerReport| of(mode, false, &[report]).self_watch.bound_because;
        let paced = LoadSlot::rate(1_000.0, SECOND);
        let window = LoadSlot::window(1, SECOND);
        assert_eq!(reasons(&paced, report(980, 980)), [BoundReason::OfferedTooLittle { ratio: 0.98 }]);
        let late = SocketWorkerReport { late_sends: 20, ..report(1_000, 1_000) };
        assert_eq!(reasons(&paced, late), [BoundReason::SentLate { ratio: 0.02 }]);
        let busy = SocketWorkerReport { cpu_ratio: 0.97, ..report(1_000, 1_000) };
        assert_eq!(reasons(&window, busy), [BoundReason::ThreadBusy { cpu_ratio: 0.97 }]);
        let deaf = SocketWorkerReport { receive_drops: 10, ..report(1_000, 990) };
        assert_eq!(reasons(&paced, deaf), [BoundReason::RepliesDropped { ratio: 0.01 }]);
        let overtime = SocketWorkerReport { last_sent_ns: 1_100_000_000, ..report(1_000, 1_000) };
        assert!(of(&paced, false, &[overtime]).generator_bound);
    }

    #[test]
    fn what_the_kernel_would_not_take_is_no_lack_of_speed() {
        let mut forbidden = report(500, 0);
        forbidden.tally.errors.forbidden = 500;
        assert!(!of(&LoadSlot::rate(1_000.0, SECOND), false, &[forbidden]).generator_bound);
        let mut refused = report(500, 0);
        refused.tally.errors.refused = 500;
        assert!(of(&LoadSlot::rate(1_000.0, SECOND), false, &[refused]).generator_bound);
    }

    #[test]
    fn a_cancelled_slot_is_as_long_as_it_was() {
        let half = SocketWorkerReport { last_sent_ns: 500_000_000, ..report(500, 500) };
        let outcome = of(&LoadSlot::rate(1_000.0, SECOND), true, &[half]);
        assert_eq!(outcome.duration, SECOND / 2);
        assert_eq!(outcome.offered_per_second, 1_000.0);
        let none = SocketWorkerReport { last_sent_ns: 0, ..report(0, 0) };
        let outcome = of(&LoadSlot::rate(1_000.0, SECOND), true, &[none]);
        assert_eq!((outcome.sent, outcome.loss_ratio()), (0, 1.0));
    }

    #[test]
    fn codes_and_bursts_of_all_threads_are_counted() {
        let (mut one, mut other) = (report(30, 30), report(12, 12));
        one.tally.codes[0] = 28;
        one.tally.codes[3] = 2;
        other.tally.codes[3] = 7;
        other.tally.codes[0x83] = 5;
        one.bursts[1] = 6;
        one.bursts[24] = 1;
        other.bursts[3] = 4;
        let name = |code| (code == 3).then_some("NXDOMAIN");
        let truncated = Some(ReplyMark { offset: 2, mask: 2, value: 2 });
        let code = ReplyCode { offset: 3, mask: 0x0f, truncated, name };
        let reports = [one, other];
        let counted = codes(code, &reports);
        let of = |counted: &CodeCount| (counted.code, counted.name.clone(), counted.count, counted.truncated);
        assert_eq!(
            counted.iter().map(of).collect::<Vec<_>>(),
            [(0, None, 28, 0), (3, Some("NXDOMAIN".to_owned()), 14, 5)]
        );
        assert_eq!(bursts(&reports), SendBursts { median_requests: 1, max_requests: 24 });
        assert_eq!(bursts(&[report(0, 0)]), SendBursts::default());
    }
}
