//! A request's receive time is when the kernel got it, not when a worker did.

use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

use crate::support::{BACKENDS, EngineTestResult, PATIENCE, ask, client};
use linerate_engine::{Action, Backend, OverloadPolicy, Request, Server, ShedPolicy};

/// What a worker saw of a request: its receive time, and the time when it had it in hand.
type ReceiveTimes = (Option<SystemTime>, SystemTime);

/// A server whose worker waits for a word before it answers.
struct PausedServer {
    running: linerate_engine::RunningServer,
    seen: Receiver<ReceiveTimes>,
    go_on: Sender<()>,
}

fn held(bind: SocketAddr, backend: Backend) -> Result<PausedServer, Box<dyn std::error::Error>> {
    let (told, seen) = channel();
    let (go_on, word) = channel();
    // The worker's alone, and made on its thread.
    let mut word = Some(word);
    let running =
        Server::builder().bind(bind).workers(1).backend(backend).receive_times(true).start(move |_| {
            let (told, word) = (told.clone(), word.take());
            move |request: &Request<'_>, _: &mut [u8]| {
                let _ = told.send((request.receive_time(), SystemTime::now()));
                let _ = word.as_ref().map(|word| word.recv());
                Action::Echo
            }
        })?;
    Ok(PausedServer { running, seen, go_on })
}

/// Whether a datagram waits in the socket of `port`, by the kernel's table of sockets.
fn waits(port: u16) -> Result<bool, Box<dyn std::error::Error>> {
    let tables = std::fs::read_to_string("/proc/net/udp")? + &std::fs::read_to_string("/proc/net/udp6")?;
    Ok(tables.lines().any(|line| {
        let mut words = line.split_whitespace();
        let local = words.nth(1).and_then(|local| local.rsplit_once(':'));
        let queued = words.nth(2).and_then(|queues| queues.rsplit_once(':'));
        local.is_some_and(|(_, hex)| hex == format!("{port:04X}"))
            && queued.is_some_and(|(_, bytes)| u32::from_str_radix(bytes, 16).is_ok_and(|bytes| bytes > 0))
    }))
}

fn await_waiting(port: u16) -> EngineTestResult {
    let started = Instant::now();
    while !waits(port)? {
        if started.elapsed() > PATIENCE {
            return Err("the second request never came to the socket".into());
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// A second request that comes while the worker has the first: when it was received, when it had come for sure, and when the
/// worker had it.
fn second(
    held: &PausedServer,
    client: &UdpSocket,
    to: SocketAddr,
) -> Result<[SystemTime; 3], Box<dyn std::error::Error>> {
    client.send_to(b"first", to)?;
    held.seen.recv_timeout(PATIENCE)?;
    client.send_to(b"second", to)?;
    await_waiting(to.port())?;
    let came = SystemTime::now();
    held.go_on.send(())?;
    let (received, in_hand) = held.seen.recv_timeout(PATIENCE)?;
    held.go_on.send(())?;
    for expected in [&b"first"[..], b"second"] {
        let mut answer = [0; 16];
        let (length, from) = client.recv_from(&mut answer)?;
        assert_eq!((&answer[..length], from), (expected, to));
    }
    Ok([received.ok_or("no receive time")?, came, in_hand])
}

#[test]
fn a_wait_in_the_queue_is_after_the_receive_time() -> EngineTestResult {
    for backend in BACKENDS {
        for (bind, local, to) in [
            ("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1"),
            ("0.0.0.0:0", "127.0.0.1:0", "127.0.0.7"),
            ("[::]:0", "127.0.0.1:0", "127.0.0.7"),
            ("[::]:0", "[::1]:0", "::1"),
        ] {
            let held = held(bind.parse()?, backend)?;
            let to = SocketAddr::new(to.parse()?, held.running.local_addr().port());
            let client = client(local)?;
            let begun = SystemTime::now();
            // The kernel starts to note times soon after it is first asked, by a work of its own; until then it says the time
            // of the receive. On a busy machine that work waits for its turn.
            let patience = Instant::now() + Duration::from_secs(20);
            let [received, came, in_hand] = loop {
                let times = second(&held, &client, to)?;
                if times[0] <= times[1] {
                    break times;
                }
                if Instant::now() > patience {
                    return Err("always the time of the receive".into());
                }
            };
            assert!(begun <= received && received <= came && came <= in_hand, "{backend:?} {bind}");
            drop(held.go_on);
            held.running.stop()?;
        }
    }
    Ok(())
}

#[test]
fn who_does_not_ask_is_told_none() -> EngineTestResult {
    for backend in BACKENDS {
        for bind in ["127.0.0.1:0", "0.0.0.0:0"] {
            let running = Server::builder().bind(bind.parse()?).workers(1).backend(backend).start(|_| {
                |request: &Request<'_>, _: &mut [u8]| match request.receive_time() {
                    None => Action::Echo,
                    Some(_) => Action::Drop,
                }
            })?;
            let to = SocketAddr::new("127.0.0.1".parse()?, running.local_addr().port());
            ask(&client("127.0.0.1:0")?, to, b"when?")?;
            running.stop()?;
        }
    }
    Ok(())
}

/// What waited too long is shed by its own receive time, since the socket then keeps none of the last datagram.
#[test]
fn old_requests_are_shed_by_their_receive_times() -> EngineTestResult {
    let shed_after = Duration::from_millis(20);
    let overload = OverloadPolicy { shed: ShedPolicy::Oldest, shed_after, ..OverloadPolicy::default() };
    for backend in BACKENDS {
        let (told, in_hand) = channel();
        let (go_on, word) = channel::<()>();
        let mut word = Some(word);
        let running = Server::builder()
            .bind("127.0.0.1:0".parse()?)
            .workers(1)
            .backend(backend)
            .overload(overload.clone())
            .receive_times(true)
            .start(move |_| {
                let (told, word) = (told.clone(), word.take());
                move |_: &Request<'_>, _: &mut [u8]| {
                    let _ = told.send(());
                    let _ = word.as_ref().map(|word| word.recv());
                    Action::Echo
                }
            })?;
        let (client, to) = (client("127.0.0.1:0")?, running.local_addr());
        let started = Instant::now();
        // On a busy machine the first may be too old itself, or the kernel notes no times yet.
        while running.total().shed == 0 || running.total().answered == 0 {
            assert!(started.elapsed() < 2 * PATIENCE, "{backend:?}: {:?}", running.total());
            client.send_to(b"first", to)?;
            if in_hand.recv_timeout(Duration::from_millis(200)).is_err() {
                continue;
            }
            client.send_to(b"second", to)?;
            await_waiting(to.port())?;
            let queued = Instant::now();
            while queued.elapsed() < 2 * shed_after {
                std::thread::yield_now();
            }
            go_on.send(())?;
            // Whether the second is shed or held, the worker comes by here.
            if in_hand.recv_timeout(Duration::from_millis(50)).is_ok() {
                go_on.send(())?;
            }
        }
        drop(go_on);
        running.stop()?;
    }
    Ok(())
}
