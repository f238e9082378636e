//! A boost with a watch, and a boost without one.

use std::time::{Duration, Instant};

use linerate_tune::boost::watch::WatchEvent;
use linerate_tune::journal::record::UndoOutcome;

use crate::Skipped;
use crate::asking::{Request, workers};
use crate::scene::{Scene, cpus};

/// Time limit until requests from a dead worker's CPU are answered again.
const WITHIN: Duration = Duration::from_secs(1);

/// Time from `killed` to the first request that a worker other than `dead` answered.
fn gap(requests: &[Request], killed: Instant, dead: u32) -> Duration {
    let answered = |request: &&Request| {
        request.sent > killed && request.answer.is_some_and(|(worker, _)| worker != dead)
    };
    requests.iter().find(answered).expect("an answer").sent.duration_since(killed)
}

pub(crate) fn others_answer_for_a_worker_that_died() -> Skipped {
    let mut scene = Scene::set("never", "shared")?;
    scene.boost()?;
    let watching = scene.watch();
    let (kept, lost) = (scene.worker_of(0), scene.worker_of(1));
    let killed = scene.kill(lost);
    let WatchEvent::Lost { pid, done, .. } = watching.event() else { panic!("another event") };
    assert_eq!(pid, lost);
    assert!(done.iter().any(|done| done.contains("CPU 1")), "{done:?}");
    let fixed = Instant::now();
    let since = scene.clients[1].answered_after(fixed, 200);
    // A request without an answer counts as lost only after `WITHIN`.
    let late = since.iter().filter(|request| request.answer.is_none() && request.sent.elapsed() > WITHIN);
    assert_eq!((workers(&since), late.count()), (vec![kept], 0));
    let gap = gap(&scene.clients[1].requests(), killed, lost);
    eprintln!("CPU 1 went without an answer for {gap:?}");
    assert!(gap < WITHIN, "{gap:?}");
    assert_eq!(workers(&scene.clients[0].answered_after(killed, 100)), [kept]);
    drop(watching);
    let undone = scene.undo();
    assert!(!undone.has_failures(), "{undone:?}");
    let gone = undone.settings.iter().filter(|setting| matches!(setting.outcome, UndoOutcome::Gone { .. }));
    assert_eq!(gone.count(), 1, "{undone:?}");
    assert_eq!((scene.steering(), cpus(kept)), ("none".to_owned(), [true, true]));
    Ok(())
}

pub(crate) fn a_worker_that_died_before_the_watch_is_missed() -> Skipped {
    let mut scene = Scene::set("never", "shared")?;
    scene.boost()?;
    let (kept, lost) = (scene.worker_of(0), scene.worker_of(1));
    scene.kill(lost);
    scene.line();
    let watching = scene.watch();
    assert!(matches!(watching.event(), WatchEvent::Lost { pid, done, .. } if pid == lost && done.len() == 1));
    assert_eq!(workers(&scene.clients[1].answered_after(Instant::now(), 100)), [kept]);
    Ok(())
}

pub(crate) fn a_worker_forked_anew_gets_its_cpu_back() -> Skipped {
    let mut scene = Scene::set("700", "shared")?;
    scene.boost()?;
    let watching = scene.watch();
    let (kept, lost) = (scene.worker_of(0), scene.worker_of(1));
    let killed = scene.kill(lost);
    assert!(matches!(watching.event(), WatchEvent::Lost { pid, .. } if pid == lost));
    let line = scene.line();
    assert!(line.starts_with("gone") && line.ends_with(&lost.to_string()), "{line}");
    let line = scene.line();
    let new: u32 = line.rsplit(' ').next().and_then(|pid| pid.parse().ok()).expect("a process");
    assert!(matches!(watching.event(), WatchEvent::Found { pid, .. } if pid == new));
    assert_eq!((cpus(new), cpus(kept)), ([false, true], [true, false]));
    let since = Instant::now();
    assert_eq!(workers(&scene.clients[1].answered_after(since, 200)), [new]);
    assert_eq!(workers(&scene.clients[0].answered_after(killed, 200)), [kept]);
    drop(watching);
    let undone = scene.undo();
    assert!(!undone.has_failures(), "{undone:?}");
    assert_eq!((cpus(new), cpus(kept)), ([true, true], [true, true]));
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
            other => break other,
        }
    };
    assert_eq!(last, WatchEvent::Ended);
    watching.ended();
    Ok(())
}

pub(crate) fn a_watch_ends_with_its_boost() -> Skipped {
    let scene = Scene::set("never", "shared")?;
    scene.boost()?;
    let watching = scene.watch();
    let undone = scene.undo();
    assert!(!undone.has_failures() && !undone.has_skipped(), "{undone:?}");
    assert_eq!(watching.event(), WatchEvent::Undone);
    watching.ended();
    for client in &scene.clients {
        client.answered_after(Instant::now(), 100);
    }
    assert_eq!(scene.steering(), "none");
    Ok(())
}

pub(crate) fn nothing_is_dropped_for_a_socket_that_closed() -> Skipped {
    let mut scene = Scene::set("never", "own")?;
    scene.boost()?;
    let (kept, lost) = (scene.worker_of(0), scene.worker_of(1));
    scene.kill(lost);
    let line = scene.line();
    assert!(line.starts_with("gone") && line.ends_with(&lost.to_string()), "{line}");
    // The kernel closes the socket before the master is notified.
    let gone = Instant::now();
    let since = scene.clients[1].answered_after(gone, 500);
    let late = since.iter().filter(|request| request.answer.is_none() && request.sent.elapsed() > WITHIN);
    assert_eq!((workers(&since), late.count()), (vec![kept], 0));
    let undone = scene.undo();
    assert!(!undone.has_failures(), "{undone:?}");
    Ok(())
}
