//! Window mode: each reply makes room for a request.

use std::time::Duration;

use linerate_load::PacingMode;
use linerate_load::generator::GeneratorOptions;
use linerate_testkit::skip;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::scene::Scene;
use crate::service::{Service, assert_balanced, echo, slot};

/// Regression test: only replies that arrived on the sending CPU made room in the window. The
/// service runs on another CPU, where the replies arrive, so each window stalled until the timeout.
#[test]
fn replies_on_another_cpu_make_room_in_the_window() {
    let test = "replies_on_another_cpu_make_room_in_the_window";
    let Some(scene) = Scene::new(test) else { return };
    let allowed_cpus = sched_getaffinity(None).unwrap();
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed_cpus.is_set(*cpu));
    let (Some(sender_cpu), Some(server_cpu)) = (cpus.next(), cpus.next()) else {
        return skip(test, "one CPU");
    };
    let at = scene.receiver(true);
    let service = scene.lab().receiver().run(move || {
        // The service's thread inherits the CPU affinity of the thread that starts it.
        let mut server_cpus = CpuSet::new();
        server_cpus.set(server_cpu);
        sched_setaffinity(None, &server_cpus).unwrap();
        let service = Service::start_at(at, echo);
        sched_setaffinity(None, &allowed_cpus).unwrap();
        service
    });
    let service = service.unwrap();
    // The timeout is longer than the slot, so only replies make room.
    let options = GeneratorOptions {
        timeout: Duration::from_secs(10),
        cpus: Some(vec![sender_cpu as u32]),
        ..scene.options(service.address, 64)
    };
    let Some(mut generator) = scene.generator_of(options) else { return };
    let mut answer_count = |outstanding| {
        let outcome = generator.run(&slot(PacingMode::Window { outstanding }, 400)).unwrap();
        assert_balanced(&outcome);
        assert!(outcome.answered > 2 * 64 * u64::from(outstanding), "{outcome:?}");
        outcome.answered
    };
    let (few, many) = (answer_count(1), answer_count(8));
    assert!(many * 4 > few, "{few} answers with 64 requests under way, {many} with 512");
}
