//! A server answers requests with every backend, socket layout and address family.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc;

use crate::LAYOUTS;
use crate::support::{BACKENDS, EngineTestResult, PATIENCE, ask, client, cpus, local_server, skip};
use linerate_engine::{Action, Backend, Echo, PathMtuDiscovery, Request, Server, SocketMode, WorkerPinning};

#[test]
fn every_backend_and_socket_mode_echoes() -> EngineTestResult {
    for backend in BACKENDS {
        for sockets in LAYOUTS {
            let running = local_server().sockets(sockets).backend(backend).start(|_| Echo)?;
            for index in 0..20u8 {
                let client = client("127.0.0.1:0")?;
                let request = vec![index; usize::from(index) * 70];
                let (answer, from) = ask(&client, running.local_addr(), &request)?;
                assert_eq!(answer, request, "{backend:?} {sockets:?}");
                assert_eq!(from, running.local_addr());
            }
            assert!(running.ended_workers().is_empty());
            let total = running.stop()?.total();
            assert_eq!((total.received, total.answered), (20, 20), "{backend:?} {sockets:?}");
        }
    }
    Ok(())
}

#[test]
fn dual_stack_server_answers_ipv4_and_ipv6() -> EngineTestResult {
    for backend in BACKENDS {
        let (sender, receiver) = mpsc::channel();
        let running =
            Server::builder().bind("[::]:0".parse()?).workers(1).backend(backend).start(move |_| {
                let sender = sender.clone();
                move |request: &Request<'_>, _: &mut [u8]| {
                    let _ = sender.send((request.source(), request.destination()));
                    Action::Echo
                }
            })?;
        let port = running.local_addr().port();
        for (local, to) in [("127.0.0.9:0", "127.0.0.7"), ("[::1]:0", "::1"), ("127.0.0.1:0", "127.0.0.1")] {
            let to: IpAddr = to.parse()?;
            let client = client(local)?;
            let (answer, from) = ask(&client, SocketAddr::new(to, port), b"both")?;
            assert_eq!((answer.as_slice(), from.ip()), (b"both".as_slice(), to), "{backend:?}");
            let (source, destination) = receiver.recv()?;
            assert_eq!((source, destination), (client.local_addr()?, Some(to)), "{backend:?}");
        }
    }
    Ok(())
}

#[test]
fn ipv6_only_server_leaves_the_ipv4_port_free() -> EngineTestResult {
    let running = Server::builder().bind("[::]:0".parse()?).only_v6(true).start(|_| Echo)?;
    let port = running.local_addr().port();
    let (answer, _) = ask(&client("[::1]:0")?, SocketAddr::new("::1".parse()?, port), b"six")?;
    assert_eq!(answer, b"six");
    // Another server can bind the port for IPv4.
    let four = Server::builder().bind(SocketAddr::from(([0, 0, 0, 0], port))).start(|_| Echo)?;
    assert_eq!(four.local_addr().port(), port);
    Ok(())
}

#[test]
fn replies_can_go_to_a_third_address() -> EngineTestResult {
    for backend in BACKENDS {
        for (bind, at) in [("127.0.0.1:0", "127.0.0.1"), ("0.0.0.0:0", "127.0.0.3"), ("[::]:0", "127.0.0.3")]
        {
            let third = client("127.0.0.1:0")?;
            let to = third.local_addr()?;
            let running =
                Server::builder().bind(bind.parse()?).workers(1).backend(backend).start(move |_| {
                    move |_: &Request<'_>, reply: &mut [u8]| {
                        reply[..5].copy_from_slice(b"hello");
                        Action::ReplyTo { length: 5, to }
                    }
                })?;
            let server = SocketAddr::new(at.parse()?, running.local_addr().port());
            client("127.0.0.1:0")?.send_to(b"tell them", server)?;
            let mut answer = [0; 16];
            let (length, from) = third.recv_from(&mut answer)?;
            assert_eq!((&answer[..length], from), (b"hello".as_slice(), server), "{backend:?} {bind}");
            assert_eq!(running.stop()?.total().redirected, 1);
        }
    }
    Ok(())
}

#[test]
fn unsendable_replies_are_counted_and_other_replies_are_sent() -> EngineTestResult {
    for backend in BACKENDS {
        let six: SocketAddr = "[::1]:9".parse()?;
        let server = local_server().workers(1).max_reply(100).backend(backend).prepare()?;
        let client = client("127.0.0.1:0")?;
        let kinds = [b"good", b"none", b"long", b"six ", b"zero", b"good"];
        for kind in kinds {
            client.send_to(kind, server.local_addr())?;
        }
        let running = server.start(move |_| {
            move |request: &Request<'_>, reply: &mut [u8]| match request.payload() {
                b"none" => Action::Drop,
                b"long" => Action::Reply(reply.len() + 1),
                b"six " => Action::ReplyTo { length: 1, to: six },
                b"zero" => Action::ReplyTo { length: 1, to: SocketAddr::from(([127, 0, 0, 1], 0)) },
                _ => Action::Echo,
            }
        })?;
        let mut answer = [0; 16];
        for _ in 0..2 {
            assert_eq!(client.recv(&mut answer)?, 4);
            assert_eq!(&answer[..4], b"good");
        }
        let total = running.stop()?.total();
        assert_eq!((total.received, total.answered, total.dropped), (6, 2, 1), "{backend:?}: {total:?}");
        assert_eq!((total.send_failed.too_long, total.send_failed.total()), (1, 3), "{total:?}");
        assert_eq!(total.send_failed.invalid, 2, "{total:?}");
    }
    Ok(())
}

#[test]
fn oversized_requests_are_counted_and_optionally_delivered_truncated() -> EngineTestResult {
    for backend in BACKENDS {
        for deliver in [false, true] {
            let running = local_server()
                .workers(1)
                .max_request(100)
                .deliver_truncated(deliver)
                .backend(backend)
                .start(|_| {
                    |request: &Request<'_>, reply: &mut [u8]| {
                        reply[0] = u8::from(request.is_truncated());
                        reply[1] = request.payload().len() as u8;
                        Action::Reply(2)
                    }
                })?;
            let client = client("127.0.0.1:0")?;
            client.send_to(&[7; 101], running.local_addr())?;
            if deliver {
                assert_eq!(client.recv(&mut [0; 9])?, 2);
            }
            let (answer, _) = ask(&client, running.local_addr(), &[7; 100])?;
            assert_eq!(answer, [0, 100]);
            let total = running.stop()?.total();
            assert_eq!((total.truncated, total.received), (1, 2), "{backend:?}");
            assert_eq!(total.answered, if deliver { 2 } else { 1 }, "{backend:?}");
        }
    }
    Ok(())
}

#[test]
fn batches_need_fewer_system_calls_than_single_messages() -> EngineTestResult {
    let calls = |backend| -> Result<u64, Box<dyn std::error::Error>> {
        let server = local_server().workers(1).backend(backend).drain_limit(PATIENCE).prepare()?;
        let client = client("127.0.0.1:0")?;
        for _ in 0..64 {
            client.send_to(b"x", server.local_addr())?;
        }
        let total = server.start(|_| Echo)?.stop()?.total();
        assert_eq!(total.answered, 64);
        Ok(total.syscalls)
    };
    let (single, batched) = (calls(Backend::Recvfrom)?, calls(Backend::Mmsg { batch: 64 })?);
    assert!(single >= 128, "{single} calls for 64 transactions");
    assert!(batched <= 6, "{batched} calls for 64 transactions");
    Ok(())
}

#[test]
fn granted_buffer_sizes_and_fallbacks_are_reported() -> EngineTestResult {
    let server = local_server()
        .workers(2)
        .receive_buffer(64 * 1024)
        .send_buffer(1 << 30 >> 1)
        .busy_poll(Some(std::time::Duration::from_micros(50)))
        .path_mtu_discovery(PathMtuDiscovery::Do)
        .prepare()?;
    assert_eq!(server.sockets().len(), 2);
    for (index, socket) in server.sockets().iter().enumerate() {
        assert_eq!(socket.workers, [index]);
        assert_eq!(socket.receive_buffer_bytes, 128 * 1024);
    }
    let granted = server.sockets().iter().all(|socket| socket.send_buffer_bytes >= 1 << 30);
    let notes = server.fallbacks().iter().filter(|fallback| fallback.what.contains("send buffer"));
    assert_eq!(notes.count(), usize::from(!granted), "{:?}", server.fallbacks());
    Ok(())
}

#[test]
fn workers_are_pinned_to_the_listed_cpus() -> EngineTestResult {
    let cpus = cpus()?;
    let running = local_server().workers(3).pinning(WorkerPinning::Cpus(cpus.clone())).start(|_| Echo)?;
    for (worker, thread) in running.thread_ids().iter().enumerate() {
        let thread = rustix::thread::Pid::from_raw(*thread);
        let set = rustix::thread::sched_getaffinity(thread)?;
        assert_eq!(set.count(), 1);
        assert!(set.is_set(cpus[worker % cpus.len()] as usize));
    }
    Ok(())
}

#[test]
fn one_steered_worker_gets_all_listed_cpus() -> EngineTestResult {
    let cpus = cpus()?;
    if cpus.len() < 2 {
        skip("one_steered_worker_gets_all_listed_cpus", "one CPU");
        return Ok(());
    }
    let server = local_server()
        .workers(1)
        .sockets(SocketMode::SteeredByCpu(linerate_engine::SteeringProgram::Cbpf))
        .cpus([cpus[1], cpus[0]])
        .prepare()?;
    let mut expected = [cpus[0], cpus[1]];
    expected.sort_unstable();
    assert_eq!(server.sockets()[0].cpus, expected);
    Ok(())
}
