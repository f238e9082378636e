//! The XDP generator between the hosts of a lab.

mod exchange;
mod manners;
mod path;
mod scene;
mod send_methods;
#[path = "../service/mod.rs"]
mod service;
mod windows;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linerate_load::{Generator as _, LoadSlot, PacingMode, SendErrors};
use scene::Scene;
use service::{assert_balanced, echo, echo_with_forged_replies, rate, skip, slot};

#[test]
fn all_echo_requests_on_the_link_are_answered() {
    let Some(scene) = Scene::new("all_echo_requests_on_the_link_are_answered") else { return };
    for v4 in [true, false] {
        let service = scene.echo(v4);
        let Some(mut generator) = scene.generator(&service, 5) else { return };
        let mut sent = 0;
        for mode in [rate(20_000.0), PacingMode::Window { outstanding: 3 }, rate(200.0)] {
            let outcome = generator.run(&slot(mode, 300)).unwrap();
            assert_balanced(&outcome);
            // The link refuses requests if the receiver has no time to empty its queue on a busy
            // machine.
            assert_eq!(outcome.lost, outcome.self_watch.refused_by_link, "{outcome:?}");
            assert_eq!((outcome.corrupt, outcome.unsolicited, outcome.late), (0, 0, 0), "{outcome:?}");
            assert!(outcome.answered > 0 && outcome.send_errors == SendErrors::default(), "{outcome:?}");
            if let (Some(per_second), false) = (outcome.requested_per_second, outcome.generator_bound) {
                assert_eq!(outcome.sent, (per_second * 0.3).round() as u64, "the whole schedule is sent");
            }
            sent += outcome.answered;
        }
        drop(generator);
        // The receiver's kernel drops requests with a wrong checksum, so all checksums were
        // correct.
        assert_eq!(service.stop().received, sent);
    }
}

#[test]
fn two_generator_threads_lose_no_replies() {
    let Some(scene) = Scene::new("two_generator_threads_lose_no_replies") else { return };
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skip("two_generator_threads_lose_no_replies", "one CPU");
    }
    let sources = Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    let service_sources = Arc::clone(&sources);
    let service = scene.serve(true, move |socket, request, source, account| {
        service_sources.lock().unwrap().insert(source);
        echo(socket, request, source, account);
    });
    let Some(mut generator) = scene.generator_of(scene.builder(service.address, 7).threads(2)) else {
        return;
    };
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
    let Some(scene) = Scene::new("unsolicited_late_and_corrupt_replies_are_distinguished") else { return };
    let service = scene.serve(true, echo_with_forged_replies);
    let Some(mut generator) = scene.generator(&service, 1) else { return };
    let outcome = generator.run(&slot(rate(1_000.0), 100)).unwrap();
    assert_balanced(&outcome);
    assert_eq!((outcome.lost, outcome.duplicate), (0, 0), "{outcome:?}");
    assert_eq!((outcome.unsolicited, outcome.late, outcome.corrupt), (4, 1, 3), "{outcome:?}");
}

#[test]
fn flood_counts_are_consistent_with_the_service() {
    let Some(scene) = Scene::new("flood_counts_are_consistent_with_the_service") else { return };
    let service = scene.echo(true);
    let Some(mut generator) = scene.generator(&service, 16) else { return };
    let outcome = generator.run(&slot(PacingMode::Flood, 300)).unwrap();
    drop(generator);
    let account = service.stop();
    assert_balanced(&outcome);
    assert_eq!(
        (outcome.corrupt, outcome.unsolicited, outcome.late, outcome.duplicate),
        (0, 0, 0, 0),
        "{outcome:?}"
    );
    assert!(outcome.sent > 1_000 && outcome.answered > 0, "{outcome:?}");
    assert!(
        account.received >= outcome.answered && account.received <= outcome.sent,
        "{account:?} {outcome:?}"
    );
}

#[test]
fn a_window_does_not_stall_on_loss() {
    let Some(scene) = Scene::new("a_window_does_not_stall_on_loss") else { return };
    let service = scene.serve(true, |socket, request, source, account| {
        if account.received.is_multiple_of(2) {
            socket.send_to(request, source).unwrap();
        }
    });
    let builder = scene.builder(service.address, 2).timeout(Duration::from_millis(20));
    let Some(mut generator) = scene.generator_of(builder) else { return };
    let outcome = generator.run(&slot(PacingMode::Window { outstanding: 4 }, 400)).unwrap();
    assert_balanced(&outcome);
    assert!(outcome.lost > 16 && outcome.self_watch.timed_out > 8, "{outcome:?}");
    // Each flow has a window of 4, so at most 8 requests are outstanding. A lost request keeps its
    // place for one timeout of 20 ms.
    assert!(outcome.lost <= 8 * (400 / 20 + 2), "{outcome:?}");
}

#[test]
fn intervals_add_up_to_the_slot() {
    let Some(scene) = Scene::new("intervals_add_up_to_the_slot") else { return };
    let service = scene.echo(true);
    let Some(mut generator) = scene.generator(&service, 4) else { return };
    for mode in [rate(5_000.0), PacingMode::Window { outstanding: 2 }] {
        let slot = LoadSlot { interval: Some(Duration::from_millis(100)), ..slot(mode, 450) };
        let mut interval_numbers = Vec::new();
        let outcome = generator.watch(&slot, &mut |interval| interval_numbers.push(interval.number)).unwrap();
        assert_balanced(&outcome);
        assert_eq!(interval_numbers, [0, 1, 2, 3, 4]);
        assert_eq!(outcome.intervals.len(), 5);
        let answered: u64 = outcome.intervals.iter().filter_map(|interval| interval.answered).sum();
        assert_eq!(answered, outcome.answered, "{outcome:?}");
        let sent: Vec<u64> = outcome.intervals.iter().map(|interval| interval.sent).collect();
        assert_eq!(sent.iter().sum::<u64>(), outcome.sent);
        if outcome.requested_per_second.is_some() && !outcome.generator_bound {
            assert_eq!(sent, [500, 500, 500, 500, 250]);
            assert!(outcome.intervals.iter().all(|interval| interval.latency_ns.p50.is_some()));
        }
        assert!((outcome.intervals[4].seconds - 0.05).abs() < 1e-9);
    }
}

#[test]
fn a_cancelled_slot_ends_early_with_balanced_counts() {
    let Some(scene) = Scene::new("a_cancelled_slot_ends_early_with_balanced_counts") else { return };
    let service = scene.echo(true);
    for mode in [rate(1_000.0), rate(1.0), PacingMode::Window { outstanding: 1 }, PacingMode::Flood] {
        let cancel = Arc::new(AtomicBool::new(false));
        let builder = scene.builder(service.address, 4).cancel(Arc::clone(&cancel));
        let Some(mut generator) = scene.generator_of(builder) else { return };
        let start = Instant::now();
        let outcome = std::thread::scope(|scope| {
            let slot_thread = scope.spawn(move || generator.run(&slot(mode, 60_000)).unwrap());
            std::thread::sleep(Duration::from_millis(100));
            cancel.store(true, Ordering::Relaxed);
            slot_thread.join().unwrap()
        });
        assert_balanced(&outcome);
        assert!(start.elapsed() < Duration::from_secs(20), "the slot was not cancelled");
        assert!(outcome.duration < Duration::from_secs(20));
    }
}
