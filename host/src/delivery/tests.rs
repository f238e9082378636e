//! Real datagrams over loopback, which delivers them on the sender's CPU.

use std::io::IoSliceMut;
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use linerate_testkit::skip;
use rustix::net::sockopt::socket_cookie;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};

use super::*;
use crate::sys::sockopt::set_word;

const DEADLINE: Duration = Duration::from_secs(20);

/// Observes `traffic`; prints the reason and returns `None` if the machine does not allow it.
fn observe_traffic(test: &str, ports: &[u16], traffic: impl FnOnce() + Send) -> Option<DeliveryReport> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cpus < 2 {
        skip(test, "requires two CPUs");
        return None;
    }
    let watch = permitted(test, DeliveryWatch::start(&Host::live(), ports))?;
    std::thread::scope(|scope| scope.spawn(traffic).join()).expect("the traffic");
    Some(watch.read().expect("read"))
}

/// The result; `None`, after printing the reason, if the machine does not allow it.
fn permitted<T>(test: &str, result: Result<T, HostError>) -> Option<T> {
    match result {
        Err(error) if error.is_denied() || error.is_unsupported() => {
            skip(test, error);
            None
        }
        result => Some(result.expect("a result")),
    }
}

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).expect("pinned");
}

fn bind_socket(address: &str) -> (UdpSocket, u16, u64) {
    let socket = UdpSocket::bind(address).expect("bound");
    socket.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    let port = socket.local_addr().expect("an address").port();
    let cookie = socket_cookie(socket.as_fd()).expect("a cookie");
    (socket, port, cookie)
}

#[test]
fn delivery_reports_the_arrival_and_reading_cpu_of_datagrams() {
    let (socket, port, cookie) = bind_socket("127.0.0.1:0");
    let mut tid = 0;
    let traffic = || {
        let (ready, go) = mpsc::channel();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                pin(1);
                ready.send(()).expect("sent");
                for _ in 0..100 {
                    socket.recv(&mut [0; 64]).expect("a datagram");
                }
                gettid().as_raw_nonzero().get().unsigned_abs()
            });
            go.recv().expect("ready");
            pin(0);
            let sender = UdpSocket::bind("127.0.0.1:0").expect("bound");
            for _ in 0..100 {
                sender.send_to(&[0; 20], ("127.0.0.1", port)).expect("sent");
            }
            tid = reader.join().expect("read");
        });
    };
    let test = "delivery_reports_the_arrival_and_reading_cpu_of_datagrams";
    let Some(delivery) = observe_traffic(test, &[port], traffic) else { return };
    let read =
        DeliveryCount { cookie, arrived_on: Some(0), read_on: 1, pid: std::process::id(), tid, packets: 100 };
    // If another datagram arrives while the first is read, the first may count as one from before.
    let (with_arrival, before): (Vec<_>, Vec<_>) =
        delivery.read.into_iter().partition(|item| item.arrived_on.is_some());
    let before: u64 = before.iter().map(|item| item.packets).sum();
    assert!(before <= 1, "{before}");
    assert_eq!(with_arrival, [DeliveryCount { packets: 100 - before, ..read }]);
    assert_eq!(delivery.arrived, [ArrivalCount { cookie, cpu: 0, packets: 100, refused: 0 }]);
    assert_eq!((delivery.sent, delivery.missed), (vec![], 0));
}

#[test]
fn delivery_observation_stops_on_request_and_is_recorded() {
    let (_socket, port, _) = bind_socket("127.0.0.1:0");
    let test = "delivery_observation_stops_on_request_and_is_recorded";
    let stop = AtomicBool::new(true);
    let host = Host::live().recording();
    let result = DeliveryReport::observe(&host, &[port, 9], DEADLINE, &|| stop.load(Ordering::Relaxed));
    if let Some(delivery) = permitted(test, result) {
        assert!(delivery.seconds < DEADLINE.as_secs_f64(), "{delivery:?}");
    }
    let again = Host::recorded(host.into_recording());
    assert!(!matches!(
        DeliveryReport::observe(&again, &[port, 9], DEADLINE, &|| true),
        Err(HostError::NotLive { .. })
    ));
    let none =
        DeliveryReport::observe(&again, &[1], DEADLINE, &|| true).expect_err("port 1 was not recorded");
    assert_eq!(
        none.to_string(),
        "observing where datagrams are delivered (BPF; requires CAP_BPF and CAP_PERFMON): not available from a capture"
    );
}

#[test]
fn datagrams_refused_by_a_full_buffer_are_counted() {
    let (socket, port, cookie) = bind_socket("127.0.0.1:0");
    let traffic = || {
        pin(0);
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bound");
        // More than the smallest buffer holds, and no reader.
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 1).expect("the least");
        for _ in 0..50 {
            sender.send_to(&[0; 1000], ("127.0.0.1", port)).expect("sent");
        }
    };
    let test = "datagrams_refused_by_a_full_buffer_are_counted";
    let Some(delivery) = observe_traffic(test, &[port], traffic) else { return };
    socket.set_nonblocking(true).expect("set");
    let received_count = (0..50).take_while(|_| socket.recv(&mut [0; 1000]).is_ok()).count() as u64;
    assert!(received_count > 0 && received_count < 50, "{received_count}");
    assert_eq!(
        delivery.arrived,
        [ArrivalCount { cookie, cpu: 0, packets: received_count, refused: 50 - received_count }]
    );
    assert_eq!(delivery.read, []);
}

#[test]
fn ipv4_and_ipv6_sockets_are_counted_and_unwatched_ports_are_not() {
    let (four, port, _) = bind_socket("127.0.0.1:0");
    let (six, six_port, six_cookie) = match UdpSocket::bind("[::1]:0") {
        Ok(_) => bind_socket("[::1]:0"),
        Err(error) => {
            return skip("ipv4_and_ipv6_sockets_are_counted_and_unwatched_ports_are_not", error.to_string());
        }
    };
    let (other, other_port, _) = bind_socket("127.0.0.1:0");
    let times = libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    set_word(&four, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, times.cast_signed()).expect("set");
    let four_cookie = socket_cookie(four.as_fd()).expect("a cookie");
    let traffic = || {
        pin(1);
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let sender6 = UdpSocket::bind("[::1]:0").expect("bound");
        for bytes in [10, 0, 700] {
            sender.send_to(&vec![0; bytes], ("127.0.0.1", port)).expect("sent");
            sender.send_to(&vec![0; bytes], ("127.0.0.1", other_port)).expect("sent");
            sender6.send_to(&vec![0; bytes], ("::1", six_port)).expect("sent");
            let mut buffer = [0; 1000];
            // A peeked datagram has not been read.
            four.peek_from(&mut buffer).expect("a datagram");
            for socket in [&four, &six, &other] {
                let (length, from) = socket.recv_from(&mut buffer).expect("a datagram");
                socket.send_to(&buffer[..length], from).expect("answered");
            }
            // The time at which the answer left is no datagram either.
            let error_queue = RecvFlags::from_bits_retain(libc::MSG_ERRQUEUE.unsigned_abs());
            let mut control = RecvAncillaryBuffer::default();
            recvmsg(&four, &mut [IoSliceMut::new(&mut buffer)], &mut control, error_queue).expect("a time");
        }
    };
    let test = "ipv4_and_ipv6_sockets_are_counted_and_unwatched_ports_are_not";
    let Some(delivery) = observe_traffic(test, &[port, six_port], traffic) else { return };
    let mut cookies = [four_cookie, six_cookie];
    cookies.sort_unstable();
    let arrived: Vec<_> =
        delivery.arrived.iter().map(|count| (count.cookie, count.cpu, count.packets)).collect();
    assert_eq!(arrived, cookies.map(|cookie| (cookie, 1, 3)));
    let read: Vec<_> = delivery.read.iter().map(|l| (l.cookie, l.arrived_on, l.read_on, l.packets)).collect();
    assert_eq!(read, cookies.map(|cookie| (cookie, Some(1), 1, 3)));
    assert_eq!(delivery.sent, cookies.map(|cookie| SendCount { cookie, packets: 3, largest_bytes: 700 }));
}

#[test]
fn datagrams_between_observation_windows_have_no_arrival_cpu() {
    let (socket, port, cookie) = bind_socket("127.0.0.1:0");
    let mut program = match DeliveryProgram::start(&[port], false, false) {
        Ok(program) => program,
        Err(error) => {
            return skip("datagrams_between_observation_windows_have_no_arrival_cpu", error);
        }
    };
    let sender = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let exchange = |sent: usize, read: usize| {
        for _ in 0..sent {
            sender.send_to(&[0; 1000], ("127.0.0.1", port)).expect("sent");
        }
        for _ in 0..read {
            socket.recv(&mut [0; 1000]).expect("a datagram");
        }
    };
    pin(1);
    exchange(7, 4);
    program.detach().expect("detached");
    exchange(5, 2);
    program.attach().expect("attached");
    exchange(3, 9);
    let first = program.read().expect("read");
    let mut read: Vec<_> = first.read.iter().map(|l| (l.cookie, l.arrived_on, l.packets)).collect();
    read.sort_unstable();
    assert_eq!(read, [(cookie, None, 6), (cookie, Some(1), 7)]);
    program.detach().expect("detached");
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 1).expect("the least");
    exchange(50, 0);
    let [arrived] = &program.read().expect("read").arrived[..] else { panic!("one socket, one CPU") };
    assert_eq!(arrived.packets, 10, "{arrived:?}");
    assert!(arrived.refused > 0, "losses between windows are counted");
}

#[test]
fn observed_share_of_time_falls_with_the_packet_rate() {
    let report = |packets, seconds| DeliveryReport {
        seconds,
        arrived: vec![ArrivalCount { cookie: 1, cpu: 3, packets, refused: 0 }],
        ..DeliveryReport::default()
    };
    let two = Duration::from_secs(2);
    assert_eq!(window_share(&report(0, 0.01), two), 1.0);
    assert_eq!(window_share(&report(100, 0.1), two), 1.0);
    let busy = window_share(&report(100_000, 1.0), two);
    assert!((0.02..0.03).contains(&busy), "{busy}");
    assert!(window_share(&report(10_000_000, 1.0), two) < 0.001);
    // A short observation sees a larger share of the time, to have enough datagrams.
    let short = window_share(&report(20_000, 1.0), Duration::from_millis(300));
    assert!(short > 0.8, "{short}");
}

#[test]
fn flow_watch_counts_clients_answered_and_silenced_by_a_change() {
    let test = "flow_watch_counts_clients_answered_and_silenced_by_a_change";
    let (server, port, _) = bind_socket("127.0.0.1:0");
    let begin = std::time::Instant::now();
    let watch = FlowWatch::start_with_times(&Host::live(), &[port]);
    let Some(mut watch) = permitted(test, watch) else { return };
    let clients: Vec<UdpSocket> = (0..3)
        .map(|_| {
            let client = bind_socket("127.0.0.1:0").0;
            client.connect(("127.0.0.1", port)).expect("connected");
            client
        })
        .collect();
    let exchange = |client: &UdpSocket, answer: bool| {
        let mut request = [0; 8];
        client.send(b"request").expect("sent");
        let (length, from) = server.recv_from(&mut request).expect("received");
        if answer {
            server.send_to(&request[..length], from).expect("sent");
            client.recv(&mut request).expect("answered");
        }
    };
    for _ in 0..3 {
        clients.iter().for_each(|client| exchange(client, true));
    }
    watch.mark_change().expect("noted");
    exchange(&clients[0], true);
    exchange(&clients[1], false);
    let counts = watch.read().expect("read");
    // The third client sends nothing more.
    assert_eq!(counts, FlowCounts { silenced: 1, curtailed: 0, answered: 1, waiting: 1, served: 1 });
    let times = watch.reply_times().expect("read");
    let longest = times.quantile_ns(1.0).expect("a time");
    assert!(times.count() == 10 && longest <= begin.elapsed().as_nanos() as f64, "{times:?}");
}

#[test]
fn replies_to_more_clients_than_the_table_holds_are_timed() {
    let (server, port, _) = bind_socket("127.0.0.1:0");
    let watch = FlowWatch::start_with_times(&Host::live(), &[port]);
    let test = "replies_to_more_clients_than_the_table_holds_are_timed";
    let Some(watch) = permitted(test, watch) else { return };
    let mut clients = std::collections::BTreeSet::new();
    let mut sent = 0;
    while clients.len() < FlowWatch::MOST_CLIENTS + 1000 {
        // A free port each; some come twice.
        let client = UdpSocket::bind(format!("127.0.0.{}:0", 1 + sent % 2)).expect("bound");
        clients.insert(client.local_addr().expect("an address"));
        client.send_to(b"request", ("127.0.0.1", port)).expect("sent");
        let (_, from) = server.recv_from(&mut [0; 8]).expect("received");
        server.send_to(b"reply", from).expect("sent");
        sent += 1;
    }
    assert_eq!(watch.reply_times().expect("read").count(), sent);
    assert!(watch.by_client().expect("read").len() <= FlowWatch::MOST_CLIENTS);
}
