use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::latency::{Latency, LatencyQuantiles};
use crate::outcome::{CodeCount, QueueMedians, SelfWatch, SendBursts, SendErrors, SendMethod, SlotInterval};

const SECOND: u64 = 1_000_000_000;

/// A run of two seconds that began at `began` seconds, with these latencies in ns.
fn run(began: f64, latencies: &[u64], lost: u64) -> LoadReport {
    let mut latency_ns = Latency::new();
    latencies.iter().for_each(|ns| latency_ns.record(*ns));
    let answered = latencies.len() as u64;
    let interval = |number: u32| SlotInterval {
        number,
        begins_seconds: f64::from(number),
        seconds: 1.0,
        sent: answered + lost,
        received: answered,
        answered: Some(answered),
        latency_ns: LatencyQuantiles {
            p50: Some(5),
            p90: Some(6),
            p99: Some(7),
            p999: Some(8),
            max: Some(9),
        },
    };
    LoadReport {
        generator: GeneratorDescription {
            backend: "socket".to_owned(),
            workload: "echo".to_owned(),
            threads: 1,
            flows: 4,
            payload_bytes: 100,
            targets: vec!["10.0.0.1:7".parse().unwrap()],
            cpus: vec![0],
            receive_buffer_bytes: 1,
            ..GeneratorDescription::default()
        },
        outcome: SlotOutcome {
            started_realtime_ns: 1_000 * SECOND + (began * 1e9) as u64,
            sent: answered + lost,
            answered,
            lost,
            duplicate: 1,
            reordered: 2,
            corrupt: 3,
            unsolicited: 4,
            late: 5,
            send_errors: SendErrors { refused: 1, ..SendErrors::default() },
            duration: Duration::from_secs(2),
            requested_per_second: Some(10.0),
            offered_per_second: 10.0,
            answered_per_second: 8.0,
            latency_ns,
            codes: vec![CodeCount { code: 2, name: Some("two".to_owned()), count: answered, truncated: 1 }],
            unverified: 6,
            bursts: SendBursts { median_requests: 3, max_requests: 7 },
            intervals: (0..2).map(interval).collect(),
            queue: QueueMedians { first_half_ns: Some(1), last_quarter_ns: Some(2) },
            self_watch: SelfWatch { late_sends: 1, thread_cpu_ratio: vec![0.5], ..SelfWatch::default() },
            ..SlotOutcome::default()
        },
        ..LoadReport::default()
    }
}

fn part(name: &str, report: LoadReport) -> LoadPart {
    let argv = vec!["linerate".to_owned(), report.outcome.started_realtime_ns.to_string()];
    LoadPart { name: name.to_owned(), argv, report }
}

fn merge_result(reports: &[LoadReport]) -> (LoadReport, Vec<String>) {
    let parts: Vec<_> =
        ('a'..).zip(reports).map(|(name, run)| part(&name.to_string(), run.clone())).collect();
    merge(&parts).unwrap()
}

fn json(report: &LoadReport) -> serde_json::Value {
    serde_json::to_value(report).unwrap()
}

fn read(text: &str) -> Result<LoadReport, String> {
    let report: LoadReport = serde_json::from_str(text).map_err(|error| error.to_string())?;
    report.check()?;
    Ok(report)
}

#[test]
fn single_and_merged_reports_round_trip_through_json() {
    let single = run(0.0, &[10_000, 20_000, 70_000], 2);
    assert_eq!(json(&read(&json(&single).to_string()).unwrap()), json(&single));
    let (total, _) = merge_result(&[single, run(0.01, &[5_000], 0)]);
    assert_eq!(json(&read(&json(&total).to_string()).unwrap()), json(&total));
}

#[test]
fn damaged_reports_are_refused() {
    let sound = json(&run(0.0, &[10_000], 2));
    let error_after = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut value = sound.clone();
        change(&mut value);
        read(&value.to_string()).unwrap_err()
    };
    assert!(error_after(&|v| v["sent"] = 9.into()).contains("1 answered and 2 lost are not the 9 sent"));
    assert!(error_after(&|v| v["late"] = u64::MAX.into()).contains("beyond any run"));
    assert!(error_after(&|v| v["late"] = (-1).into()).contains("invalid value"));
    assert!(error_after(&|v| v["offered_per_second"] = (-1.0).into()).contains("neither a rate nor a time"));
    assert!(error_after(&|v| v["duration_seconds"] = (-1.0).into()).contains("no duration"));
    assert!(error_after(&|v| v["duration_seconds"] = 0.into()).contains("a duration of 0ns"));
    assert!(error_after(&|v| v["intervals"][0]["seconds"] = 0.into()).contains("no length"));
    assert!(error_after(&|v| v["latency_ns"]["histogram"] = "x".into()).contains("histogram cannot be read"));
    assert!(error_after(&|v| v["generator"] = serde_json::Value::Null).contains("invalid type"));
}

#[test]
fn merged_send_method_is_mixed_if_the_runs_differ() {
    let run_with = |began, send_method| {
        let mut report = run(began, &[10_000], 0);
        report.outcome.self_watch.send_method = send_method;
        report
    };
    let merged_method =
        |a, b| merge_result(&[run_with(0.0, a), run_with(0.05, b)]).0.outcome.self_watch.send_method;
    assert_eq!(merged_method(SendMethod::Clones, SendMethod::Clones), SendMethod::Clones);
    assert_eq!(merged_method(SendMethod::Clones, SendMethod::LiveFrames), SendMethod::Mixed);
}

#[test]
fn simultaneous_runs_add_up_counts_rates_and_intervals() {
    let (total, warnings) = merge_result(&[run(0.0, &[10_000, 20_000], 1), run(0.05, &[30_000], 0)]);
    let outcome = &total.outcome;
    assert_eq!((outcome.sent, outcome.answered, outcome.lost), (4, 3, 1));
    assert_eq!((outcome.offered_per_second, outcome.requested_per_second), (20.0, Some(20.0)));
    assert_eq!((outcome.duplicate, outcome.late, outcome.send_errors.refused), (2, 10, 2));
    assert_eq!(outcome.self_watch.send_method, SendMethod::Datagrams);
    assert_eq!(outcome.codes, [CodeCount { code: 2, name: Some("two".to_owned()), count: 3, truncated: 2 }]);
    assert_eq!(outcome.duration, Duration::from_millis(2_050));
    assert_eq!((total.generator.threads, total.generator.flows), (2, 8));
    assert_eq!(total.overlap_ratio, Some(0.975));
    assert!(warnings.is_empty(), "{warnings:?}");
    let intervals = &outcome.intervals;
    assert_eq!(intervals.len(), 2);
    assert_eq!((intervals[1].number, intervals[1].sent, intervals[1].answered), (1, 4, Some(3)));
    assert_eq!((intervals[1].latency_ns.p50, intervals[1].latency_ns.max), (None, Some(9)));
}

#[test]
fn rates_of_consecutive_runs_are_averaged_with_a_warning() {
    let (total, warnings) = merge_result(&[run(0.0, &[10_000], 0), run(6.0, &[10_000], 0)]);
    assert_eq!(total.overlap_ratio, Some(0.0));
    // Two runs of 2 s at 10 requests per second, within 8 s.
    assert_eq!((total.outcome.offered_per_second, total.outcome.requested_per_second), (5.0, None));
    assert!(warnings[0].contains("overlap by 0 %"), "{warnings:?}");
    let begins: Vec<f64> = total.outcome.intervals.iter().map(|interval| interval.begins_seconds).collect();
    assert_eq!(begins, [0.0, 1.0, 6.0, 7.0]);
}

#[test]
fn clock_offsets_are_corrected_and_uncertain_offsets_warn() {
    let run_with = |began: f64, ahead_seconds: f64, uncertain_seconds: f64| {
        let mut report = run(began, &[10_000], 0);
        report.clock = Some(ClockOffset { ahead_seconds, uncertain_seconds });
        report
    };
    // The second clock is a minute ahead; both runs began at the same time.
    let (total, warnings) = merge_result(&[run_with(0.0, 0.001, 0.002), run_with(60.0, 60.0, 0.002)]);
    assert_eq!(total.overlap_ratio, Some(1.0));
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(
        (total.merged[1].started_realtime_ns, total.merged[1].clock.map(|clock| clock.ahead_seconds)),
        (1_060 * SECOND, Some(60.0))
    );
    // The clocks may differ by more than a tenth of the runs' duration of 2 s.
    let (total, warnings) =
        merge_result(&[run_with(0.0, 0.0, 0.16), run_with(0.0, 0.05, 0.1), run_with(0.0, 0.0, 0.01)]);
    assert_eq!(total.overlap_ratio, Some(1.0));
    assert!(warnings[0].starts_with("the clocks of a and b may differ by 0.310 s"), "{warnings:?}");
}

#[test]
fn merging_warns_about_misaligned_or_unequal_intervals() {
    let (_, warnings) = merge_result(&[run(0.0, &[1], 0), run(0.4, &[1], 0)]);
    assert!(warnings.iter().any(|warning| warning.contains("up to 400 ms apart")), "{warnings:?}");
    let mut other = run(0.0, &[1, 2], 0);
    other.outcome.intervals.iter_mut().for_each(|interval| interval.seconds = 0.5);
    let (total, warnings) = merge_result(&[run(0.0, &[1], 0), other]);
    assert!(total.outcome.intervals.is_empty());
    assert!(warnings[0].contains("cannot be joined"), "{warnings:?}");
}

#[test]
fn merging_refuses_too_few_different_or_repeated_reports() {
    let first = || part("one", run(0.0, &[1], 0));
    let merge_error = |parts: Vec<LoadPart>| merge(&parts).unwrap_err().to_string();
    for parts in [vec![], vec![first()]] {
        assert!(merge_error(parts).starts_with("nothing to merge"));
    }
    let mut dns = run(0.0, &[1, 2], 0);
    dns.generator.workload = "dns".to_owned();
    let error = merge_error(vec![first(), part("two", dns)]);
    assert!(error.starts_with("two is of dns with 100 bytes, one of echo with 100 bytes"));
    let error = merge_error(vec![first(), part("copy", run(0.0, &[1], 0))]);
    assert!(error.starts_with("copy and one are of the same run"), "{error}");
    let (total, _) = merge_result(&[run(0.0, &[1], 0), run(0.0, &[1, 2], 0)]);
    let error = merge_error(vec![part("both", total), first()]);
    assert!(error.starts_with("one and both are of the same run"), "{error}");
}

proptest! {
    #[test]
    fn merging_runs_equals_recording_one_run(
        runs in prop::collection::vec((prop::collection::vec(0_u64..100_000_000_000, 0..50), 0_u64..1_000), 2..5),
    ) {
        let reports: Vec<LoadReport> = runs
            .iter()
            .enumerate()
            .map(|(index, (latencies, lost))| {
                // Each report is written as JSON text and read again.
                read(&json(&run(index as f64 * 0.001, latencies, *lost)).to_string()).unwrap()
            })
            .collect();
        let all: Vec<u64> = runs.iter().flat_map(|(latencies, _)| latencies.clone()).collect();
        let reference = run(0.0, &all, runs.iter().map(|(_, lost)| lost).sum());
        let (total, _) = merge_result(&reports);
        prop_assert_eq!(&total.outcome.latency_ns, &reference.outcome.latency_ns);
        prop_assert_eq!(total.outcome.sent, reference.outcome.sent);
        prop_assert_eq!(total.outcome.answered, reference.outcome.answered);
        prop_assert_eq!(total.outcome.lost, reference.outcome.lost);
        prop_assert_eq!(total.outcome.sent, total.outcome.answered + total.outcome.lost);
        for (interval, expected) in total.outcome.intervals.iter().zip(&reference.outcome.intervals) {
            prop_assert_eq!((interval.sent, interval.answered), (expected.sent, expected.answered));
        }
        // The order of the reports does not matter.
        let reversed: Vec<LoadReport> = reports.iter().rev().cloned().collect();
        prop_assert_eq!(&merge_result(&reversed).0.outcome.latency_ns, &total.outcome.latency_ns);
    }
}
