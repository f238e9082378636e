//! Window mode: each reply makes room for a request.

use std::time::Duration;

use linerate_load::{Generator as _, PacingMode};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::scene::Scene;
use crate::service::{Service, assert_balanced, echo, skip, slot};

/// Regression test: only replies that arrived on the sending CPU made room in the window. The
/// service runs on another CPU, where the replies arrive, so each window stalled until the timeout.
#[test]
fn places_come_back_on_whichever_cpu_the_answers_arrive() {
    let test = "places_come_back_on_whichever_cpu_the_answers_arrive";
    let Some(scene) = Scene::new(test) else { return };
    let allowed = sched_getaffinity(None).unwrap();
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let (Some(sends), Some(serves)) = (cpus.next(), cpus.next()) else { return skip(test, "one CPU") };
    let at = scene.receiver(true);
    let service = scene.lab.receiver().run(move || {
        // The service's thread inherits the CPU affinity of the thread that starts it.
        let mut there = CpuSet::new();
        there.set(serves);
        sched_setaffinity(None, &there).unwrap();
        let service = Service::start_at(at, echo);
        sched_setaffinity(None, &allowed).unwrap();
        service
    });
    let service = service.unwrap();
    // The timeout is longer than the slot, so only replies make room.
    let builder = scene.builder(service.address, 64).timeout(Duration::from_secs(10));
    let Some(mut generator) = scene.generator_of(builder.cpus(Some(vec![sends as u32]))) else { return };
    let mut answered = |outstanding| {
        let outcome = generator.run(&slot(PacingMode::Window { outstanding }, 400)).unwrap();
        assert_balanced(&outcome);
        assert!(outcome.answered > 2 * 64 * u64::from(outstanding), "{outcome:?}");
        outcome.answered
    };
    let (few, many) = (answered(1), answered(8));
    assert!(many * 4 > few, "{few} answers with 64 requests under way, {many} with 512");
}
