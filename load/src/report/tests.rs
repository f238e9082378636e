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
        no_reply: false,
        generator: GeneratorDescription {
            backend: "socket".to_owned(),
            workload: "echo".to_owned(),
            threads: 1,
            flows: 4,
            payload_bytes: 100,
            targets: vec!["10.0.0.1:7".parse().unwrap()],
            sources: Vec::new(),
            cpus: vec![0],
            no_fragment: false,
            nice: None,
            receive_buffer_bytes: 1,
            fallbacks: Vec::new(),
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
            generator_bound: false,
        },
        missed: Vec::new(),
        merged: Vec::new(),
        overlap_ratio: None,
        clock: None,
    }
}

fn part(name: &str, report: LoadReport) -> LoadPart {
    let argv = vec!["linerate".to_owned(), report.outcome.started_realtime_ns.to_string()];
    LoadPart { name: name.to_owned(), argv, report }
}

fn merged(reports: &[LoadReport]) -> (LoadReport, Vec<String>) {
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
fn a_report_is_read_as_it_was_written() {
    let written = run(0.0, &[10_000, 20_000, 70_000], 2);
    assert_eq!(json(&read(&json(&written).to_string()).unwrap()), json(&written));
    let (both, _) = merged(&[written, run(0.01, &[5_000], 0)]);
    assert_eq!(json(&read(&json(&both).to_string()).unwrap()), json(&both));
}

#[test]
fn damaged_reports_are_refused() {
    let sound = json(&run(0.0, &[10_000], 2));
    let refused = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut value = sound.clone();
        change(&mut value);
        read(&value.to_string()).unwrap_err()
    };
    assert!(refused(&|v| v["sent"] = 9.into()).contains("1 answered and 2 lost are not the 9 sent"));
    assert!(refused(&|v| v["late"] = u64::MAX.into()).contains("beyond any run"));
    assert!(refused(&|v| v["late"] = (-1).into()).contains("invalid value"));
    assert!(refused(&|v| v["offered_per_second"] = (-1.0).into()).contains("neither a rate nor a time"));
    assert!(refused(&|v| v["duration_seconds"] = (-1.0).into()).contains("no duration"));
    assert!(refused(&|v| v["duration_seconds"] = 0.into()).contains("a duration of 0ns"));
    assert!(refused(&|v| v["intervals"][0]["seconds"] = 0.into()).contains("no length"));
    assert!(refused(&|v| v["latency_ns"]["histogram"] = "x".into()).contains("histogram cannot be read"));
    assert!(refused(&|v| v["generator"] = serde_json::Value::Null).contains("invalid type"));
}

#[test]
fn how_requests_left_is_told_of_merged_runs() {
    let of = |began, send_method| {
        let mut one = run(began, &[10_000], 0);
        one.outcome.self_watch.send_method = send_method;
        one
    };
    let both = |a, b| merged(&[of(0.0, a), of(0.05, b)]).0.outcome.self_watch.send_method;
    assert_eq!(both(SendMethod::Clones, SendMethod::Clones), SendMethod::Clones);
    assert_eq!(both(SendMethod::Clones, SendMethod::LiveFrames), SendMethod::Mixed);
}

#[test]
fn runs_at_the_same_time_add_up() {
    let (both, warnings) = merged(&[run(0.0, &[10_000, 20_000], 1), run(0.05, &[30_000], 0)]);
    let outcome = &both.outcome;
    assert_eq!((outcome.sent, outcome.answered, outcome.lost), (4, 3, 1));
    assert_eq!((outcome.offered_per_second, outcome.requested_per_second), (20.0, Some(20.0)));
    assert_eq!((outcome.duplicate, outcome.late, outcome.send_errors.refused), (2, 10, 2));
    assert_eq!(outcome.self_watch.send_method, SendMethod::Datagrams);
    assert_eq!(outcome.codes, [CodeCount { code: 2, name: Some("two".to_owned()), count: 3, truncated: 2 }]);
    assert_eq!(outcome.duration, Duration::from_millis(2_050));
    assert_eq!((both.generator.threads, both.generator.flows), (2, 8));
    assert_eq!(both.overlap_ratio, Some(0.975));
    assert!(warnings.is_empty(), "{warnings:?}");
    let intervals = &outcome.intervals;
    assert_eq!(intervals.len(), 2);
    assert_eq!((intervals[1].number, intervals[1].sent, intervals[1].answered), (1, 4, Some(3)));
    assert_eq!((intervals[1].latency_ns.p50, intervals[1].latency_ns.max), (None, Some(9)));
}

#[test]
fn runs_one_after_the_other_do_not_add_up_to_a_rate() {
    let (both, warnings) = merged(&[run(0.0, &[10_000], 0), run(6.0, &[10_000], 0)]);
    assert_eq!(both.overlap_ratio, Some(0.0));
    // Two runs of 2 s at 10 requests per second, within 8 s.
    assert_eq!((both.outcome.offered_per_second, both.outcome.requested_per_second), (5.0, None));
    assert!(warnings[0].contains("overlap by 0 %"), "{warnings:?}");
    let begins: Vec<f64> = both.outcome.intervals.iter().map(|interval| interval.begins_seconds).collect();
    assert_eq!(begins, [0.0, 1.0, 6.0, 7.0]);
}

#[test]
fn clocks_that_are_off_are_corrected_and_uncertain_ones_are_told() {
    let of = |began: f64, ahead_seconds: f64, uncertain_seconds: f64| {
        let mut one = run(began, &[10_000], 0);
        one.clock = Some(ClockOffset { ahead_seconds, uncertain_seconds });
        one
    };
    // The second clock is a minute ahead; both runs began at the same time.
    let (both, warnings) = merged(&[of(0.0, 0.001, 0.002), of(60.0, 60.0, 0.002)]);
    assert_eq!(both.overlap_ratio, Some(1.0));
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(
        (both.merged[1].started_realtime_ns, both.merged[1].clock.map(|clock| clock.ahead_seconds)),
        (1_060 * SECOND, Some(60.0))
    );
    // The clocks may differ by more than a tenth of the runs' duration of 2 s.
    let (both, warnings) = merged(&[of(0.0, 0.0, 0.16), of(0.0, 0.05, 0.1), of(0.0, 0.0, 0.01)]);
    assert_eq!(both.overlap_ratio, Some(1.0));
    assert!(warnings[0].starts_with("the clocks of a and b may differ by 0.310 s"), "{warnings:?}");
}

#[test]
fn intervals_that_do_not_fit_are_told() {
    let (_, warnings) = merged(&[run(0.0, &[1], 0), run(0.4, &[1], 0)]);
    assert!(warnings.iter().any(|warning| warning.contains("up to 400 ms apart")), "{warnings:?}");
    let mut other = run(0.0, &[1, 2], 0);
    other.outcome.intervals.iter_mut().for_each(|interval| interval.seconds = 0.5);
    let (left_out, warnings) = merged(&[run(0.0, &[1], 0), other]);
    assert!(left_out.outcome.intervals.is_empty());
    assert!(warnings[0].contains("cannot be joined"), "{warnings:?}");
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let one = || part("one", run(0.0, &[1], 0));
    let refused = |parts: Vec<LoadPart>| merge(&parts).unwrap_err();
    assert_eq!(refused(vec![]), MergeError::TooFew);
    assert_eq!(refused(vec![one()]), MergeError::TooFew);
    let mut dns = run(0.0, &[1, 2], 0);
    dns.generator.workload = "dns".to_owned();
    let error = refused(vec![one(), part("two", dns)]);
    assert!(error.to_string().starts_with("two is of dns with 100 bytes, one of echo with 100 bytes"));
    assert!(matches!(refused(vec![one(), part("copy", run(0.0, &[1], 0))]), MergeError::Twice { .. }));
    let (merged, _) = merged(&[run(0.0, &[1], 0), run(0.0, &[1, 2], 0)]);
    assert!(matches!(refused(vec![part("both", merged), one()]), MergeError::Twice { .. }));
}

proptest! {
    #[test]
    fn merged_is_as_if_recorded_together(
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
        let together = run(0.0, &all, runs.iter().map(|(_, lost)| lost).sum());
        let (merged, _) = merged(&reports);
        prop_assert_eq!(&merged.outcome.latency_ns, &together.outcome.latency_ns);
        prop_assert_eq!(merged.outcome.sent, together.outcome.sent);
        prop_assert_eq!(merged.outcome.answered, together.outcome.answered);
        prop_assert_eq!(merged.outcome.lost, together.outcome.lost);
        prop_assert_eq!(merged.outcome.sent, merged.outcome.answered + merged.outcome.lost);
        for (interval, expected) in merged.outcome.intervals.iter().zip(&together.outcome.intervals) {
            prop_assert_eq!((interval.sent, interval.answered), (expected.sent, expected.answered));
        }
        // The order of the reports does not matter.
        let reversed: Vec<LoadReport> = reports.iter().rev().cloned().collect();
        prop_assert_eq!(&super::tests::merged(&reversed).0.outcome.latency_ns, &merged.outcome.latency_ns);
    }
}
