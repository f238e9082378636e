//! Losses of known count in a lab, and a clean run. The numbers are exact.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linerate_host::Host;
use linerate_lab::{Lab, LabHost};
use linerate_testkit::skip;
use rustix::thread::CapabilitySet;

use super::*;
use crate::call::RunCounting;
use crate::host_facts::sees_all_processes;

const DEADLINE: Duration = Duration::from_secs(10);

const PORT: u16 = 5300;

/// `None` without labs or tracing.
fn lab(test: &str) -> Option<Lab> {
    let lab = Lab::builder().start().map_err(|error| error.to_string());
    let result = lab.and_then(|lab| {
        let tracer = lab.receiver().run(|| DropsTracer::start(&Host::live(), &PortSubject::default()));
        tracer.map_err(|error| error.to_string())?.map(|_| lab).map_err(|error| error.to_string())
    });
    result.inspect_err(|why| skip(test, why)).ok()
}

fn subject(ports: &[u16]) -> PortSubject {
    PortSubject { ports: ports.to_vec(), ..PortSubject::default() }
}

fn start_tracer(host: &LabHost, subject: &PortSubject) -> DropsTracer {
    host.run(|| DropsTracer::start(&Host::live(), subject)).unwrap().unwrap()
}

fn socket(host: &LabHost, address: &str) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind(address)).unwrap().unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    socket
}

/// Whether the command succeeds.
fn ip(host: &LabHost, arguments: &str) -> bool {
    let mut command = Command::new("ip");
    command.args(arguments.split(' '));
    host.spawn(command).unwrap().wait().unwrap().success()
}

fn address(lab: &Lab, port: u16) -> SocketAddr {
    let link = &lab.links()[0];
    SocketAddr::new(link.receiver.ipv4[0].into(), port)
}

/// Reads until the counts satisfy the condition, or the deadline is over.
fn until(tracer: &DropsTracer, is_all: impl Fn(&PacketCounts) -> bool) -> PacketCounts {
    let begin = Instant::now();
    loop {
        let counts = tracer.read(&Host::live()).unwrap();
        if is_all(&counts) || begin.elapsed() > DEADLINE {
            assert_eq!(counts.event_count(CountedEvent::Missed), 0, "{counts:#?}");
            return counts;
        }
        std::thread::yield_now();
    }
}

fn send(socket: &UdpSocket, to: SocketAddr, lengths: impl IntoIterator<Item = usize>) {
    for length in lengths {
        socket.send_to(&vec![7; length], to).unwrap();
    }
}

/// Losses with a known network namespace. Packets in a closed socket have none, so those of
/// concurrent tests with the same port are visible.
fn lost_here(counts: &PacketCounts) -> Vec<&LossSite> {
    counts.lost.keys().filter(|site| site.network != 0).collect()
}

use PacketDirection::{Reply, Request};

#[test]
fn transactions_are_counted_at_each_path_point() {
    let Some(lab) = lab("transactions_are_counted_at_each_path_point") else { return };
    let server = socket(lab.receiver(), "0.0.0.0:5300");
    let sender = socket(&lab.senders()[0], "0.0.0.0:0");
    let tracer = start_tracer(lab.receiver(), &subject(&[PORT]));
    let other_end = start_tracer(&lab.senders()[0], &subject(&[PORT]));
    let unrelated = start_tracer(lab.receiver(), &subject(&[PORT + 1]));
    let mut buffer = [0; 100];
    for _ in 0..200 {
        send(&sender, address(&lab, PORT), [40]);
        let (length, from) = server.recv_from(&mut buffer).unwrap();
        server.send_to(&buffer[..length], from).unwrap();
        sender.recv_from(&mut buffer).unwrap();
    }
    let counts = until(&tracer, |_| true);
    for point in [PathPoint::Received, PathPoint::Delivered, PathPoint::Read] {
        assert_eq!(counts.packets(point, Request), 200, "{point:?}: {counts:#?}");
    }
    for point in [PathPoint::Sent, PathPoint::Queued] {
        assert_eq!(counts.packets(point, Reply), 200, "{point:?}: {counts:#?}");
    }
    assert_eq!(
        (counts.packets(PathPoint::Truncated, Request), lost_here(&counts)),
        (0, vec![]),
        "{counts:#?}"
    );
    let counts = until(&other_end, |_| true);
    assert_eq!(counts.packets(PathPoint::Queued, Request), 200, "{counts:#?}");
    assert_eq!(counts.packets(PathPoint::Received, Reply), 200, "{counts:#?}");
    assert_eq!(
        counts.packets(PathPoint::Delivered, Request),
        0,
        "sockets of clients are not counted: {counts:#?}"
    );
    let counts = until(&unrelated, |_| true);
    assert!(counts.passed.is_empty() && counts.lost.is_empty(), "{counts:#?}");

    // Three are longer than the read buffer, one is equal.
    send(&sender, address(&lab, PORT), [10, 100, 20, 50, 100, 0, 51, 3]);
    let before = until(&tracer, |counts| counts.packets(PathPoint::Delivered, Request) == 208);
    for _ in 0..8 {
        server.recv_from(&mut buffer[..50]).unwrap();
    }
    let counts = until(&tracer, |_| true).since(&before);
    let reads = [PathPoint::Read, PathPoint::Truncated, PathPoint::LengthUnknown];
    assert_eq!(reads.map(|point| counts.packets(point, Request)), [8, 3, 0], "{counts:#?}");
}

#[test]
fn ipv6_packets_are_counted_for_one_port_all_ports_or_one_peer() {
    let Some(lab) = lab("ipv6_packets_are_counted_for_one_port_all_ports_or_one_peer") else { return };
    let result = lab.receiver().run(|| UdpSocket::bind("[::1]:5300")).unwrap();
    let Ok(server) = result else {
        return skip("ipv6_packets_are_counted_for_one_port_all_ports_or_one_peer", "no IPv6 here");
    };
    let client = socket(lab.receiver(), "[::1]:0");
    assert!(ip(lab.receiver(), "link set lo mtu 1280"));
    let one_port = start_tracer(lab.receiver(), &subject(&[PORT]));
    let all_ports = start_tracer(lab.receiver(), &PortSubject::default());
    let peer = PortSubject { peer: Some("::1".parse().unwrap()), ..subject(&[PORT]) };
    let peer = start_tracer(lab.receiver(), &peer);
    let other_peer = PortSubject { peer: Some("2001:db8::1".parse().unwrap()), ..subject(&[PORT]) };
    let other_peer = start_tracer(lab.receiver(), &other_peer);
    send(&client, server.local_addr().unwrap(), [32; 19]);
    // Two fragments, of which the first one counts.
    send(&client, server.local_addr().unwrap(), [2000]);
    send(&client, "[::1]:9".parse().unwrap(), [32; 5]);
    let counts = until(&one_port, |counts| counts.packets(PathPoint::Delivered, Request) >= 20);
    assert_eq!(counts.packets(PathPoint::Received, Request), 20, "{counts:#?}");
    assert_eq!(counts.packets(PathPoint::Delivered, Request), 20, "{counts:#?}");
    let events = [CountedEvent::Fragment, CountedEvent::Unparsed].map(|event| counts.event_count(event));
    assert_eq!(events, [1, 0], "{counts:#?}");
    assert!(lost_here(&counts).is_empty(), "{counts:#?}");
    let counts = until(&all_ports, |counts| counts.lost_for("NO_SOCKET", Request) >= 5);
    assert_eq!(counts.packets(PathPoint::Queued, Reply), 25, "{counts:#?}");
    assert_eq!(counts.packets(PathPoint::Received, Request), 25, "{counts:#?}");
    assert_eq!(counts.lost_for("NO_SOCKET", Request), 5, "{counts:#?}");
    let counts = until(&peer, |_| true);
    assert_eq!(counts.packets(PathPoint::Received, Request), 20, "{counts:#?}");
    let counts = until(&other_peer, |_| true);
    assert!(counts.passed.is_empty(), "{counts:#?}");
}

#[test]
fn packets_of_tunnels_are_left_out_if_no_port_is_named() {
    let test = "packets_of_tunnels_are_left_out_if_no_port_is_named";
    let Some(lab) = lab(test) else { return };
    let receiver = lab.receiver();
    let host = Host::live_with_sys(receiver.sys_path().unwrap());
    if !sees_all_processes(&host) || !ip(receiver, "link add vx0 type vxlan id 3 dstport 5300") {
        return skip(test, "VXLAN, or processes of other namespaces");
    }
    assert!(ip(receiver, "link set vx0 up"));
    let start = |subject: PortSubject| receiver.run(|| DropsTracer::start(&host, &subject)).unwrap().unwrap();
    let (all_ports, one_port) = (start(PortSubject::default()), start(subject(&[PORT])));
    let sender = socket(&lab.senders()[0], "0.0.0.0:0");
    send(&sender, address(&lab, PORT), [50; 10]);
    send(&sender, address(&lab, PORT + 1), [50; 10]);
    until(&one_port, |counts| counts.packets(PathPoint::Received, Request) == 10);
    let counts = until(&all_ports, |counts| counts.packets(PathPoint::Received, Request) >= 10);
    assert_eq!(counts.packets(PathPoint::Received, Request), 10, "{counts:#?}");
    assert!(counts.notes.iter().any(|note| note.starts_with("UDP port 5300 of a tunnel")), "{counts:#?}");
}

#[test]
fn overhead_contains_only_timed_runs_while_another_process_keeps_timing_programs() {
    let Some(lab) = lab("overhead_contains_only_timed_runs_while_another_process_keeps_timing_programs")
    else {
        return;
    };
    let _counting = RunCounting::start(program::WHAT).unwrap();
    let server = socket(lab.receiver(), "0.0.0.0:5300");
    let mut tracer = start_tracer(lab.receiver(), &subject(&[PORT]));
    let timed_runs = |tracer: &DropsTracer| tracer.overhead().value().map_or(0, |share| share.timed_runs);
    let timed_before = timed_runs(&tracer);
    for _ in 0..1000 {
        send(&server, address(&lab, PORT), [32]);
    }
    let counters = tracer.attached.programs.run_counters(&tracer.attached.at).unwrap();
    let before = counters.read().unwrap().runs;
    assert!(before >= 1000, "{before} runs: the kernel times programs all the time");
    tracer.time_now().unwrap();
    let after = counters.read().unwrap().runs;
    let timed = timed_runs(&tracer) - timed_before;
    assert!(timed <= after - before, "{timed} runs in a time with {}", after - before);
}

#[test]
fn without_cap_sys_admin_the_share_of_the_programs_is_an_estimate() {
    let Some(lab) = lab("without_cap_sys_admin_the_share_of_the_programs_is_an_estimate") else { return };
    let server = socket(lab.receiver(), "0.0.0.0:5300");
    let mut tracer = start_tracer(lab.receiver(), &subject(&[PORT]));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                send(&server, address(&lab, PORT), [32]);
            }
        });
        let estimate = scope.spawn(|| {
            let mut capabilities = rustix::thread::capabilities(None).unwrap();
            capabilities.effective.remove(CapabilitySet::SYS_ADMIN);
            rustix::thread::set_capabilities(None, capabilities).unwrap();
            let begin = Instant::now();
            while tracer.time_now().unwrap() == 0.0 {
                assert!(begin.elapsed() < DEADLINE);
            }
            tracer.overhead()
        });
        let overhead = estimate.join();
        is_over.store(true, Ordering::Relaxed);
        let why = overhead.unwrap();
        assert!(why.why().is_some_and(|why| why.contains("CAP_SYS_ADMIN")), "{why:?}");
    });
}

#[test]
fn replies_are_awaited_longer_than_packets_in_flight() {
    let Some(lab) = lab("replies_are_awaited_longer_than_packets_in_flight") else { return };
    let tracer = start_tracer(lab.receiver(), &subject(&[PORT]));
    let mut counts = tracer.read(&Host::live()).unwrap();
    let begin = Instant::now();
    tracer.settle(&mut counts, 1, 3 * SETTLED).unwrap();
    assert!(begin.elapsed() >= 3 * SETTLED);
}
