//! Reply loops: datagrams with a forged source make two linerate servers in a lab answer each
//! other. The conversation must end after a few datagrams.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::AtomicU16;
use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use linerate_engine::{AfXdpSettings, Backend, Echo, RunningServer, Server, Service};
use linerate_lab::Lab;
use linerate_networks::echo::{HEADER_BYTES, REPLY, REQUEST};
use linerate_services::echo::RequestEcho;
use linerate_services::guarded_service::GuardedService;
use linerate_testkit::skip;
use socket2::{Domain, Protocol, Socket, Type};

/// Number of datagrams sent after a conversation. When they are counted, all earlier datagrams are,
/// too.
const MARKS: u64 = 50;
/// The most datagrams that a server may receive in a conversation that ends.
const FEW: u64 = 4;

struct ServerPair {
    /// The server on the forger's host. `far` is on the other host.
    near: RunningServer,
    far: RunningServer,
}

/// Starts a server on each host of a lab.
fn pair<N: Service + 'static, F: Service + 'static>(
    lab: &Lab,
    backend: Backend,
    ports: [u16; 2],
    near: impl Fn() -> N + Send + 'static,
    far: impl Fn() -> F + Send + 'static,
) -> ServerPair {
    let link = &lab.links()[0];
    let server_at = |address: SocketAddr| Server::builder().bind(address).workers(1).backend(backend);
    let server = server_at((link.sender.ipv4[0], ports[0]).into());
    let start = move || server.start(move |_| near()).expect("a server in the lab");
    let near = lab.senders()[0].run(start).expect("a host");
    let server = server_at((link.receiver.ipv4[0], ports[1]).into());
    let start = move || server.start(move |_| far()).expect("a server in the lab");
    ServerPair { near, far: lab.receiver().run(start).expect("a host") }
}

/// Sends `payload` to the far server, with the near server's address as the source.
fn forge(lab: &Lab, pair: &ServerPair, payload: &[u8]) {
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (pair.near.local_addr(), pair.far.local_addr()) else {
        panic!("the servers have no IPv4 addresses");
    };
    let builder = PacketBuilder::ipv4(from.ip().octets(), to.ip().octets(), 64).udp(from.port(), to.port());
    let mut packet = Vec::new();
    builder.write(&mut packet, payload).expect("memory");
    lab.senders()[0]
        .run(move || {
            let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255))).expect("a raw socket");
            raw.send_to(&packet, &SocketAddr::V4(to).into()).expect("sent");
        })
        .expect("a host");
}

/// The number of datagrams that each server received, after both have read all of them.
fn received_counts(lab: &Lab, pair: &ServerPair) -> [u64; 2] {
    // The far server first, so that the datagrams that it sends to the near server arrive before
    // the marks.
    for server in [&pair.far, &pair.near, &pair.far, &pair.near] {
        let (before, to) = (server.total().received, server.local_addr());
        lab.senders()[0]
            .run(move || {
                let client = UdpSocket::bind("0.0.0.0:0").expect("a socket");
                (0..MARKS).for_each(|_| assert!(client.send_to(b"?", to).is_ok()));
            })
            .expect("a host");
        await_more(server, before + MARKS);
    }
    [pair.near.total().received - 2 * MARKS, pair.far.total().received - 2 * MARKS]
}

fn await_more(server: &RunningServer, received: u64) {
    let started = Instant::now();
    while server.total().received < received {
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", server.total());
        std::thread::yield_now();
    }
}

/// Forges two different datagrams. A server would have to remember both to detect that they return.
fn assert_loop_ends_between(label: &str, lab: &Lab, pair: &ServerPair, payload: &[u8]) {
    let mut other = payload.to_vec();
    forge(lab, pair, payload);
    *other.last_mut().expect("a payload") ^= 1;
    forge(lab, pair, &other);
    await_more(&pair.far, 2);
    let received = received_counts(lab, pair);
    println!("{label}: the near server received {}, the far server {}", received[0], received[1]);
    assert!(received.iter().all(|received| *received <= FEW), "{label}: {received:?}");
    assert!(received[1] > 0, "{label}: the forgery arrived");
}

/// The echo service of `linerate serve echo`, with its own port 7007, which a client might use,
/// too.
fn guarded_echo(any: bool) -> GuardedService<RequestEcho> {
    GuardedService::new(RequestEcho::new(any, Arc::default()), Vec::new(), Arc::new(AtomicU16::new(7007)))
}

/// A payload that begins with `start` and has at least the length of a request.
fn payload_with_header(start: [u8; 4]) -> Vec<u8> {
    [&start[..], &[0; HEADER_BYTES]].concat()
}

/// A conversation of two echo servers ends, and so does one with a plain echo server, which returns
/// every datagram unchanged. Tests each forged payload, and the plain server on either host.
fn assert_echo_loops_end(lab: &Lab, backend: Backend) {
    for payload in [payload_with_header(REQUEST), payload_with_header(REPLY), b"hello".to_vec()] {
        let label = format!("echo, {}, {:?}", backend_name(backend), &payload[..4]);
        let echo_pair = pair(lab, backend, [7007, 7008], || guarded_echo(false), || guarded_echo(false));
        assert_loop_ends_between(&format!("{label}, two guarded servers"), lab, &echo_pair, &payload);
        drop(echo_pair);
        let plain = pair(lab, backend, [7008, 7007], || Echo, || guarded_echo(false));
        assert_loop_ends_between(&format!("{label}, plain server near"), lab, &plain, &payload);
        drop(plain);
        let plain = pair(lab, backend, [7007, 7008], || guarded_echo(false), || Echo);
        assert_loop_ends_between(&format!("{label}, plain server far"), lab, &plain, &payload);
    }
    // Servers that echo any payload refuse each other because of their ports. They recognize
    // replies with a header even from other ports.
    assert_echo_loop_ends(lab, backend, [7007, 7007], b"hello");
    assert_echo_loop_ends(lab, backend, [7, 7007], b"hello");
    assert_echo_loop_ends(lab, backend, [7007, 7008], &payload_with_header(REQUEST));
}

fn assert_echo_loop_ends(lab: &Lab, backend: Backend, ports: [u16; 2], payload: &[u8]) {
    let pair = pair(lab, backend, ports, || guarded_echo(true), || guarded_echo(true));
    assert_loop_ends_between(
        &format!("echo of anything, {}, {ports:?}", backend_name(backend)),
        lab,
        &pair,
        payload,
    );
}

fn backend_name(backend: Backend) -> &'static str {
    if matches!(backend, Backend::Xdp(_)) { "AF_XDP" } else { "mmsg" }
}

#[test]
fn reply_loops_between_two_servers_end_after_a_few_datagrams() {
    let test = "reply_loops_between_two_servers_end_after_a_few_datagrams";
    let Ok(lab) = Lab::builder().start().map_err(|why| skip(test, why)) else { return };
    // For comparison: two plain echo servers answer each other forever.
    let careless = pair(&lab, Backend::Mmsg { batch: 64 }, [7, 7], || Echo, || Echo);
    forge(&lab, &careless, b"hello");
    await_more(&careless.far, 1_000);
    drop(careless);

    assert_echo_loops_end(&lab, Backend::Mmsg { batch: 64 });
    assert_echo_loops_end(&lab, Backend::Xdp(AfXdpSettings::default()));
}
