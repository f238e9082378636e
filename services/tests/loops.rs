//! Two of our servers, made to talk to each other by a datagram whose source is forged: in a lab, at the other's address.

use std::io::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use linerate_engine::{Echo, LoopBreaker, Running, Server, Service};
use linerate_lab::{Lab, LabHost};
use linerate_services::dns::{Dns, Served, Zones};
use linerate_services::guarded::Guarded;
use linerate_services::ntp::{Ntp, Settings};
use linerate_services::radius::{Port, Radius, Users, sign};
use socket2::{Domain, Protocol, Socket, Type};

/// Datagrams that show that all before them was read.
const MARKS: u64 = 50;
/// Most that a server may get of a conversation that dies.
const FEW: u64 = 3;
/// The same where an answer cannot be told from a request: until it is noticed that the same comes back again and again.
const NOTICED: u64 = 300;

struct Pair {
    /// Near the forger, and far from him.
    near: Running,
    far: Running,
}

/// A server on each host of a lab, as `service` makes them.
fn pair<S: Service + 'static>(
    lab: &Lab,
    ports: [u16; 2],
    service: impl Fn() -> S + Clone + Send + Sync + 'static,
) -> Pair {
    let link = &lab.links()[0];
    let start = |host: &LabHost, address: SocketAddr| {
        let service = service.clone();
        let server = Server::builder().bind(address).workers(1);
        host.run(move || server.start(move |_| service()).expect("a server in the lab")).expect("a host")
    };
    Pair {
        near: start(&lab.senders()[0], (link.sender.ipv4[0], ports[0]).into()),
        far: start(lab.receiver(), (link.receiver.ipv4[0], ports[1]).into()),
    }
}

/// Sends `payload` to the far server as if the near one had sent it.
fn forge(lab: &Lab, pair: &Pair, payload: &[u8]) {
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (pair.near.local_addr(), pair.far.local_addr()) else {
        panic!("IPv4 addresses were asked for");
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

/// How much each server got, once both have read all there was.
fn settled(lab: &Lab, pair: &Pair) -> [u64; 2] {
    // The far one first: what it sends to the near one is there before the marks are.
    for running in [&pair.far, &pair.near, &pair.far, &pair.near] {
        let (before, to) = (running.total().received, running.local_addr());
        lab.senders()[0]
            .run(move || {
                let stranger = UdpSocket::bind("0.0.0.0:0").expect("a socket");
                (0..MARKS).for_each(|_| assert!(stranger.send_to(b"?", to).is_ok()));
            })
            .expect("a host");
        await_more(running, before + MARKS);
    }
    [pair.near.total().received - 2 * MARKS, pair.far.total().received - 2 * MARKS]
}

fn await_more(running: &Running, received: u64) {
    let started = Instant::now();
    while running.total().received < received {
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", running.total());
        std::thread::yield_now();
    }
}

fn dies<S: Service + 'static>(
    what: &str,
    lab: &Lab,
    ports: [u16; 2],
    payload: &[u8],
    service: impl Fn() -> S + Clone + Send + Sync + 'static,
) {
    let pair = pair(lab, ports, service);
    forge(lab, &pair, payload);
    await_more(&pair.far, 1);
    let got = settled(lab, &pair);
    println!("{what}: the near server got {}, the far one {}", got[0], got[1]);
    assert!(got.iter().all(|got| *got <= FEW), "{what}: {got:?}");
    assert!(got[1] > 0, "{what}: the forgery arrived");
}

/// Two echoes at ports that clients might have, as `serve echo` makes them.
fn an_echo_notices(lab: &Lab) {
    let broken = Arc::default();
    let count = Arc::clone(&broken);
    let service =
        move || LoopBreaker::new(Guarded::new(Echo, Vec::new(), Arc::default()), Arc::clone(&count));
    let pair = pair(lab, [7007, 7008], service);
    forge(lab, &pair, b"hello");
    // It is over when one was not answered.
    let started = Instant::now();
    while broken.load(Relaxed) == 0 {
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", pair.far.total());
        std::thread::yield_now();
    }
    let got = settled(lab, &pair);
    println!("echo, at two high ports: the near server got {}, the far one {}", got[0], got[1]);
    assert!(got.iter().all(|got| (1..=NOTICED).contains(got)), "{got:?}");
    assert_eq!(broken.load(Relaxed), 1);
}

#[test]
fn a_conversation_of_servers_dies_at_once() {
    let test = "a_conversation_of_servers_dies_at_once";
    let lab = match Lab::builder().start() {
        Ok(lab) => lab,
        Err(why) => {
            let _ = std::io::stderr().write_all(format!("\nSKIP {test}: {why}\n").as_bytes());
            return;
        }
    };
    // What it looks like when nobody takes care: two plain echoes never end.
    let careless = pair(&lab, [7, 7], || Echo);
    forge(&lab, &careless, b"hello");
    await_more(&careless.far, 1_000);
    drop(careless);

    let guarded = || Guarded::new(Echo, Vec::new(), Arc::new(AtomicU16::new(7007)));
    dies("echo, at one port", &lab, [7007, 7007], b"hello", guarded);
    dies("echo, at a port below 1024", &lab, [7, 7007], b"hello", guarded);
    an_echo_notices(&lab);

    let ntp = || Ntp::new(Settings { local_stratum: Some(3), ..Settings::default() });
    let request = [&[0x23][..], &[0; 47]].concat();
    dies("ntp, a request", &lab, [123, 123], &request, ntp);
    let answer = [&[0x24][..], &[0; 47]].concat();
    dies("ntp, an answer", &lab, [123, 1123], &answer, ntp);

    let zone = "@ 60 IN SOA a b 1 2 3 4 5\n@ 60 IN NS a\na 60 IN A 192.0.2.1\n";
    let served = Served::new(Zones::parse("t", zone).expect("a zone"));
    let dns = move || Dns::new(Arc::clone(&served));
    let mut query = [&[0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], b"\x01a\x01t\0", &[0, 1, 0, 1]].concat();
    dies("dns, a query", &lab, [53, 53], &query, dns.clone());
    query[2] = 0x80;
    dies("dns, an answer", &lab, [53, 5353], &query, dns);

    let file = "[[client]]\nnetwork = \"198.18.0.0/15\"\nsecret = \"s\"\n";
    let users = Arc::new(Users::parse(file, Path::new("users")).expect("a file of users"));
    let radius = Radius::new(Port::Accounting, users);
    // Even one who knows the secret gets no conversation going.
    let mut request = [&[4, 1, 0, 26][..], &[0; 16], &[40, 6, 0, 0, 0, 1]].concat();
    sign(&mut request, None, b"s", [0; 16]);
    dies("radius, signed", &lab, [1813, 1813], &request, move || radius.worker());
}
