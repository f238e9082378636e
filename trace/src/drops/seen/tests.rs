//! Losses of known count in a lab, and a clean run. The numbers are exact.

use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use linerate_host::Host;
use linerate_lab::{Lab, LabHost};
use linerate_testkit::skip;

use super::*;

const DEADLINE: Duration = Duration::from_secs(10);

const PORT: u16 = 5300;

/// `None` without labs or tracing.
fn lab(test: &str) -> Option<Lab> {
    let lab = Lab::builder().start().map_err(|error| error.to_string());
    let looked = lab.and_then(|lab| {
        let look = lab.receiver().run(|| DropsTracer::start(&Host::live(), &PortSubject::default()));
        look.map_err(|error| error.to_string())?.map(|_| lab).map_err(|error| error.to_string())
    });
    looked.inspect_err(|why| skip(test, why)).ok()
}

fn subject(ports: &[u16]) -> PortSubject {
    PortSubject { ports: ports.to_vec(), ..PortSubject::default() }
}

fn watch(host: &LabHost, subject: &PortSubject) -> DropsTracer {
    host.run(|| DropsTracer::start(&Host::live(), subject)).unwrap().unwrap()
}

fn socket(host: &LabHost, address: &str) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind(address)).unwrap().unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    socket
}

fn address(lab: &Lab, port: u16) -> SocketAddr {
    let link = &lab.links()[0];
    SocketAddr::new(link.receiver.ipv4[0].into(), port)
}

/// Reads until the counts satisfy the condition, or the deadline is over.
fn until(look: &DropsTracer, is_all: impl Fn(&PacketCounts) -> bool) -> PacketCounts {
    let begin = Instant::now();
    loop {
        let seen = look.read(&Host::live()).unwrap();
        if is_all(&seen) || begin.elapsed() > DEADLINE {
            assert_eq!(seen.missed, 0, "{seen:#?}");
            return seen;
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
fn lost_here(seen: &PacketCounts) -> Vec<LostCount> {
    seen.lost.iter().filter(|lost| lost.network != 0).cloned().collect()
}

use PacketDirection::{Reply, Request};

#[test]
fn what_nobody_listens_to_is_lost_for_that_reason() {
    let Some(lab) = lab("what_nobody_listens_to_is_lost_for_that_reason") else { return };
    let look = watch(lab.receiver(), &subject(&[PORT]));
    let sender = socket(&lab.senders()[0], "0.0.0.0:0");
    send(&sender, address(&lab, PORT), [32; 100]);
    let seen = until(&look, |seen| seen.lost_for("NO_SOCKET", Request) >= 100);
    assert_eq!(seen.lost_for("NO_SOCKET", Request), 100, "{seen:#?}");
    assert_eq!(lost_here(&seen).iter().map(|lost| lost.packets).sum::<u64>(), 100, "{seen:#?}");
    assert_eq!(seen.packets(PathPoint::Received, Request), 100, "{seen:#?}");
    assert_eq!(seen.packets(PathPoint::Delivered, Request), 0);
    assert_eq!(lost_here(&until(&look, |_| true).since(&seen)), []);
}

#[test]
fn transactions_are_seen_at_each_point() {
    let Some(lab) = lab("transactions_are_seen_at_each_point") else { return };
    let server = socket(lab.receiver(), "0.0.0.0:5300");
    let sender = socket(&lab.senders()[0], "0.0.0.0:0");
    let look = watch(lab.receiver(), &subject(&[PORT]));
    let other_end = watch(&lab.senders()[0], &subject(&[PORT]));
    let unrelated = watch(lab.receiver(), &subject(&[PORT + 1]));
    let mut buffer = [0; 100];
    for _ in 0..200 {
        send(&sender, address(&lab, PORT), [40]);
        let (length, from) = server.recv_from(&mut buffer).unwrap();
        server.send_to(&buffer[..length], from).unwrap();
        sender.recv_from(&mut buffer).unwrap();
    }
    let seen = until(&look, |_| true);
    for point in [PathPoint::Received, PathPoint::Delivered, PathPoint::Read] {
        assert_eq!(seen.packets(point, Request), 200, "{point:?}: {seen:#?}");
    }
    for point in [PathPoint::Sent, PathPoint::Queued] {
        assert_eq!(seen.packets(point, Reply), 200, "{point:?}: {seen:#?}");
    }
    assert_eq!((seen.packets(PathPoint::Truncated, Request), lost_here(&seen)), (0, vec![]), "{seen:#?}");
    let seen = until(&other_end, |_| true);
    assert_eq!(seen.packets(PathPoint::Queued, Request), 200, "{seen:#?}");
    assert_eq!(seen.packets(PathPoint::Received, Reply), 200, "{seen:#?}");
    assert_eq!(seen.packets(PathPoint::Delivered, Request), 0, "a client's socket is no server's: {seen:#?}");
    let seen = until(&unrelated, |_| true);
    assert_eq!((seen.passed, seen.lost), (vec![], vec![]));
}

#[test]
fn a_full_buffer_and_a_short_one_are_told_apart() {
    let Some(lab) = lab("a_full_buffer_and_a_short_one_are_told_apart") else { return };
    let server = socket(lab.receiver(), "0.0.0.0:5300");
    let sender = socket(&lab.senders()[0], "0.0.0.0:0");
    let look = watch(lab.receiver(), &subject(&[PORT]));
    // Some are longer than the read buffer, some equal.
    send(&sender, address(&lab, PORT), [10, 100, 20, 50, 100, 0, 51, 3]);
    until(&look, |seen| seen.packets(PathPoint::Delivered, Request) == 8);
    let mut buffer = [0; 50];
    for _ in 0..8 {
        server.recv_from(&mut buffer).unwrap();
    }
    let seen = until(&look, |_| true);
    let count = |point| seen.packets(point, Request);
    let found = (count(PathPoint::Read), count(PathPoint::Truncated), count(PathPoint::LengthUnknown));
    assert_eq!(found, (8, 3, 0), "{seen:#?}");
    rustix::net::sockopt::set_socket_recv_buffer_size(&server, 4096).unwrap();
    send(&sender, address(&lab, PORT), [100; 500]);
    let full = until(&look, |now| {
        let new = now.since(&seen);
        new.packets(PathPoint::Delivered, Request) + new.lost_for("SOCKET_RCVBUFF", Request) >= 500
    })
    .since(&seen);
    let refused = full.lost_for("SOCKET_RCVBUFF", Request);
    assert!(refused > 400, "{full:#?}");
    assert_eq!(full.packets(PathPoint::Delivered, Request), 500 - refused, "{full:#?}");
}

#[test]
fn a_netfilter_rule_is_named() {
    let Some(lab) = lab("a_netfilter_rule_is_named") else { return };
    let rules = "add table inet t; add chain inet t c { type filter hook input priority 0; }; \
                 add rule inet t c udp dport 5300 numgen inc mod 10 0 drop";
    let mut nft = Command::new("nft");
    nft.arg(rules);
    let made = lab.receiver().spawn(nft).is_ok_and(|mut nft| nft.wait().is_ok_and(|status| status.success()));
    if !made {
        return skip("a_netfilter_rule_is_named", "nft cannot set rules here");
    }
    let _server = socket(lab.receiver(), "0.0.0.0:5300");
    let sender = socket(&lab.senders()[0], "0.0.0.0:0");
    let look = watch(lab.receiver(), &subject(&[PORT]));
    send(&sender, address(&lab, PORT), [32; 100]);
    let seen = until(&look, |seen| {
        seen.packets(PathPoint::Delivered, Request) + seen.lost_for("NETFILTER_DROP", Request) >= 100
    });
    assert_eq!(seen.packets(PathPoint::Delivered, Request), 90, "{seen:#?}");
    let [lost] = &lost_here(&seen)[..] else { panic!("{seen:#?}") };
    assert_eq!((lost.packets, lost.reason.as_deref(), lost.port), (10, Some("NETFILTER_DROP"), PORT));
    assert!(lost.device.is_some(), "{lost:?}");
    assert_eq!((lost.origin, lost.hook.as_deref()), (PacketOrigin::Received, Some("input")), "{lost:?}");
}

#[test]
fn ipv6_and_all_ports_are_seen() {
    let Some(lab) = lab("ipv6_and_all_ports_are_seen") else { return };
    let bound = lab.receiver().run(|| UdpSocket::bind("[::1]:5300")).unwrap();
    let Ok(server) = bound else {
        return skip("ipv6_and_all_ports_are_seen", "no IPv6 here");
    };
    let client = socket(lab.receiver(), "[::1]:0");
    let one = watch(lab.receiver(), &subject(&[PORT]));
    let all = watch(lab.receiver(), &PortSubject::default());
    let peer = PortSubject { peer: Some("::1".parse().unwrap()), ..subject(&[PORT]) };
    let peer = watch(lab.receiver(), &peer);
    let stranger = PortSubject { peer: Some("2001:db8::1".parse().unwrap()), ..subject(&[PORT]) };
    let stranger = watch(lab.receiver(), &stranger);
    send(&client, server.local_addr().unwrap(), [32; 20]);
    send(&client, "[::1]:9".parse().unwrap(), [32; 5]);
    let seen = until(&one, |seen| seen.packets(PathPoint::Delivered, Request) >= 20);
    assert_eq!(seen.packets(PathPoint::Received, Request), 20, "{seen:#?}");
    assert_eq!(seen.packets(PathPoint::Delivered, Request), 20, "{seen:#?}");
    assert_eq!(lost_here(&seen), []);
    let seen = until(&all, |seen| seen.lost_for("NO_SOCKET", Request) >= 5);
    assert_eq!(seen.packets(PathPoint::Queued, Reply), 25, "{seen:#?}");
    assert_eq!(seen.packets(PathPoint::Received, Request), 25, "{seen:#?}");
    assert_eq!(seen.lost_for("NO_SOCKET", Request), 5, "{seen:#?}");
    let seen = until(&peer, |_| true);
    assert_eq!(seen.packets(PathPoint::Received, Request), 20, "{seen:#?}");
    assert!(seen.unseen.contains(&PathPoint::Delivered));
    assert_eq!(until(&stranger, |_| true).passed, []);
}
