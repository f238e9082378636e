//! A boost with a watch, and a boost without one.

use std::time::{Duration, Instant};

use linerate_tune::boost::watch::WatchEvent;
use linerate_tune::journal::record::UndoOutcome;

use crate::Skipped;
use crate::clients::{Request, workers};
use crate::scene::{Scene, cpus};

/// Time limit until requests from a dead worker's CPU are answered again.
const WITHIN: Duration = Duration::from_secs(1);

/// Time from `killed_at` to the first request that a worker other than `dead` answered.
fn gap(requests: &[Request], killed_at: Instant, dead: u32) -> Duration {
    let answered = |request: &&Request| {
        request.sent > killed_at && request.answer.is_some_and(|(worker, _)| worker != dead)
    };
    requests.iter().find(answered).expect("an answer").sent.duration_since(killed_at)
}

pub(crate) fn other_workers_answer_for_a_dead_worker() -> Skipped {
    let mut scene = Scene::set("never", "shared")?;
    scene.boost()?;
    let watching = scene.watch();
    let (survivor, dead) = (scene.worker_of(0), scene.worker_of(1));
    let killed_at = scene.kill(dead);
    let WatchEvent::Lost { pid, done, .. } = watching.event() else { panic!("another event") };
    assert_eq!(pid, dead);
    assert!(done.iter().any(|action| action.contains("CPU 1")), "{done:?}");
    let fixed_at = Instant::now();
    let requests = scene.clients[1].answered_after(fixed_at, 200);
    // A request without an answer counts as lost only after `WITHIN`.
    let lost_requests =
        requests.iter().filter(|request| request.answer.is_none() && request.sent.elapsed() > WITHIN);
    assert_eq!((workers(&requests), lost_requests.count()), (vec![survivor], 0));
    let gap = gap(&scene.clients[1].requests(), killed_at, dead);
    eprintln!("CPU 1 went without an answer for {gap:?}");
    assert!(gap < WITHIN, "{gap:?}");
    assert_eq!(workers(&scene.clients[0].answered_after(killed_at, 100)), [survivor]);
    drop(watching);
    let report = scene.undo();
    assert!(!report.has_failures(), "{report:?}");
    let gone_settings =
        report.settings.iter().filter(|setting| matches!(setting.outcome, UndoOutcome::Gone { .. }));
    assert_eq!(gone_settings.count(), 1, "{report:?}");
    assert_eq!((scene.steering(), cpus(survivor)), ("none".to_owned(), [true, true]));
    Ok(())
}

pub(crate) fn worker_that_died_before_the_watch_is_reported() -> Skipped {
    let mut scene = Scene::set("never", "shared")?;
    scene.boost()?;
    let (survivor, dead) = (scene.worker_of(0), scene.worker_of(1));
    scene.kill(dead);
    scene.line();
    let watching = scene.watch();
    assert!(matches!(watching.event(), WatchEvent::Lost { pid, done, .. } if pid == dead && done.len() == 1));
    assert_eq!(workers(&scene.clients[1].answered_after(Instant::now(), 100)), [survivor]);
    Ok(())
}

pub(crate) fn replacement_worker_gets_the_cpu_of_the_dead_worker() -> Skipped {
    let mut scene = Scene::set("700", "shared")?;
    scene.boost()?;
    let watching = scene.watch();
    let (survivor, dead) = (scene.worker_of(0), scene.worker_of(1));
    let killed_at = scene.kill(dead);
    assert!(matches!(watching.event(), WatchEvent::Lost { pid, .. } if pid == dead));
    let line = scene.line();
    assert!(line.starts_with("gone") && line.ends_with(&dead.to_string()), "{line}");
    let line = scene.line();
    let new: u32 = line.rsplit(' ').next().and_then(|pid| pid.parse().ok()).expect("a process");
    assert!(matches!(watching.event(), WatchEvent::Found { pid, .. } if pid == new));
    assert_eq!((cpus(new), cpus(survivor)), ([false, true], [true, false]));
    let since = Instant::now();
    assert_eq!(workers(&scene.clients[1].answered_after(since, 200)), [new]);
    assert_eq!(workers(&scene.clients[0].answered_after(killed_at, 200)), [survivor]);
    drop(watching);
    let report = scene.undo();
    assert!(!report.has_failures(), "{report:?}");
    assert_eq!((cpus(new), cpus(survivor)), ([true, true], [true, true]));
    assert_eq!(scene.steering(), "none");
    Ok(())
}

pub(crate) fn a_watch_ends_with_its_server() -> Skipped {
    let mut scene = Scene::set("never", "shared")?;
    scene.boost()?;
    let watching = scene.watch();
    let workers = [scene.worker_of(0), scene.worker_of(1)];
    scene.master.kill().expect("killed");
    // The workers die with their master, one after the other.
    let last = loop {
        match watching.event() {
            WatchEvent::Lost { pid, .. } => assert!(workers.contains(&pid)),
            WatchEvent::NotDone { .. } => {}
            event => break event,
        }
    };
    assert_eq!(last, WatchEvent::Ended);
    watching.wait_until_ended();
    Ok(())
}

pub(crate) fn watch_ends_when_its_boost_is_undone() -> Skipped {
    let scene = Scene::set("never", "shared")?;
    scene.boost()?;
    let watching = scene.watch();
    let report = scene.undo();
    assert!(!report.has_failures() && !report.has_skipped(), "{report:?}");
    assert_eq!(watching.event(), WatchEvent::Undone);
    watching.wait_until_ended();
    for client in &scene.clients {
        client.answered_after(Instant::now(), 100);
    }
    assert_eq!(scene.steering(), "none");
    Ok(())
}

pub(crate) fn no_request_is_lost_after_a_worker_socket_closes() -> Skipped {
    let mut scene = Scene::set("never", "own")?;
    scene.boost()?;
    let (survivor, dead) = (scene.worker_of(0), scene.worker_of(1));
    scene.kill(dead);
    let line = scene.line();
    assert!(line.starts_with("gone") && line.ends_with(&dead.to_string()), "{line}");
    // The kernel closes the socket before the master is notified.
    let closed_at = Instant::now();
    let requests = scene.clients[1].answered_after(closed_at, 500);
    let lost_requests =
        requests.iter().filter(|request| request.answer.is_none() && request.sent.elapsed() > WITHIN);
    assert_eq!((workers(&requests), lost_requests.count()), (vec![survivor], 0));
    let report = scene.undo();
    assert!(!report.has_failures(), "{report:?}");
    Ok(())
}
