//! A UDP service with exact counters, and checks of generator outcomes.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use linerate_load::header::{RequestCodec, RequestHeader};
use linerate_load::{LoadSlot, PacingMode, SlotOutcome};

/// Payload of an echo request in bytes.
pub(crate) const PAYLOAD: usize = 100;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) received: u64,
    pub(crate) answered: u64,
    pub(crate) dropped: u64,
    pub(crate) duplicated: u64,
    pub(crate) corrupted: u64,
}

pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<Account>>,
}

impl Service {
    /// Starts a thread that calls `serve` with its socket, a request, its source and the account.
    pub(crate) fn start(
        serve: impl FnMut(&UdpSocket, &mut [u8], SocketAddr, &mut Account) + Send + 'static,
    ) -> Self {
        Service::start_at("127.0.0.1:0".parse().unwrap(), serve)
    }

    pub(crate) fn start_at(
        at: SocketAddr,
        mut serve: impl FnMut(&UdpSocket, &mut [u8], SocketAddr, &mut Account) + Send + 'static,
    ) -> Self {
        let socket = UdpSocket::bind(at).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        // Each live XDP frame takes a page of the receive buffer.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 256 << 20);
        let address = socket.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let handle = std::thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            let mut account = Account::default();
            loop {
                match socket.recv_from(&mut buffer) {
                    Ok((length, source)) => {
                        account.received += 1;
                        serve(&socket, &mut buffer[..length], source, &mut account);
                    }
                    // The service ends only when the socket is empty, so its account is complete.
                    Err(_) if stopped.load(Ordering::Relaxed) => return account,
                    Err(_) => {}
                }
            }
        });
        Service { address, stop, handle: Some(handle) }
    }

    /// Answers every request unchanged.
    pub(crate) fn echo() -> Self {
        Service::start(echo)
    }

    /// Ends the service once it has received all requests.
    pub(crate) fn stop(mut self) -> Account {
        self.stop.store(true, Ordering::Relaxed);
        self.handle.take().unwrap().join().unwrap()
    }
}

pub(crate) fn echo(socket: &UdpSocket, request: &mut [u8], source: SocketAddr, account: &mut Account) {
    account.answered += 1;
    socket.send_to(request, source).unwrap();
}

/// Echoes each request. After each of the first eight requests, also sends a forged reply: four
/// unsolicited, one late, and three corrupt replies.
pub(crate) fn echo_with_forged_replies(
    socket: &UdpSocket,
    request: &mut [u8],
    source: SocketAddr,
    account: &mut Account,
) {
    let codec = RequestCodec::new(PAYLOAD).unwrap();
    let longer = RequestCodec::new(PAYLOAD + 300).unwrap();
    let header = codec.read(request).unwrap();
    let forge = |codec: &RequestCodec, header: RequestHeader| {
        let mut bytes = codec.blank();
        codec.write(&header, &mut bytes);
        socket.send_to(&bytes, source).unwrap();
    };
    socket.send_to(request, source).unwrap();
    match account.received {
        1 => forge(&codec, RequestHeader { run: header.run ^ 1, ..header }),
        2 => forge(&longer, RequestHeader { run: header.run ^ 1, ..header }),
        3 => forge(&codec, RequestHeader { flow: header.flow + 1, ..header }),
        4 => forge(&codec, RequestHeader { sequence: header.sequence + 1_000_000, ..header }),
        5 => forge(&codec, RequestHeader { epoch: header.epoch - 1, ..header }),
        6 => forge(&longer, header),
        7 => drop(socket.send_to(&request[..10], source).unwrap()),
        8 => drop(socket.send_to(b"", source).unwrap()),
        _ => {}
    }
}

pub(crate) fn slot(mode: PacingMode, milliseconds: u64) -> LoadSlot {
    LoadSlot { drain: Duration::from_secs(2), ..LoadSlot::new(mode, Duration::from_millis(milliseconds)) }
}

pub(crate) fn rate(per_second: f64) -> PacingMode {
    PacingMode::Rate { per_second }
}

pub(crate) fn assert_balanced(outcome: &SlotOutcome) {
    assert_eq!(outcome.sent, outcome.answered + outcome.lost, "{outcome:?}");
    assert_eq!(outcome.latency_ns.count(), outcome.answered);
}

pub(crate) fn assert_nobody_listens(outcome: &SlotOutcome) {
    assert_balanced(outcome);
    assert_eq!(outcome.answered, 0);
    assert!(outcome.sent > 0 && outcome.send_errors.nobody_listens(), "{outcome:?}");
    assert_eq!((outcome.send_errors.unsent(), outcome.send_errors.rejected), (0, 0));
}

/// Sets `cancel` after `milliseconds`.
pub(crate) fn cancel_after(cancel: &Arc<AtomicBool>, milliseconds: u64) -> JoinHandle<()> {
    let cancel = Arc::clone(cancel);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(milliseconds));
        cancel.store(true, Ordering::Relaxed);
    })
}
