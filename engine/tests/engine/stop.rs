//! A stopping server answers the requests that it has taken, ends in time and reports errors.

use std::collections::HashSet;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crate::LAYOUTS;
use crate::support::{BACKENDS, EngineTestResult, PATIENCE, ask, client, local_server};
use linerate_engine::{Action, Echo, Request, Server, ServerError};

#[test]
fn idle_workers_stop_without_waiting_for_the_drain_limit() -> EngineTestResult {
    for backend in BACKENDS {
        for sockets in LAYOUTS {
            let running = local_server()
                .sockets(sockets)
                .backend(backend)
                .drain_limit(Duration::from_secs(3600))
                .start(|_| Echo)?;
            assert_eq!(running.stop()?.total().received, 0);
        }
    }
    Ok(())
}

#[test]
fn queued_requests_are_answered_on_stop_including_empty_datagrams() -> EngineTestResult {
    for backend in BACKENDS {
        for bind in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            let server = Server::builder()
                .bind(bind.parse()?)
                .workers(1)
                .backend(backend)
                .drain_limit(PATIENCE)
                .prepare()?;
            let mut to = server.local_addr();
            if to.ip().is_unspecified() {
                to.set_ip("127.0.0.1".parse()?);
            }
            let client = client(if to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" })?;
            for index in 0..100usize {
                client.send_to(&[1; 3][..index % 3], to)?;
            }
            let total = server.start(|_| Echo)?.stop()?.total();
            assert_eq!((total.received, total.answered), (100, 100), "{backend:?} {bind}");
            for index in 0..100usize {
                assert_eq!(client.recv(&mut [0; 8])?, index % 3, "{backend:?} {bind}");
            }
        }
    }
    Ok(())
}

/// Clients send while the server stops. Each reply that the server counts arrives.
#[test]
fn stop_under_load_sends_every_counted_reply() -> EngineTestResult {
    for backend in BACKENDS {
        for sockets in LAYOUTS {
            let running = local_server().sockets(sockets).backend(backend).start(|_| {
                |request: &Request<'_>, reply: &mut [u8]| {
                    let id = request.payload();
                    reply[..id.len()].copy_from_slice(id);
                    if id[0].is_multiple_of(10) { Action::Drop } else { Action::Reply(id.len()) }
                }
            })?;
            let to = running.local_addr();
            let ended = AtomicBool::new(false);
            // `counted_replies`: replies that the server counted, set after its end.
            // `arrived_replies`: replies that the clients received.
            let (counted_replies, arrived_replies) = (AtomicU64::new(0), AtomicU64::new(0));
            let under_way = Barrier::new(3);
            let (total, floods) = std::thread::scope(|scope| {
                let flood = || -> std::io::Result<()> {
                    let client = client("127.0.0.1:0")?;
                    client.set_nonblocking(true)?;
                    let mut replies = HashSet::new();
                    let mut receive = || {
                        let mut answer = [0; 8];
                        if client.recv(&mut answer).is_ok() {
                            assert!(replies.insert(answer), "answered twice: {answer:?}");
                            arrived_replies.fetch_add(1, Relaxed);
                            return 1;
                        }
                        0
                    };
                    let mut outstanding = 0u32;
                    let mut index = 0u64;
                    while !ended.load(Acquire) {
                        // Few outstanding requests, so that their replies fit into the client's
                        // receive buffer.
                        if outstanding < 100 {
                            let request = index.to_le_bytes();
                            client.send_to(&request, to)?;
                            outstanding += u32::from(!request[0].is_multiple_of(10));
                            index += 1;
                            if index == 500 {
                                under_way.wait();
                            }
                        }
                        outstanding -= receive();
                    }
                    // The replies are in the socket at once, unless ksoftirqd processes them.
                    let begun = Instant::now();
                    while receive() == 1
                        || arrived_replies.load(Relaxed) < counted_replies.load(Relaxed)
                            && begun.elapsed() < PATIENCE
                    {
                        std::thread::yield_now();
                    }
                    Ok(())
                };
                let floods = [scope.spawn(flood), scope.spawn(flood)];
                under_way.wait();
                let total = running.stop().map(|report| report.total());
                counted_replies.store(total.as_ref().map_or(0, |total| total.answered), Relaxed);
                ended.store(true, Release);
                (total, floods.map(|flood| flood.join().map_err(|_| "a flood panicked")))
            });
            let total = total?;
            for flood in floods {
                flood??;
            }
            assert_eq!(total.received, total.answered + total.dropped, "{backend:?} {sockets:?}: {total:?}");
            assert_eq!(total.answered, arrived_replies.into_inner(), "{backend:?} {sockets:?}: {total:?}");
            assert!(total.dropped > 0);
        }
    }
    Ok(())
}

/// A flood that never lets the queue become empty does not prevent the stop.
#[test]
fn draining_ends_under_a_continuous_flood() -> EngineTestResult {
    let running = local_server().workers(1).drain_limit(Duration::from_millis(20)).start(|_| {
        |_: &Request<'_>, _: &mut [u8]| {
            // The service is slower than the flood.
            std::thread::sleep(Duration::from_micros(200));
            Action::Drop
        }
    })?;
    let to = running.local_addr();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let client = client("127.0.0.1:0")?;
            while !ended.load(Relaxed) {
                client.send_to(b"x", to)?;
            }
            Ok::<_, std::io::Error>(())
        });
        while running.total().received == 0 {
            std::thread::yield_now();
        }
        let begun = Instant::now();
        let result = running.stop();
        ended.store(true, Relaxed);
        assert!(begun.elapsed() < PATIENCE);
        result.map(drop)
    })?;
    Ok(())
}

#[test]
fn panic_is_reported_with_its_worker_and_others_continue() -> EngineTestResult {
    for backend in BACKENDS {
        for sockets in LAYOUTS {
            let running = local_server()
                .workers(2)
                .cpus(crate::support::cpus()?.into_iter().chain([9999]).take(2).collect::<Vec<_>>())
                .sockets(sockets)
                .backend(backend)
                .restart_workers(false)
                .start(|_| {
                    |request: &Request<'_>, _: &mut [u8]| {
                        assert_ne!(request.payload(), b"poison", "cannot swallow this");
                        Action::Echo
                    }
                })?;
            let to = running.local_addr();
            client("127.0.0.1:0")?.send_to(b"poison", to)?;
            while running.ended_workers().is_empty() {
                std::thread::yield_now();
            }
            // The socket of the ended worker is closed, so every flow reaches the other worker.
            for _ in 0..32 {
                let (answer, _) = ask(&client("127.0.0.1:0")?, to, b"still there?")?;
                assert_eq!(answer, b"still there?", "{backend:?} {sockets:?}");
            }
            let dead = running.ended_workers()[0];
            match running.stop() {
                Err(ServerError::Panicked { worker, message }) => {
                    assert_eq!(worker, dead);
                    assert!(message.contains("cannot swallow this"), "{message}");
                }
                other => panic!("expected the error of a panic, got {other:?}"),
            }
        }
    }
    Ok(())
}

/// The worker restarts with a new service. Its socket and the requests in the socket remain.
#[test]
fn panicked_worker_restarts_with_a_new_service_on_the_same_socket() -> EngineTestResult {
    for backend in BACKENDS {
        let services = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&services);
        let running = local_server().workers(1).backend(backend).start(move |_| {
            let number = counter.fetch_add(1, Relaxed) as u8;
            move |request: &Request<'_>, reply: &mut [u8]| {
                assert_ne!(request.payload(), b"poison", "cannot swallow this");
                reply[0] = number;
                Action::Reply(1)
            }
        })?;
        let (to, client) = (running.local_addr(), client("127.0.0.1:0")?);
        for panics in 1..=3 {
            client.send_to(b"poison", to)?;
            while running.total().panicked < panics {
                std::thread::yield_now();
            }
            // The request waits in the socket until the worker restarts.
            assert_eq!(ask(&client, to, b"still there?")?.0, [panics as u8], "{backend:?}");
        }
        assert!(running.ended_workers().is_empty());
        let total = running.stop()?.total();
        assert_eq!((total.received, total.answered, total.panicked, total.restarts), (6, 3, 3, 3));
        assert_eq!(services.load(Relaxed), 4);
    }
    Ok(())
}

/// A worker that pauses before its restart ends at once when the server stops.
#[test]
fn stop_does_not_wait_for_a_worker_restart() -> EngineTestResult {
    let running = local_server()
        .workers(1)
        .start(|_| |_: &Request<'_>, _: &mut [u8]| -> Action { panic!("always") })?;
    let client = client("127.0.0.1:0")?;
    // After 8 panics the pause before a restart is one second.
    for panics in 1..=8 {
        client.send_to(b"poison", running.local_addr())?;
        while running.total().panicked < panics {
            std::thread::yield_now();
        }
    }
    let total = running.stop()?.total();
    assert_eq!((total.received, total.panicked), (8, 8));
    assert!(total.restarts < 8, "the stop waited for the last restart");
    Ok(())
}

#[test]
fn dropping_a_running_server_frees_its_port() -> EngineTestResult {
    let running = local_server().start(|_| Echo)?;
    let address = running.local_addr();
    drop(running);
    // The port is free again, so no socket is bound to it.
    drop(Server::builder().bind(address).start(|_| Echo)?);
    Ok(())
}
