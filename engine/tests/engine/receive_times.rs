//! The receive time of a request is the time in the kernel, not the time in the worker.

use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

use crate::support::{BACKENDS, EngineTestResult, PATIENCE, ask, client};
use linerate_engine::{Action, Backend, OverloadPolicy, Request, Server, ShedPolicy};

/// The receive time of a request, and the time at which the worker processed it.
type ReceiveTimes = (Option<SystemTime>, SystemTime);

/// A server whose worker waits for a message on `go_on` before each reply.
struct PausedServer {
    running: linerate_engine::RunningServer,
    seen: Receiver<ReceiveTimes>,
    go_on: Sender<()>,
}

fn held(bind: SocketAddr, backend: Backend) -> Result<PausedServer, Box<dyn std::error::Error>> {
    let (told, seen) = channel();
    let (go_on, word) = channel();
    // The only worker takes the receiver.
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

/// Whether a datagram waits in the socket of `port`, from /proc/net/udp and /proc/net/udp6.
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

/// Sends a second request while the worker processes the first. Returns the receive time, a time
/// after the arrival, and the time at which the worker processed it.
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
            // The kernel enables receive timestamps from a work queue after the first socket
            // requests them. Until then, it reports the time of the receive call. On a busy machine
            // this takes longer.
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

/// Requests are shed by their own receive times, because the socket then has no time of the last
/// datagram.
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
        // On a busy machine, the first request may be too old itself, or the kernel does not take
        // timestamps yet.
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
            // The worker reports the second request only if it is not shed; then let it continue.
            if in_hand.recv_timeout(Duration::from_millis(50)).is_ok() {
                go_on.send(())?;
            }
        }
        drop(go_on);
        running.stop()?;
    }
    Ok(())
}
