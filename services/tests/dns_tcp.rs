//! The DNS server over TCP, queried through sockets.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_services::dns::{ConnectionFilter, ServedZones, TcpServer, TcpSettings, Zones};

fn zone() -> String {
    let mut zone = "$TTL 60\n@ IN SOA ns hostmaster 1 2 3 4 5\n@ IN NS ns\nns IN A 192.0.2.1\n".to_owned();
    for number in 0..200 {
        zone.push_str(&format!("big IN TXT \"{number} {}\"\n", "x".repeat(200)));
    }
    zone
}

fn server(change: impl FnOnce(&mut TcpSettings), admit: bool) -> (TcpServer, Arc<ServedZones>) {
    let served = ServedZones::new(Zones::parse("example.test", &zone()).expect("a zone"));
    let mut settings = TcpSettings::new("127.0.0.1:0".parse().expect("an address"));
    change(&mut settings);
    let admits: ConnectionFilter = Arc::new(move |_| admit);
    (TcpServer::start(&settings, &served, &admits).expect("a server"), served)
}

fn connect(server: &TcpServer) -> TcpStream {
    let stream = TcpStream::connect(server.local_addr()).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    stream
}

fn query(id: u16, name: &str, qtype: u8) -> Vec<u8> {
    let mut message = [&id.to_be_bytes()[..], b"\0\0\0\x01\0\0\0\0\0\0"].concat();
    for label in name.split('.') {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.extend_from_slice(&[0, 0, qtype, 0, 1]);
    let mut framed = (message.len() as u16).to_be_bytes().to_vec();
    framed.extend_from_slice(&message);
    framed
}

fn answer(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).expect("a length");
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message).expect("a message");
    message
}

fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn answers_over_the_udp_size_arrive_complete() {
    let (server, _served) = server(|_| {}, true);
    let mut stream = connect(&server);
    stream.write_all(&query(7, "big.example.test", 16)).expect("a query");
    let message = answer(&mut stream);
    assert!(message.len() > 40_000, "{}", message.len());
    assert_eq!((&message[..2], message[2] & 2, &message[6..8]), (&[0, 7][..], 0, &[0, 200][..]));
}

#[test]
fn pipelined_queries_in_pieces_are_answered_in_order() {
    let (server, _served) = server(|_| {}, true);
    let mut stream = connect(&server);
    stream.set_nodelay(true).expect("no delay");
    let all: Vec<u8> = (0..50).flat_map(|id| query(id, "ns.example.test", 1)).collect();
    let mut reader = stream.try_clone().expect("a second handle");
    let reader_thread = std::thread::spawn(move || (0..50).map(|_| answer(&mut reader)).collect::<Vec<_>>());
    for piece in all.chunks(13) {
        stream.write_all(piece).expect("a piece");
    }
    for (id, message) in reader_thread.join().expect("answers").iter().enumerate() {
        assert_eq!((message[1] as usize, message[7]), (id, 1));
    }
    assert_eq!(server.counts().answered, 50);
}

#[test]
fn server_stops_reading_from_a_client_that_reads_no_answers() {
    let (server, _served) = server(|_| {}, true);
    let mut stream = connect(&server);
    stream.set_write_timeout(Some(Duration::from_secs(2))).expect("a timeout");
    // Each query of 36 bytes has an answer of more than 40 kB. Without a limit, the server would
    // buffer gigabytes.
    let many: Vec<u8> = (0..1_000).flat_map(|id| query(id, "big.example.test", 16)).collect();
    let mut stuck = false;
    for _ in 0..2_000 {
        if stream.write_all(&many).is_err() {
            stuck = true;
            break;
        }
    }
    assert!(stuck, "the server read all queries");
    // The server still answers another client.
    let mut other = connect(&server);
    other.write_all(&query(9, "ns.example.test", 1)).expect("a query");
    assert_eq!(answer(&mut other)[1], 9);
}

#[test]
fn connections_over_the_limit_are_closed_at_once() {
    let (server, _served) = server(|settings| settings.connections = 2, true);
    let mut open = [connect(&server), connect(&server)];
    for (id, stream) in open.iter_mut().enumerate() {
        stream.write_all(&query(id as u16, "ns.example.test", 1)).expect("a query");
        answer(stream);
    }
    assert!(is_closed(&mut connect(&server)), "the third connection is over the limit");
    assert_eq!(server.counts().refused, 1);
}

#[test]
fn idle_connections_are_closed_and_free_their_slot() {
    let limits = |settings: &mut TcpSettings| {
        settings.connections = 1;
        settings.idle = Duration::from_millis(300);
    };
    let (server, _served) = server(limits, true);
    let mut idle = connect(&server);
    idle.write_all(&[0]).expect("half a length");
    assert!(is_closed(&mut idle));
    let began = Instant::now();
    loop {
        let mut stream = connect(&server);
        if stream.write_all(&query(3, "ns.example.test", 1)).is_ok() && !is_closed(&mut stream) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "the closed connection keeps its slot");
    }
}

#[test]
fn connections_that_the_filter_refuses_are_closed() {
    let (server, _served) = server(|_| {}, false);
    assert!(is_closed(&mut connect(&server)));
    assert_eq!(server.counts().refused, 1);
}

#[test]
fn a_zone_exchange_applies_to_open_connections() {
    let (server, served) = server(|_| {}, true);
    let mut stream = connect(&server);
    stream.write_all(&query(1, "new.example.test", 1)).expect("a query");
    assert_eq!(answer(&mut stream)[3] & 15, 3, "no such name yet");
    let zone = format!("{}new IN A 192.0.2.9\n", zone());
    served.exchange(Zones::parse("example.test", &zone).expect("a zone"));
    stream.write_all(&query(2, "new.example.test", 1)).expect("a query");
    let message = answer(&mut stream);
    assert_eq!((message[3] & 15, message[7]), (0, 1));
}

#[test]
fn port_of_another_server_is_refused_although_it_is_shared() {
    let (first, zones) = server(|_| {}, true);
    let settings = TcpSettings::new(first.local_addr());
    let admits: ConnectionFilter = Arc::new(|_| true);
    let error = TcpServer::start(&settings, &zones, &admits).map(drop).expect_err("the port is in use");
    let command = format!("`ss -ltnp 'sport = :{}'`", first.local_addr().port());
    assert!(error.to_string().contains(&command), "{error}");
}
