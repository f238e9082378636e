//! Features beyond a request and its reply: deferred replies, multicast groups, adopted sockets,
//! several addresses, traffic class, and segmentation offload.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::support::{BACKENDS, EngineTestResult, PATIENCE, ask, client, local_server, skip};
use linerate_engine::{
    Action, Builder, DeferredReply, Echo, ReplyOptions, Request, RunningServer, Server, ServerError, Service,
    SocketMode,
};
use socket2::{Domain, Socket, Type};

const ANY: &str = "127.0.0.1:0";

type QueuedRequest = (Vec<u8>, DeferredReply);

/// Sends each request to another thread, which replies.
struct ForwardingService(Sender<QueuedRequest>);

impl Service for ForwardingService {
    fn answer(&mut self, request: &Request<'_>, _: &mut [u8]) -> Action {
        match self.0.send((request.payload().to_vec(), request.defer())) {
            Ok(()) => Action::Defer,
            Err(_) => Action::Drop,
        }
    }
}

fn start_forwarding(builder: Builder) -> Result<(RunningServer, Receiver<QueuedRequest>), ServerError> {
    let (sender, receiver) = channel();
    Ok((builder.start(move |_| ForwardingService(sender.clone()))?, receiver))
}

#[test]
fn deferred_replies_from_another_thread_reach_the_client() -> EngineTestResult {
    for backend in BACKENDS {
        for (bind, at) in [(ANY, "127.0.0.1"), ("0.0.0.0:0", "127.0.0.3"), ("[::]:0", "127.0.0.3")] {
            let builder = Server::builder().bind(bind.parse()?).workers(2).backend(backend);
            let (running, requests) = start_forwarding(builder)?;
            let server = SocketAddr::new(at.parse()?, running.local_addr().port());
            let client = client(ANY)?;
            client.send_to(b"first", server)?;
            client.send_to(b"second", server)?;
            // The replies leave in the reverse order of the requests.
            let two = [requests.recv_timeout(PATIENCE)?, requests.recv_timeout(PATIENCE)?];
            let replier = thread::spawn(move || {
                two.iter().rev().try_for_each(|(request, reply)| reply.send(&request.repeat(2)))
            });
            replier.join().map_err(|_| "a panic")??;
            for expected in [b"secondsecond".as_slice(), b"firstfirst"] {
                let mut answer = [0; 32];
                let (length, from) = client.recv_from(&mut answer)?;
                assert_eq!((&answer[..length], from), (expected, server), "{backend:?} {bind}");
            }
            let total = running.stop()?.total();
            assert_eq!((total.received, total.deferred, total.deferred_sent), (2, 2, 2), "{total:?}");
            assert_eq!(total.answered, 0);
        }
    }
    Ok(())
}

#[test]
fn deferred_reply_after_stop_fails_and_does_not_keep_the_port() -> EngineTestResult {
    let (running, requests) = start_forwarding(local_server().workers(1))?;
    let address = running.local_addr();
    client(ANY)?.send_to(b"late", address)?;
    let (_, reply) = requests.recv_timeout(PATIENCE)?;
    running.stop()?;
    assert_eq!(reply.send(b"too late").map_err(|error| error.kind()), Err(std::io::ErrorKind::NotConnected));
    UdpSocket::bind(address)?;
    Ok(())
}

#[test]
fn multicast_datagrams_reach_one_worker_and_wrong_groups_are_refused() -> EngineTestResult {
    let groups = [Ipv4Addr::new(239, 7, 0, 1), Ipv4Addr::new(239, 7, 0, 2)];
    let builder = Server::builder().bind("0.0.0.0:0".parse()?).workers(3);
    let builder = groups.into_iter().fold(builder, |builder, group| builder.join_group(group.into(), "lo"));
    let running = builder.start(|_| Echo)?;
    let client = client(ANY)?;
    let socket = socket2::SockRef::from(&client);
    socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST)?;
    let port = running.local_addr().port();
    for turn in 0..20u8 {
        let to = (groups[usize::from(turn) % 2], port).into();
        let (answer, from) = ask(&client, to, &[turn])?;
        assert_eq!((answer, from.ip()), (vec![turn], Ipv4Addr::LOCALHOST.into()));
    }
    // The server would receive any further copies of the group datagrams before this request.
    let address = (Ipv4Addr::LOCALHOST, port).into();
    assert_eq!(ask(&client, address, b"own")?.0, b"own");
    assert_eq!(running.stop()?.total().received, 21);
    for (bind, wrong) in
        [(ANY, groups[0].into()), ("0.0.0.0:0", "ff02::7".parse()?), (ANY, "127.0.0.1".parse()?)]
    {
        let result = Server::builder().bind(bind.parse()?).join_group(wrong, "lo").prepare();
        assert!(matches!(result, Err(ServerError::Group { .. })), "{bind} {wrong}");
    }
    Ok(())
}

#[test]
fn adopted_sockets_are_served_and_outlive_the_server() -> EngineTestResult {
    for backend in BACKENDS {
        let (adopted, client) = (UdpSocket::bind(ANY)?, client(ANY)?);
        adopted.set_nonblocking(true)?;
        let other_client = crate::support::client(ANY)?;
        for connected in [false, true] {
            if connected {
                adopted.connect(client.local_addr()?)?;
            }
            let builder = Server::builder().adopt(adopted.try_clone()?).workers(2).backend(backend);
            let running = builder.start(|_| Echo)?;
            let to = adopted.local_addr()?;
            assert_eq!(running.local_addr(), to);
            other_client.send_to(b"anybody", to)?;
            assert_eq!(ask(&client, to, b"mine")?.0, b"mine", "{backend:?} {connected}");
            let total = running.stop()?.total();
            assert_eq!(total.received, if connected { 1 } else { 2 }, "{total:?}");
        }
        // After the server has stopped, the socket still receives, and its read timeout works.
        client.send_to(b"after", adopted.local_addr()?)?;
        assert_eq!(adopted.recv(&mut [0; 16])?, 5);
        adopted.set_read_timeout(Some(Duration::from_millis(1)))?;
        assert!(adopted.recv(&mut [0; 16]).is_err());
    }
    let stream = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    let unbound = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    for unfit in [stream, unbound] {
        let result = Server::builder().adopt(unfit).prepare();
        assert!(matches!(result, Err(ServerError::Adopted { .. })), "{result:?}");
    }
    Ok(())
}

#[test]
fn each_bound_address_has_its_own_workers() -> EngineTestResult {
    for backend in BACKENDS {
        for sockets in crate::LAYOUTS {
            let running = local_server()
                .also_bind("127.0.0.2:0".parse()?)
                .also_bind("[::1]:0".parse()?)
                .workers(2.min(crate::support::cpus()?.len()))
                .sockets(sockets)
                .backend(backend)
                .start(|_| Echo)?;
            let addresses = running.local_addrs().to_vec();
            assert_eq!((addresses.len(), addresses[0]), (3, running.local_addr()));
            for to in addresses {
                let any = if to.is_ipv4() { ANY } else { "[::1]:0" };
                assert_eq!(
                    ask(&client(any)?, to, b"hello")?,
                    (b"hello".to_vec(), to),
                    "{backend:?} {sockets:?}"
                );
            }
            let report = running.stop()?;
            let workers: Vec<usize> =
                report.sockets.iter().flat_map(|socket| socket.workers.clone()).collect();
            assert_eq!(workers, (0..report.workers.len()).collect::<Vec<_>>());
            assert_eq!(report.total().answered, 3);
        }
    }
    Ok(())
}

/// Traffic class, segment size in bytes, and lengths of the datagrams of a request.
type ObservedRequest = (Option<u8>, Option<u16>, Vec<usize>);

/// A server that reports the [`ObservedRequest`] of each request and echoes the request.
fn start_observer(builder: Builder) -> Result<(RunningServer, Receiver<ObservedRequest>), ServerError> {
    let (sender, receiver) = channel();
    let start = move |_| {
        let sender = sender.clone();
        move |request: &Request<'_>, _: &mut [u8]| {
            let lengths = request.datagrams().map(<[u8]>::len).collect();
            let _ = sender.send((request.traffic_class(), request.segment_bytes(), lengths));
            Action::Echo
        }
    };
    Ok((builder.start(start)?, receiver))
}

/// A server that replies to `go` with `length` bytes and these options, and drops other requests.
fn start_replier(
    builder: Builder,
    length: usize,
    options: ReplyOptions,
) -> Result<RunningServer, ServerError> {
    builder.start(move |_| {
        move |request: &Request<'_>, reply: &mut [u8]| {
            reply[..length].fill(7);
            if request.payload() == b"go" { Action::ReplyWith { length, options } } else { Action::Drop }
        }
    })
}

#[test]
fn traffic_class_is_received_and_set_on_replies() -> EngineTestResult {
    // DSCP Expedited Forwarding (46) and ECN Congestion Experienced.
    let class = 0xbb;
    for backend in BACKENDS {
        for bind in [ANY, "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            let at = if bind.starts_with('[') { "[::1]:0" } else { ANY };
            let server = Server::builder().bind(bind.parse()?).workers(1);
            let (observer, observations) =
                start_observer(server.clone().backend(backend).receive_traffic_class(true))?;
            let to = SocketAddr::new(at.parse::<SocketAddr>()?.ip(), observer.local_addr().port());
            assert_eq!(ask(&client(at)?, to, b"plain")?.0, b"plain", "{backend:?} {bind}");
            assert_eq!(observations.recv_timeout(PATIENCE)?, (Some(0), None, vec![5]), "{backend:?} {bind}");
            let options = ReplyOptions { to: Some(to), traffic_class: Some(class), ..Default::default() };
            // The class is set on an immediate reply and on a deferred reply.
            let sender = start_replier(server.clone().backend(backend), 9, options)?;
            let through = SocketAddr::new(to.ip(), sender.local_addr().port());
            client(at)?.send_to(b"go", through)?;
            assert_eq!(
                observations.recv_timeout(PATIENCE)?,
                (Some(class), None, vec![9]),
                "{backend:?} {bind}"
            );
            let (deferring, requests) = start_forwarding(server.backend(backend))?;
            client(at)?.send_to(b"go", SocketAddr::new(to.ip(), deferring.local_addr().port()))?;
            requests.recv_timeout(PATIENCE)?.1.send_with(b"later", options)?;
            assert_eq!(
                observations.recv_timeout(PATIENCE)?,
                (Some(class), None, vec![5]),
                "{backend:?} {bind}"
            );
            // An IPv4 destination on a dual-stack socket.
            if bind == "[::]:0" {
                let v4 = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), to.port());
                let options = ReplyOptions { to: Some(v4), ..options };
                client(ANY)?.send_to(b"go", (Ipv4Addr::LOCALHOST, deferring.local_addr().port()))?;
                requests.recv_timeout(PATIENCE)?.1.send_with(b"mapped", options)?;
                assert_eq!(observations.recv_timeout(PATIENCE)?, (Some(class), None, vec![6]), "{backend:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn gro_delivers_segments_as_one_request_and_gso_splits_replies() -> EngineTestResult {
    let test = "gro_delivers_segments_as_one_request_and_gso_splits_replies";
    for backend in BACKENDS {
        for bind in [ANY, "0.0.0.0:0", "[::1]:0"] {
            let at = if bind.starts_with('[') { "[::1]:0" } else { ANY };
            let server = Server::builder().bind(bind.parse()?).workers(1).backend(backend);
            let prepared_server = server.clone().gro(true).prepare()?;
            if let Some(fallback) = prepared_server.fallbacks().first() {
                skip(test, fallback);
                return Ok(());
            }
            drop(prepared_server);
            let (observer, observations) = start_observer(server.clone().gro(true))?;
            let to = SocketAddr::new(at.parse::<SocketAddr>()?.ip(), observer.local_addr().port());
            assert_eq!(ask(&client(at)?, to, b"one")?.0, b"one");
            assert_eq!(observations.recv_timeout(PATIENCE)?, (None, None, vec![3]), "{backend:?} {bind}");
            assert_eq!(ask(&client(at)?, to, b"")?.0, b"");
            assert_eq!(observations.recv_timeout(PATIENCE)?, (None, None, vec![0]), "{backend:?} {bind}");
            // A client receives the datagrams of a segmented reply one by one. A server with GRO
            // receives them as one request.
            let options = ReplyOptions { segment_bytes: Some(100), ..Default::default() };
            let sender = start_replier(server.clone(), 250, options)?;
            let through = SocketAddr::new(to.ip(), sender.local_addr().port());
            let client = client(at)?;
            let mut answer = [0; 500];
            client.send_to(b"go", through)?;
            for expected in [100, 100, 50] {
                assert_eq!(client.recv(&mut answer)?, expected, "{backend:?} {bind}");
            }
            let options = ReplyOptions { to: Some(to), ..options };
            let sender = start_replier(server.clone(), 250, options)?;
            client.send_to(b"go", SocketAddr::new(to.ip(), sender.local_addr().port()))?;
            let coalesced = (None, Some(100), vec![100, 100, 50]);
            assert_eq!(observations.recv_timeout(PATIENCE)?, coalesced, "{backend:?} {bind}");
            // The observer's echo is segmented like the request, so `sender` receives three more
            // requests.
            let begun = std::time::Instant::now();
            while sender.total().received < 4 && begun.elapsed() < PATIENCE {
                thread::sleep(Duration::from_millis(1));
            }
            sender.stop()?;
            let total = observer.stop()?.total();
            assert_eq!(total.send_failed.total(), 0, "{total:?}");
        }
    }
    Ok(())
}

#[test]
fn steering_adopted_sockets_is_refused() -> EngineTestResult {
    let steered = SocketMode::SteeredByCpu(linerate_engine::SteeringProgram::Cbpf);
    let result = Server::builder().adopt(UdpSocket::bind(ANY)?).sockets(steered).prepare();
    assert!(matches!(result, Err(ServerError::Adopted { .. })), "{result:?}");
    Ok(())
}
