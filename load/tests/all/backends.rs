//! Behaviour of both backends, and of one where the other cannot show it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linerate_load::generator::{GeneratorOptions, LiveFrames, MAX_BURST};
use linerate_load::workload::ntp;
use linerate_load::{
    GeneratorError, LoadSlot, LoadWorkload, PacingMode, SendErrors, SlotInterval, SlotOutcome,
};
use linerate_testkit::skip;

use crate::scene::Scene;
use crate::service::{
    Service, assert_balanced, assert_nobody_listens, cancel_after, echo, echo_with_forged_replies, rate, slot,
};

#[test]
fn all_echo_requests_are_answered() {
    Scene::with_each_backend("all_echo_requests_are_answered", |scene| {
        for v4 in scene.families() {
            let service = scene.echo(*v4);
            let Some(mut generator) = scene.generator(&service, 5) else { return };
            let (mut answered, mut full_schedules) = (0, 0);
            for mode in [rate(5_000.0), PacingMode::Window { outstanding: 3 }, rate(200.0)] {
                let outcome = generator.run(&slot(mode, 300)).unwrap();
                assert_balanced(&outcome);
                // The link refuses requests if the receiver has no time to empty its queue on a
                // busy machine.
                assert_eq!(outcome.lost, outcome.self_watch.refused_by_link, "{outcome:?}");
                assert_eq!((outcome.corrupt, outcome.unsolicited, outcome.late), (0, 0, 0), "{outcome:?}");
                assert!(outcome.answered > 0 && outcome.send_errors == SendErrors::default(), "{outcome:?}");
                if let Some(per_second) = outcome.requested_per_second {
                    let schedule = (per_second * 0.3).round() as u64;
                    assert!(outcome.sent <= schedule);
                    full_schedules += u32::from(outcome.sent == schedule);
                }
                answered += outcome.answered;
            }
            // On a busy machine, a thread that is late at the end of a slot drops the rest of its
            // schedule.
            assert!(full_schedules > 0, "the whole schedule is sent");
            drop(generator);
            // The receiver's kernel drops requests with a wrong checksum, so all checksums were
            // correct.
            assert_eq!(service.stop().received, answered);
        }
    });
}

#[test]
fn two_xdp_threads_lose_no_replies() {
    let test = "two_xdp_threads_lose_no_replies";
    let Some(scene) = Scene::new(test) else { return };
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skip(test, "one CPU");
    }
    let sources = Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    let service_sources = Arc::clone(&sources);
    let service = scene.serve(true, move |socket, request, source, account| {
        service_sources.lock().unwrap().insert(source);
        echo(socket, request, source, account);
    });
    let options = GeneratorOptions { threads: 2, ..scene.options(service.address, 7) };
    let Some(mut generator) = scene.generator_of(options) else { return };
    for mode in [rate(10_000.0), PacingMode::Window { outstanding: 2 }] {
        let outcome = generator.run(&slot(mode, 300)).unwrap();
        assert_balanced(&outcome);
        assert_eq!(outcome.lost, outcome.self_watch.refused_by_link, "{outcome:?}");
        assert_eq!((outcome.corrupt, outcome.unsolicited, outcome.late), (0, 0, 0), "{outcome:?}");
        let cpu_ratios = &outcome.self_watch.thread_cpu_ratio;
        assert!(cpu_ratios.len() == 2 && cpu_ratios.iter().all(|ratio| *ratio > 0.0), "{outcome:?}");
        let ports = std::mem::take(&mut *sources.lock().unwrap());
        assert_eq!(ports.len(), 7, "the flows of both threads send");
    }
}

#[test]
fn unsolicited_late_and_corrupt_replies_are_distinguished() {
    Scene::with_each_backend("unsolicited_late_and_corrupt_replies_are_distinguished", |scene| {
        let service = scene.serve(true, echo_with_forged_replies);
        let Some(mut generator) = scene.generator(&service, 1) else { return };
        let outcome = generator.run(&slot(rate(1_000.0), 100)).unwrap();
        assert_balanced(&outcome);
        assert_eq!((outcome.lost, outcome.duplicate), (0, 0), "{outcome:?}");
        assert_eq!((outcome.unsolicited, outcome.late, outcome.corrupt), (4, 1, 3), "{outcome:?}");
    });
}

#[test]
fn a_closed_port_is_reported_as_refused() {
    Scene::with_each_backend("a_closed_port_is_reported_as_refused", |scene| {
        for v4 in scene.families() {
            let closed = scene.echo(*v4);
            let Some(mut generator) = scene.generator(&closed, 3) else { return };
            closed.stop();
            for mode in [rate(1_000.0), PacingMode::Window { outstanding: 2 }] {
                assert_nobody_listens(&generator.run(&slot(mode, 100)).unwrap());
            }
        }
    });
}

#[test]
fn flood_counts_are_consistent_with_the_service() {
    Scene::with_each_backend("flood_counts_are_consistent_with_the_service", |scene| {
        let service = scene.echo(true);
        let Some(mut generator) = scene.generator(&service, 16) else { return };
        let outcome = generator.run(&slot(PacingMode::Flood, 300)).unwrap();
        drop(generator);
        let account = service.stop();
        assert_balanced(&outcome);
        let strays = (outcome.corrupt, outcome.unsolicited, outcome.late, outcome.duplicate);
        assert_eq!(strays, (0, 0, 0, 0), "{outcome:?}");
        assert!(outcome.sent > 1_000 && outcome.answered > 0, "{outcome:?}");
        assert!(outcome.requested_per_second.is_none() && outcome.bursts.max_requests > 1, "{outcome:?}");
        if !scene.is_lab() {
            let bursts = (outcome.bursts.max_requests, outcome.self_watch.late_sends);
            assert_eq!(bursts, (MAX_BURST as u64, 0), "{outcome:?}");
        }
        assert!((outcome.answered..=outcome.sent).contains(&account.received), "{account:?} {outcome:?}");
    });
}

#[test]
fn a_window_does_not_stall_on_loss() {
    Scene::with_each_backend("a_window_does_not_stall_on_loss", |scene| {
        let service = scene.serve(true, |socket, request, source, account| {
            if account.received.is_multiple_of(2) {
                socket.send_to(request, source).unwrap();
            }
        });
        let timeout = Duration::from_millis(20);
        let options = GeneratorOptions { timeout, ..scene.options(service.address, 2) };
        let Some(mut generator) = scene.generator_of(options) else { return };
        let outcome = generator.run(&slot(PacingMode::Window { outstanding: 4 }, 400)).unwrap();
        assert_balanced(&outcome);
        // If lost requests kept their places, two flows with a window of 4 would stop after 8
        // losses.
        assert!(outcome.lost > 16 && outcome.answered > 8 && outcome.self_watch.timed_out > 8, "{outcome:?}");
        // At most 8 requests are outstanding, and a lost request keeps its place for one timeout of
        // 20 ms.
        assert!(outcome.lost <= 8 * (400 / 20 + 2), "{outcome:?}");
    });
}

/// An NTP server that drops every 10th request and answers every 7th with stratum 0
/// (kiss-o'-death), which `corrupted` counts.
fn ntp_service(scene: &Scene) -> Service {
    scene.serve(true, |socket, request, source, account| {
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

fn assert_intervals_add_up(outcome: &SlotOutcome) {
    let sum = |of: fn(&SlotInterval) -> u64| outcome.intervals.iter().map(of).sum::<u64>();
    assert_eq!(sum(|interval| interval.sent), outcome.sent, "{outcome:?}");
    assert_eq!(sum(|interval| interval.answered.unwrap()), outcome.answered, "{outcome:?}");
    assert!(sum(|interval| interval.received) <= outcome.answered);
    assert!(outcome.intervals.iter().all(|interval| interval.answered <= Some(interval.sent)), "{outcome:?}");
}

#[test]
fn intervals_of_ntp_requests_are_reported_during_the_slot_and_add_up() {
    Scene::with_each_backend("intervals_of_ntp_requests_are_reported_during_the_slot_and_add_up", |scene| {
        let service = ntp_service(scene);
        let options = GeneratorOptions {
            timeout: Duration::from_millis(10),
            workload: LoadWorkload::Exchange(Arc::new(ntp::client())),
            // Each XDP thread needs a CPU of its own.
            threads: if scene.is_lab() { 1 } else { 2 },
            ..scene.options(service.address, 5)
        };
        let Some(mut generator) = scene.generator_of(options) else { return };
        assert_eq!((generator.describe().workload.as_str(), generator.describe().payload_bytes), ("ntp", 48));
        let (mut answered, mut kisses) = (0, 0);
        for mode in [rate(4_000.0), PacingMode::Window { outstanding: 4 }] {
            let slot = LoadSlot { interval: Some(Duration::from_millis(100)), ..slot(mode, 450) };
            let mut reported = Vec::new();
            let outcome = generator.watch(&slot, &mut |interval| reported.push(interval.clone())).unwrap();
            assert_balanced(&outcome);
            assert_intervals_add_up(&outcome);
            assert!(reported.iter().map(|interval| interval.number).eq(0..5), "{reported:?}");
            assert!(reported.iter().all(|interval| interval.answered.is_none()), "the slot has not ended");
            assert!(
                reported.iter().any(|interval| interval.sent > 0 && interval.received > 0),
                "{reported:?}"
            );
            assert_eq!(outcome.intervals.len(), 5);
            assert!((outcome.intervals[4].seconds - 0.05).abs() < 1e-9);
            assert!((outcome.intervals[4].begins_seconds - 0.4).abs() < 1e-9);
            assert!(outcome.intervals.iter().any(|interval| interval.latency_ns.p50.is_some()));
            // A thread that is late at the end of a slot does not send its whole schedule.
            if outcome.requested_per_second.is_some() && outcome.sent == 1_800 {
                let sent: Vec<u64> = outcome.intervals.iter().map(|interval| interval.sent).collect();
                assert_eq!(sent, [400, 400, 400, 400, 200]);
            }
            assert_eq!((outcome.duplicate, outcome.corrupt, outcome.unsolicited, outcome.late), (0, 0, 0, 0));
            assert_eq!(outcome.codes.iter().map(|code| code.count).sum::<u64>(), outcome.answered);
            assert_eq!(outcome.codes[0].name.as_deref(), Some("kiss-o'-death"));
            answered += outcome.answered;
            kisses += outcome.codes[0].count;
        }
        drop(generator);
        let account = service.stop();
        assert_eq!((answered, kisses), (account.answered, account.corrupted));
        assert!(kisses > 0 && account.dropped > 0);
    });
}

#[test]
fn a_cancelled_slot_ends_early_with_balanced_counts() {
    Scene::with_each_backend("a_cancelled_slot_ends_early_with_balanced_counts", |scene| {
        let service = scene.echo(true);
        for mode in [rate(1_000.0), rate(1.0), PacingMode::Window { outstanding: 1 }, PacingMode::Flood] {
            let cancel = Arc::new(AtomicBool::new(false));
            let options =
                GeneratorOptions { cancel: Arc::clone(&cancel), ..scene.options(service.address, 4) };
            let Some(mut generator) = scene.generator_of(options) else { return };
            let start = Instant::now();
            let canceller = cancel_after(&cancel, 100);
            let outcome = generator.run(&slot(mode, 60_000)).unwrap();
            canceller.join().unwrap();
            assert_balanced(&outcome);
            assert!(start.elapsed() < Duration::from_secs(20), "the slot was not cancelled");
            assert!(outcome.duration < Duration::from_secs(20));
            assert!(matches!(generator.run(&slot(rate(1.0), 1)), Err(GeneratorError::Cancelled)));
            cancel.store(false, Ordering::Relaxed);
            assert_balanced(&generator.run(&slot(rate(1_000.0), 20)).unwrap());
        }
    });
}

fn realtime_in(time: Duration) -> u64 {
    (SystemTime::now() + time).duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

#[test]
fn a_slot_cancelled_before_its_start_sends_nothing() {
    Scene::with_each_backend("a_slot_cancelled_before_its_start_sends_nothing", |scene| {
        let service = scene.echo(true);
        let cancel = Arc::new(AtomicBool::new(false));
        let options = GeneratorOptions { cancel: Arc::clone(&cancel), ..scene.options(service.address, 2) };
        let Some(mut generator) = scene.generator_of(options) else { return };
        let slot = LoadSlot {
            start_at_realtime_ns: Some(realtime_in(Duration::from_secs(3_600))),
            interval: Some(Duration::from_millis(10)),
            ..LoadSlot::rate(1_000.0, Duration::from_millis(50))
        };
        let canceller = cancel_after(&cancel, 30);
        assert_eq!(generator.run(&slot).unwrap().sent, 0);
        canceller.join().unwrap();
        drop(generator);
        assert_eq!(service.stop().received, 0);
    });
}

#[test]
fn slots_with_the_same_start_time_start_together() {
    let scene = Scene::loopback("slots_with_the_same_start_time_start_together");
    let service = scene.echo(true);
    let [mut first_generator, mut second_generator] =
        [(), ()].map(|()| scene.generator(&service, 2).unwrap());
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
    let error = first_generator.run(&slot).unwrap_err();
    assert!(matches!(error, GeneratorError::StartIsOver { .. }), "{error}");
}

#[test]
fn echo_payloads_shorter_than_the_header_are_matched() {
    Scene::with_each_backend("echo_payloads_shorter_than_the_header_are_matched", |scene| {
        // A payload of 18 bytes makes the shortest frame over IPv4.
        let payloads = [(true, 1), (false, 2), (true, 5), (false, 8), (true, 18), (false, 18), (true, 39)];
        // The program needs a tag.
        let without_tag = (!scene.is_lab()).then_some((true, 0));
        for (v4, payload_bytes) in without_tag.into_iter().chain(payloads) {
            // The service drops one of 10 requests, except empty ones. It damages the last byte of
            // another one of 10 if that byte does not belong to the tag.
            let service = scene.serve(v4 || !scene.has_ipv6(), move |socket, request, source, account| {
                assert_eq!(request.len(), payload_bytes);
                if account.received % 10 == 1 && payload_bytes > 0 {
                    account.dropped += 1;
                    return;
                }
                if account.received % 10 == 2 && [5, 18, 39].contains(&payload_bytes) {
                    account.corrupted += 1;
                    request[payload_bytes - 1] ^= 0x20;
                } else {
                    account.answered += 1;
                }
                socket.send_to(request, source).unwrap();
            });
            let (mut sent, mut answered, mut corrupt) = (0, 0, 0);
            // Sockets send no frames.
            let settings = if scene.is_lab() {
                &[LiveFrames::Never, LiveFrames::Always][..]
            } else {
                &[LiveFrames::Never]
            };
            for live_frames in settings {
                let options = GeneratorOptions {
                    workload: LoadWorkload::Echo { payload_bytes },
                    live_frames: *live_frames,
                    ..scene.options(service.address, 3)
                };
                let Some(mut generator) = scene.generator_of(options) else { return };
                let description = generator.describe();
                assert_eq!(
                    (description.workload.as_str(), description.payload_bytes),
                    ("echo", payload_bytes)
                );
                // At this rate, a tag of one byte identifies every outstanding request.
                let outcome = generator.run(&slot(rate(1_000.0), 200)).unwrap();
                assert_balanced(&outcome);
                assert_eq!((outcome.unsolicited, outcome.late), (0, 0), "{payload_bytes}: {outcome:?}");
                (sent, answered) = (sent + outcome.sent, answered + outcome.answered);
                corrupt += outcome.corrupt;
            }
            let account = service.stop();
            assert_eq!((sent, answered, corrupt), (account.received, account.answered, account.corrupted));
            assert!(answered > 0, "{payload_bytes}");
        }
    });
}
