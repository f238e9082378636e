//! Lost requests: each test has one cause, and `drops` counts the loss where it happens.

use std::net::SocketAddrV4;

use linerate_testkit::reflector::XdpService;
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket, sockopt};

use super::scene::{ADDRESS, DropsTestLab, PORT, drain, drain_until, exchange, send, target};
use crate::support::{shell, within};

#[test]
fn nftables_drops_are_counted_as_netfilter_rule() {
    let Some(scene) = DropsTestLab::up(1) else { return };
    scene.shell(&format!(
        "nft add table inet t; nft 'add chain inet t c {{ type filter hook input priority 0; }}'; \
         nft add rule inet t c udp dport {PORT} numgen inc mod 10 0 counter drop"
    ));
    let (_echo, client) = (scene.echo(), scene.client());
    let output = scene.run_during(|| (0..100).for_each(|_| exchange(&client, 10, 9)));
    let counter = scene.shell("nft list chain inet t c | grep -o 'packets [0-9]*'");
    assert_eq!(counter, "packets 100");
    output.assert_only_loss("requests", "netfilter-rule", 100);
    let loss = output.loss("requests", "netfilter-rule");
    // The symbol depends on the kernel: nf_hook_slow, or nft_do_chain in kernels whose rules report
    // the reason themselves.
    assert!(loss["symbol"].as_str().is_some_and(|symbol| symbol.starts_with("nf")), "{loss:#}");
}

#[test]
fn full_receive_buffers_are_counted_as_receive_buffer() {
    let Some(scene) = DropsTestLab::up(1) else { return };
    const SENT: u64 = 200;
    let (server, client) = (scene.server(), scene.client());
    sockopt::set_socket_recv_buffer_size(&server, 4096).expect("a small buffer");
    let before = scene.counter("Udp", "RcvbufErrors");
    let full_count = || scene.counter("Udp", "RcvbufErrors") - before;
    let output = scene.run_during(|| {
        send(&client, SENT);
        drain_until(&server, SENT, full_count);
    });
    assert!(full_count() > SENT / 2);
    output.assert_only_loss("requests", "receive-buffer", full_count());
}

#[test]
fn datagrams_waiting_in_a_receive_buffer_are_not_lost() {
    let Some(scene) = DropsTestLab::up(1) else { return };
    let (server, client) = (scene.server(), scene.client());
    let output = scene.run_during(|| {
        send(&client, 1);
        within(20, "the first is there", || queued_bytes(&scene) > 0);
        let each = queued_bytes(&scene);
        send(&client, 19);
        within(20, "all are there", || queued_bytes(&scene) == 20 * each);
    });
    assert_eq!(output.losses("requests").iter().map(|(_, packets)| packets).sum::<u64>(), 0);
    assert_eq!(output.unaccounted(), [], "{:#}", output.document);
    assert_eq!(output.status, Some(0), "{}", output.errors);
    assert_eq!(drain(&server), 20);
}

#[test]
fn datagrams_to_a_closed_port_are_counted_as_no_socket() {
    let Some(scene) = DropsTestLab::up(1) else { return };
    let client = scene.client();
    let before = scene.counter("Udp", "NoPorts");
    let no_ports = || scene.counter("Udp", "NoPorts") - before;
    let drops = scene.start_drops(&["--port", "4053", "--port", "4054"]);
    send(&client, 100);
    for _ in 0..50 {
        while client.send_to(&[0; 100], (ADDRESS, 4054)).is_err() {}
    }
    within(20, "all are refused", || no_ports() == 150);
    let output = drops.end();
    assert_eq!(output.losses("requests"), [("no-socket".to_owned(), 100), ("no-socket".to_owned(), 50)]);
    assert_eq!(output.places("no-socket"), ["port 4053", "port 4054"]);
    assert_eq!(output.unaccounted(), [], "{:#}", output.document);
}

#[test]
fn reverse_path_drops_are_counted_as_rp_filter() {
    let Some(scene) = DropsTestLab::up(2) else { return };
    scene.shell("echo 1 > /proc/sys/net/ipv4/conf/eth0/rp_filter");
    shell(scene.sender(), "ip address add 198.18.1.77/32 dev eth0");
    let (_server, client) = (scene.server(), scene.socket(scene.sender(), "198.18.1.77:0"));
    let before = scene.counter("TcpExt", "IPReversePathFilter");
    let filtered = || scene.counter("TcpExt", "IPReversePathFilter") - before;
    let output = scene.run_during(|| {
        send(&client, 100);
        within(20, "all are refused", || filtered() == 100);
    });
    output.assert_only_loss("requests", "rp-filter", 100);
}

#[test]
fn wrong_udp_checksums_are_counted_as_bad_checksum() {
    let Some(scene) = DropsTestLab::up(1) else { return };
    let (_echo, client) = (scene.echo(), scene.client());
    let before = scene.counter("Udp", "InCsumErrors");
    let checksum_errors = || scene.counter("Udp", "InCsumErrors") - before;
    let output = scene.run_during(|| {
        exchange(&client, 10, 10);
        scene.sender().run(|| send_damaged(50)).expect("the host runs");
        within(20, "all are counted", || checksum_errors() == 50);
        exchange(&client, 10, 10);
    });
    output.assert_only_loss("requests", "bad-checksum", 50);
}

#[test]
fn xdp_drops_are_counted_as_xdp_drop() {
    let Some(scene) = DropsTestLab::up(1) else { return };
    let attach = || XdpService::sink().port(PORT).attach("eth0");
    let sink = scene.receiver().run(attach).expect("the host runs").expect("a sink");
    let (_server, client) = (scene.server(), scene.client());
    let dropped = || sink.account().expect("an account").dropped;
    let output = scene.run_during(|| {
        send(&client, 100);
        within(20, "all are dropped", || dropped() == 100);
    });
    output.assert_only_loss("requests", "xdp-drop", 100);
}

#[test]
fn datagrams_longer_than_the_read_buffer_are_counted_as_truncated() {
    let Some(scene) = DropsTestLab::up(1) else { return };
    let (server, client) = (scene.server(), scene.client());
    let output = scene.run_during(|| {
        for _ in 0..30 {
            send(&client, 1);
            assert_eq!(server.recv(&mut [0; 60]).expect("a datagram"), 60);
        }
    });
    output.assert_only_loss("requests", "truncated", 30);
}

/// Bytes in the receive queue of the port's socket.
fn queued_bytes(scene: &DropsTestLab) -> u64 {
    scene.shell(&format!("ss -Hulnm 'sport = :{PORT}' | awk '{{print $2; exit}}'")).parse().expect("bytes")
}

/// Sends datagrams with a wrong checksum to the port. The kernel does not change the UDP header
/// that a raw socket sends.
fn send_damaged(packets: u16) {
    let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::UDP)).expect("a raw socket");
    let to = SocketAddrV4::new(ADDRESS.parse().expect("an address"), 0);
    for number in 0..packets {
        let mut datagram = vec![0x5a; 60];
        let header = [40_000 + number, target().port(), 60, 0xdead];
        datagram.splice(..8, header.into_iter().flat_map(u16::to_be_bytes));
        sendto(&raw, &datagram, SendFlags::empty(), &to).expect("it leaves");
    }
}
