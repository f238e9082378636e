//! Intervals, floods, exchanges and simultaneous starts, against services on loopback.

mod service;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linerate_load::generator::GeneratorBuilder;
use linerate_load::workload::ntp;
use linerate_load::{
    Generator, GeneratorError, LoadSlot, LoadWorkload, PacingMode, SlotInterval, SlotOutcome,
};
use service::{Service, cancel_after};

/// An NTP server that drops every 10th request and answers every 7th with stratum 0
/// (kiss-o'-death).
fn ntp_service() -> Service {
    Service::start(|socket, request, source, account| {
        if account.received % 10 == 0 {
            account.dropped += 1;
            return;
        }
        let mut reply = [0; 48];
        reply[0] = request[0] & 0x38 | 4;
        reply[1] = if account.received % 7 == 0 { 0 } else { 2 };
        reply[24..32].copy_from_slice(&request[40..48]);
        account.answered += 1;
        account.corrupted += u64::from(reply[1] == 0);
        socket.send_to(&reply, source).unwrap();
    })
}

fn outcome_and_intervals(generator: &mut dyn Generator, slot: &LoadSlot) -> (SlotOutcome, Vec<SlotInterval>) {
    let mut intervals = Vec::new();
    let outcome = generator.watch(slot, &mut |interval| intervals.push(interval.clone())).unwrap();
    (outcome, intervals)
}

fn assert_adds_up(outcome: &SlotOutcome) {
    assert_eq!(outcome.sent, outcome.answered + outcome.lost);
    let sum = |of: fn(&SlotInterval) -> u64| outcome.intervals.iter().map(of).sum::<u64>();
    assert_eq!(sum(|interval| interval.sent), outcome.sent, "{outcome:?}");
    assert_eq!(sum(|interval| interval.answered.unwrap()), outcome.answered);
    assert!(sum(|interval| interval.received) <= outcome.answered);
}

#[test]
fn intervals_are_reported_during_the_slot_and_add_up() {
    let service = ntp_service();
    let mut generator = GeneratorBuilder::default()
        .targets(vec![service.address])
        .flows(5)
        .threads(2)
        .timeout(Duration::from_millis(10))
        .workload(LoadWorkload::Exchange(Arc::new(ntp::client())))
        .start_socket()
        .unwrap();
    for mode in [PacingMode::Rate { per_second: 4_000.0 }, PacingMode::Window { outstanding: 4 }] {
        let slot = LoadSlot {
            interval: Some(Duration::from_millis(100)),
            ..LoadSlot::new(mode, Duration::from_millis(450))
        };
        let (outcome, reported) = outcome_and_intervals(&mut generator, &slot);
        assert_adds_up(&outcome);
        assert_eq!(reported.len(), 5);
        assert!(reported.iter().all(|interval| interval.answered.is_none()), "the slot has not ended");
        assert!(reported.iter().map(|interval| interval.number).eq(0..5));
        assert!(reported.iter().any(|interval| interval.sent > 0 && interval.received > 0), "{reported:?}");
        assert_eq!(outcome.intervals.len(), 5);
        assert!((outcome.intervals[4].seconds - 0.05).abs() < 1e-9);
        assert!((outcome.intervals[4].begins_seconds - 0.4).abs() < 1e-9);
        assert!(outcome.intervals.iter().any(|interval| interval.latency_ns.p50.is_some()));
        // A thread that is late at the end of a slot does not send its whole schedule.
        if outcome.requested_per_second.is_some() && outcome.sent == 1_800 {
            assert!(
                outcome.intervals[..4].iter().all(|interval| interval.sent == 400),
                "{:?}",
                outcome.intervals
            );
        }
    }
}

#[test]
fn ntp_replies_and_kiss_codes_are_counted_exactly() {
    let service = ntp_service();
    let mut generator = GeneratorBuilder::default()
        .targets(vec![service.address])
        .flows(3)
        .workload(LoadWorkload::Exchange(Arc::new(ntp::client())))
        .start_socket()
        .unwrap();
    assert_eq!((generator.describe().workload.as_str(), generator.describe().payload_bytes), ("ntp", 48));
    let (mut answered, mut lost, mut kisses) = (0, 0, 0);
    for mode in [PacingMode::Rate { per_second: 3_000.0 }, PacingMode::Window { outstanding: 3 }] {
        let outcome = generator.run(&LoadSlot::new(mode, Duration::from_millis(300))).unwrap();
        assert_eq!(outcome.sent, outcome.answered + outcome.lost);
        assert_eq!((outcome.duplicate, outcome.corrupt, outcome.unsolicited, outcome.late), (0, 0, 0, 0));
        answered += outcome.answered;
        lost += outcome.lost;
        assert_eq!(outcome.codes.iter().map(|code| code.count).sum::<u64>(), outcome.answered);
        kisses += outcome.codes[0].count;
        assert_eq!(outcome.codes[0].name.as_deref(), Some("kiss-o'-death"));
    }
    drop(generator);
    let account = service.stop();
    // Loopback loses nothing at this rate.
    assert_eq!((answered, lost, kisses), (account.answered, account.dropped, account.corrupted));
    assert!(lost > 0 && kisses > 0);
}

#[test]
fn flood_sends_over_twice_as_many_requests_as_window_1() {
    let service = Service::echo();
    let mut generator =
        GeneratorBuilder::default().targets(vec![service.address]).flows(2).start_socket().unwrap();
    let window = generator.run(&LoadSlot::window(1, Duration::from_millis(200))).unwrap();
    let flood = generator.run(&LoadSlot::new(PacingMode::Flood, Duration::from_millis(200))).unwrap();
    assert_eq!(flood.sent, flood.answered + flood.lost);
    assert!(flood.sent > 2 * window.sent, "{} against {}", flood.sent, window.sent);
    assert_eq!(flood.bursts.max_requests, 64);
    assert_eq!((window.bursts.median_requests, window.bursts.max_requests), (1, 1));
    assert!(flood.requested_per_second.is_none() && flood.self_watch.late_sends == 0);
}

fn realtime_in(time: Duration) -> u64 {
    (SystemTime::now() + time).duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

#[test]
fn slots_with_the_same_start_time_start_together() {
    let service = Service::echo();
    let make = || GeneratorBuilder::default().targets(vec![service.address]).flows(2).start_socket().unwrap();
    let (mut first_generator, mut second_generator) = (make(), make());
    let at = realtime_in(Duration::from_millis(200));
    let slot =
        LoadSlot { start_at_realtime_ns: Some(at), ..LoadSlot::rate(1_000.0, Duration::from_millis(50)) };
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| first_generator.run(&slot).unwrap());
        let second = second_generator.run(&slot).unwrap();
        (first.join().unwrap(), second)
    });
    assert_eq!((first.started_realtime_ns, second.started_realtime_ns), (at, at));
    assert!(first.answered > 0 && second.answered > 0);
    assert!(realtime_in(Duration::ZERO) > at);
    let error = first_generator.run(&slot).unwrap_err();
    assert!(matches!(error, GeneratorError::StartIsOver { .. }), "{error}");
}

#[test]
fn a_slot_cancelled_before_its_start_sends_nothing() {
    let service = Service::echo();
    let cancel = Arc::new(AtomicBool::new(false));
    let mut generator = GeneratorBuilder::default()
        .targets(vec![service.address])
        .cancel(Arc::clone(&cancel))
        .start_socket()
        .unwrap();
    let slot = LoadSlot {
        start_at_realtime_ns: Some(realtime_in(Duration::from_secs(3_600))),
        interval: Some(Duration::from_millis(10)),
        ..LoadSlot::rate(1_000.0, Duration::from_millis(50))
    };
    let canceller = cancel_after(&cancel, 30);
    let (outcome, _) = outcome_and_intervals(&mut generator, &slot);
    canceller.join().unwrap();
    assert_eq!(outcome.sent, 0);
    drop(generator);
    assert_eq!(service.stop().received, 0);
}

#[test]
fn flows_send_from_the_given_addresses_and_ports() {
    let sources = Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    let service_sources = Arc::clone(&sources);
    let service = Service::start(move |socket, request, source, _| {
        service_sources.lock().unwrap().insert(source);
        socket.send_to(request, source).unwrap();
    });
    let (first, second) = ("127.0.0.5", "127.0.0.6");
    let builder = GeneratorBuilder::default()
        .targets(vec![service.address])
        .sources(vec![first.parse().unwrap(), second.parse().unwrap()])
        .source_ports(23_101..=23_102);
    let outcome =
        builder.clone().flows(4).start_socket().unwrap().run(&LoadSlot::window(1, Duration::from_millis(50)));
    assert!(outcome.unwrap().answered > 0);
    let expected = [(first, 23_101), (first, 23_102), (second, 23_101), (second, 23_102)];
    let expected =
        expected.map(|(address, port)| (address.parse::<std::net::IpAddr>().unwrap(), port).into());
    assert_eq!(sources.lock().unwrap().iter().copied().collect::<Vec<_>>(), expected);
    let error = builder.flows(5).start_socket().unwrap_err().to_string();
    assert!(error.contains("5 flows, but 2 source ports on 2 source address(es)"), "{error}");
}
