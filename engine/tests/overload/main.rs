//! Servers above their capacity: shedding, the guard, and goodput.

mod goodput;
mod guard;
mod other_paths;
#[expect(dead_code, reason = "these tests only send frames")]
#[path = "../xdp/sys.rs"]
mod packets;
#[path = "../support/mod.rs"]
mod support;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linerate_engine::{Action, Backend, Counts, OverloadPolicy, Request, Service, ShedPolicy};
use support::{BACKENDS, EngineTestResult, PATIENCE, ask, client, local_server};

/// A service that echoes requests, but blocks on each request until [`ServiceHold::release`] is
/// dropped.
#[derive(Clone)]
pub(crate) struct PausedServer {
    entered: Sender<()>,
    gate: Arc<Mutex<Receiver<()>>>,
}

/// Controls a [`PausedServer`].
pub(crate) struct ServiceHold {
    entered: Receiver<()>,
    /// Unblocks the service when dropped.
    pub(crate) release: Sender<()>,
}

impl PausedServer {
    pub(crate) fn new() -> (ServiceHold, Self) {
        let (release, gate) = channel();
        let (entered, entries) = channel();
        (ServiceHold { entered: entries, release }, Self { entered, gate: Arc::new(Mutex::new(gate)) })
    }
}

impl ServiceHold {
    /// Waits until the service blocks on a request.
    pub(crate) fn until_held(&self) -> EngineTestResult {
        Ok(self.entered.recv_timeout(PATIENCE)?)
    }
}

impl Service for PausedServer {
    fn answer(&mut self, _: &Request<'_>, _: &mut [u8]) -> Action {
        let _ = self.entered.send(());
        if let Ok(gate) = self.gate.lock() {
            let _ = gate.recv();
        }
        Action::Echo
    }
}

/// Waits until `condition` returns true.
pub(crate) fn until(description: &str, mut condition: impl FnMut() -> bool) -> EngineTestResult {
    let begun = Instant::now();
    while !condition() {
        if begun.elapsed() > PATIENCE {
            return Err(format!("timed out: {description}").into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

pub(crate) fn fates(counts: &Counts) -> u64 {
    counts.answered
        + counts.dropped
        + counts.truncated
        + counts.shed
        + counts.send_failed.total()
        + counts.panicked
}

fn shedding(after: Duration) -> OverloadPolicy {
    OverloadPolicy { shed: ShedPolicy::Oldest, shed_after: after, ..OverloadPolicy::default() }
}

/// The age at which a request is shed: longer than a fresh request waits on a busy machine.
const AFTER: Duration = Duration::from_secs(1);

// With receive times, a request is shed by its own receive time, because the socket then has no time
// of the last datagram.
fn check_shedding(backend: Backend, receive_times: bool) -> EngineTestResult {
    let (hold, service) = PausedServer::new();
    let running = local_server()
        .workers(1)
        .backend(backend)
        .overload(shedding(AFTER))
        .receive_times(receive_times)
        .start(move |_| service.clone())?;
    let client = client("127.0.0.1:0")?;
    client.send_to(b"first", running.local_addr())?;
    // The service blocks on this request, so later requests wait in the socket.
    hold.until_held()?;
    // The kernel enables receive timestamps from a work queue (net/core/dev.c,
    // `net_enable_timestamp`) and does not report when they are enabled. On a busy machine this takes
    // hundreds of milliseconds.
    std::thread::sleep(Duration::from_secs(1));
    for _ in 0..20 {
        client.send_to(b"late", running.local_addr())?;
    }
    // The requests must wait for longer than the shedding age.
    std::thread::sleep(AFTER * 5 / 4);
    drop(hold.release);
    assert_eq!(client.recv(&mut [0; 16])?, 5, "{backend:?}");
    until("all old requests are shed", || running.total().shed == 20)?;
    assert_eq!(ask(&client, running.local_addr(), b"fresh")?.0, b"fresh", "{backend:?}");
    let total = running.stop()?.total();
    assert_eq!((total.received, total.answered, total.shed), (22, 2, 20), "{backend:?} {total:?}");
    assert_eq!(total.received, fates(&total));
    Ok(())
}

#[test]
fn old_requests_are_shed_and_fresh_requests_are_answered() -> EngineTestResult {
    let check = |backend, receive_times| {
        check_shedding(backend, receive_times)
            .map_err(|error| format!("{backend:?}, receive times: {receive_times}: {error}"))
    };
    std::thread::scope(|scope| {
        let cases = BACKENDS.into_iter().flat_map(|backend| [(backend, false), (backend, true)]);
        let threads: Vec<_> =
            cases.map(|(backend, times)| scope.spawn(move || check(backend, times))).collect();
        for thread in threads {
            thread.join().map_err(|_| "a backend's server does not shed")??;
        }
        Ok(())
    })
}
