//! Made-up runs of load for the tests of their rendering.

use std::time::Duration;

use linerate_load::report::LoadReport;
use linerate_load::{CodeCount, GeneratorDescription, Latency, SendBursts, SlotInterval, SlotOutcome};

use crate::envelope::{CommandResult, Envelope};
use crate::origin::{HostSummary, Warning};

/// A generator of sockets.
pub(crate) fn generator() -> GeneratorDescription {
    GeneratorDescription {
        backend: "socket".to_owned(),
        workload: "dns".to_owned(),
        threads: 2,
        flows: 64,
        payload_bytes: 40,
        targets: vec!["10.0.0.1:53".parse().expect("an address")],
        cpus: vec![0, 1],
        receive_buffer_bytes: 212_992,
        fallbacks: vec!["no live frames: <lo> has no native XDP".to_owned()],
        ..GeneratorDescription::default()
    }
}

// Three seconds at a rate, of which a share is lost in the second of them.
pub(crate) fn outcome(per_second: f64, lost: u64) -> SlotOutcome {
    let requests_per_second = per_second as u64;
    let mut latency_ns = Latency::new();
    (0..3 * requests_per_second - lost).for_each(|number| latency_ns.record(50_000 + number * 10));
    let interval = |number: u32| SlotInterval {
        number,
        begins_seconds: f64::from(number),
        seconds: 1.0,
        sent: requests_per_second,
        received: requests_per_second.saturating_sub(if number == 1 { lost } else { 0 }),
        answered: Some(requests_per_second.saturating_sub(if number == 1 { lost } else { 0 })),
        latency_ns: latency_ns.quantiles(),
    };
    SlotOutcome {
        started_realtime_ns: 1_772_375_400_000_000_000,
        sent: 3 * requests_per_second,
        answered: 3 * requests_per_second - lost,
        lost,
        duplicate: 1,
        reordered: 2,
        corrupt: 3,
        unsolicited: 4,
        late: 5,
        duration: Duration::from_secs(3),
        requested_per_second: Some(per_second),
        offered_per_second: per_second,
        answered_per_second: per_second - lost as f64 / 3.0,
        intervals: (0..3).map(interval).collect(),
        latency_ns,
        codes: vec![
            CodeCount {
                code: 0,
                name: Some("NOERROR".to_owned()),
                count: (3 * requests_per_second - lost).saturating_sub(7),
                truncated: 12,
            },
            CodeCount { code: 11, name: None, count: 7, truncated: 0 },
        ],
        bursts: SendBursts { median_requests: 4, max_requests: 32 },
        ..SlotOutcome::default()
    }
}

/// The result of one such slot.
pub(crate) fn envelope() -> Envelope<LoadReport> {
    let report = LoadReport {
        generator: generator(),
        outcome: outcome(1_000.0, 30),
        missed: vec!["1.0 % of the requests were lost, over --max-loss 0.10 %".to_owned()],
        ..LoadReport::default()
    };
    of_sender(1_772_375_400, "--rate 1k", report).with_warnings([Warning::remark("a <warning> & more")])
}

/// A result of `linerate load 10.0.0.1:53` with these options.
pub(crate) fn of_sender<T: CommandResult>(started: u64, options: &str, report: T) -> Envelope<T> {
    let command = format!("linerate load 10.0.0.1:53 {options}");
    let host = HostSummary { name: Some("gen1".to_owned()), ..HostSummary::default() };
    Envelope {
        version: "0.0.0".to_owned(),
        argv: command.split(' ').map(str::to_owned).collect(),
        ..Envelope::new(host, Some(started), report)
    }
}
