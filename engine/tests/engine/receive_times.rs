//! The receive time of a request is the time in the kernel, not the time in the worker.

use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

use crate::support::{BACKENDS, EngineTestResult, PATIENCE, client};
use linerate_engine::{Action, Backend, Request, Server};

/// The receive time of a request, and the time at which the worker processed it.
type ReceiveTimes = (Option<SystemTime>, SystemTime);

/// A server whose worker waits for a message on `go_on` before each reply.
struct PausedServer {
    running: linerate_engine::RunningServer,
    times: Receiver<ReceiveTimes>,
    go_on: Sender<()>,
}

fn start_paused(bind: SocketAddr, backend: Backend) -> Result<PausedServer, Box<dyn std::error::Error>> {
    let (sender, times) = channel();
    let (go_on, go_ahead) = channel();
    // The only worker takes the receiver.
    let mut go_ahead = Some(go_ahead);
    let running =
        Server::builder().bind(bind).workers(1).backend(backend).receive_times(true).start(move |_| {
            let (sender, go_ahead) = (sender.clone(), go_ahead.take());
            move |request: &Request<'_>, _: &mut [u8]| {
                let _ = sender.send((request.receive_time(), SystemTime::now()));
                let _ = go_ahead.as_ref().map(|go_ahead| go_ahead.recv());
                Action::Echo
            }
        })?;
    Ok(PausedServer { running, times, go_on })
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
            return Err("the second request did not reach the socket".into());
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// Sends a second request while the worker processes the first. Returns the receive time, a time
/// after the arrival, and the time at which the worker processed it.
fn second(
    server: &PausedServer,
    client: &UdpSocket,
    to: SocketAddr,
) -> Result<[SystemTime; 3], Box<dyn std::error::Error>> {
    client.send_to(b"first", to)?;
    server.times.recv_timeout(PATIENCE)?;
    client.send_to(b"second", to)?;
    await_waiting(to.port())?;
    let after_arrival = SystemTime::now();
    server.go_on.send(())?;
    let (receive_time, processed_at) = server.times.recv_timeout(PATIENCE)?;
    server.go_on.send(())?;
    for expected in [&b"first"[..], b"second"] {
        let mut answer = [0; 16];
        let (length, from) = client.recv_from(&mut answer)?;
        assert_eq!((&answer[..length], from), (expected, to));
    }
    Ok([receive_time.ok_or("no receive time")?, after_arrival, processed_at])
}

#[test]
fn receive_time_excludes_the_wait_in_the_socket_queue() -> EngineTestResult {
    for backend in BACKENDS {
        for (bind, local, to) in [
            ("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1"),
            ("0.0.0.0:0", "127.0.0.1:0", "127.0.0.7"),
            ("[::]:0", "127.0.0.1:0", "127.0.0.7"),
            ("[::]:0", "[::1]:0", "::1"),
        ] {
            let server = start_paused(bind.parse()?, backend)?;
            let to = SocketAddr::new(to.parse()?, server.running.local_addr().port());
            let client = client(local)?;
            let begun = SystemTime::now();
            // The kernel enables receive timestamps from a work queue after the first socket
            // requests them. Until then, it reports the time of the receive call. On a busy machine
            // this takes longer.
            let patience = Instant::now() + Duration::from_secs(20);
            let [receive_time, after_arrival, processed_at] = loop {
                let times = second(&server, &client, to)?;
                if times[0] <= times[1] {
                    break times;
                }
                if Instant::now() > patience {
                    return Err("the receive time is always the time of the receive call".into());
                }
            };
            assert!(
                begun <= receive_time && receive_time <= after_arrival && after_arrival <= processed_at,
                "{backend:?} {bind}"
            );
            drop(server.go_on);
            server.running.stop()?;
        }
    }
    Ok(())
}
