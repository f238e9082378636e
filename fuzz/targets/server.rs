//! Sends any sequence of datagrams to real servers on loopback, and checks that a good request gets
//! a reply after each datagram.
//!
//! The input is a list of datagrams: a length of two bytes, little endian, then that many bytes. If
//! the input ends earlier, the bytes are repeated. The first byte chooses the server.

#![no_main]

use std::cell::LazyCell;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use linerate_engine::{Action, Backend, Request, RunningServer, Server};

/// The longest UDP datagram over IPv4.
const LONGEST: usize = 65_507;
/// The start of a good request; a nonce follows, which is the reply.
const GOOD: &[u8] = b"\xfegood\xfe";
const NONCE: usize = 8;
/// The longest time for which other work on the machine may keep a server from its CPU.
const PATIENCE: Duration = Duration::from_secs(120);

/// Any behaviour a service can have, chosen by the first byte of the request.
fn answer(request: &Request<'_>, reply: &mut [u8]) -> Action {
    let payload = request.payload();
    if let Some(nonce) = payload.strip_prefix(GOOD).filter(|nonce| nonce.len() == NONCE) {
        reply[..NONCE].copy_from_slice(nonce);
        return Action::Reply(NONCE);
    }
    // All fields can be decoded, whatever they contain.
    let _ = (request.source(), request.destination(), request.is_truncated());
    let length = payload.len();
    match payload.first() {
        Some(0) => Action::Echo,
        // May be more than the buffer can hold.
        Some(1) => Action::Reply(length * 2),
        Some(2) => Action::ReplyTo { length: length.min(reply.len()), to: (Ipv4Addr::LOCALHOST, 0).into() },
        Some(3) => Action::ReplyTo { length: 1, to: "[::1]:9".parse().expect("an address") },
        _ => Action::Drop,
    }
}

struct Subject {
    // Serves until it is dropped.
    _running: RunningServer,
    address: SocketAddr,
}

impl Subject {
    fn new(bind: &str, backend: Backend, deliver_truncated: bool) -> Self {
        let server = Server::builder()
            .bind(bind.parse().expect("an address"))
            .workers(1)
            .backend(backend)
            .deliver_truncated(deliver_truncated)
            .start(|_| answer)
            .expect("a server on loopback");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.local_addr().port()));
        Self { _running: server, address }
    }
}

struct Bench {
    subjects: Vec<Subject>,
    stranger: UdpSocket,
    good: UdpSocket,
    nonce: u64,
}

impl Bench {
    fn new() -> Self {
        let client = || {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
            socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            socket
        };
        Self {
            subjects: vec![
                Subject::new("127.0.0.1:0", Backend::Mmsg { batch: 8 }, false),
                Subject::new("0.0.0.0:0", Backend::Mmsg { batch: 64 }, true),
                Subject::new("[::]:0", Backend::Mmsg { batch: 3 }, false),
                Subject::new("127.0.0.1:0", Backend::Recvfrom, true),
                Subject::new("[::]:0", Backend::Recvfrom, false),
            ],
            stranger: client(),
            good: client(),
            nonce: 0,
        }
    }

    fn run(&mut self, input: &[u8]) {
        let Some((choice, mut remaining)) = input.split_first() else {
            return;
        };
        let target = self.subjects[usize::from(*choice) % self.subjects.len()].address;
        while let Some((length, following)) = remaining.split_first_chunk::<2>() {
            let length = usize::from(u16::from_le_bytes(*length)).min(LONGEST);
            let (bytes, next) = following.split_at(length.min(following.len()));
            let datagram: Vec<u8> = bytes.iter().copied().cycle().take(length).collect();
            self.stranger.send_to(&datagram, target).expect("loopback takes any datagram");
            remaining = next;
            self.check(target);
        }
    }

    fn check(&mut self, target: SocketAddr) {
        self.nonce += 1;
        let nonce = self.nonce.to_le_bytes();
        self.good.send_to(&[GOOD, &nonce].concat(), target).expect("loopback takes any datagram");
        let mut answer = [0; 64];
        let length = loop {
            match self.good.recv(&mut answer) {
                // libFuzzer checks the time with an alarm, and a call with a timeout is not
                // restarted after a signal.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => break result.expect("a good request is answered"),
            }
        };
        assert_eq!(answer[..length], nonce);
    }
}

thread_local! {
    static BENCH: LazyCell<std::cell::RefCell<Bench>> = LazyCell::new(|| Bench::new().into());
}

fuzz_target!(|input: &[u8]| BENCH.with(|bench| bench.borrow_mut().run(input)));
