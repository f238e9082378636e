//! Lost requests: each test has one cause, and `drops` counts the loss where it happens.

use std::net::{SocketAddrV4, UdpSocket};

use linerate_testkit::reflector::XdpService;
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket, sockopt};

use super::scene::{ADDRESS, DropsTestLab, PORT, exchange, send, shell, target, within};

#[test]
fn a_rule_that_drops_every_tenth() {
    let Some(scene) = DropsTestLab::up("a_rule_that_drops_every_tenth", 1) else { return };
    scene.shell(&format!(
        "nft add table inet t; nft 'add chain inet t c {{ type filter hook input priority 0; }}'; \
         nft add rule inet t c udp dport {PORT} numgen inc mod 10 0 counter drop"
    ));
    let (_echo, client) = (scene.echo(), scene.client());
    let found = scene.found(|| (0..100).for_each(|_| exchange(&client, 10, 9)));
    let counted = scene.shell("nft list chain inet t c | grep -o 'packets [0-9]*'");
    assert_eq!(counted, "packets 100");
    found.is_only("requests", "netfilter-rule", 100);
    let loss = found.loss("requests", "netfilter-rule");
    // The symbol depends on the kernel: nf_hook_slow, or nft_do_chain in kernels whose rules report
    // the reason themselves.
    assert!(loss["symbol"].as_str().is_some_and(|symbol| symbol.starts_with("nf")), "{loss:#}");
}

#[test]
fn a_buffer_that_is_full_while_its_server_sleeps() {
    let Some(scene) = DropsTestLab::up("a_buffer_that_is_full_while_its_server_sleeps", 1) else { return };
    const SENT: u64 = 200;
    let (server, client) = (scene.server(), scene.client());
    sockopt::set_socket_recv_buffer_size(&server, 4096).expect("a small buffer");
    let before = scene.counter("Udp", "RcvbufErrors");
    let full = || scene.counter("Udp", "RcvbufErrors") - before;
    let found = scene.found(|| {
        send(&client, SENT);
        let mut read = 0;
        within("all are refused or read", || {
            read += drained(&server);
            read + full() == SENT
        });
    });
    assert!(full() > SENT / 2);
    found.is_only("requests", "receive-buffer", full());
}

#[test]
fn what_waits_in_a_buffer_is_not_lost() {
    let Some(scene) = DropsTestLab::up("what_waits_in_a_buffer_is_not_lost", 1) else { return };
    let (server, client) = (scene.server(), scene.client());
    let found = scene.found(|| {
        send(&client, 1);
        within("the first is there", || waiting(&scene) > 0);
        let each = waiting(&scene);
        send(&client, 19);
        within("all are there", || waiting(&scene) == 20 * each);
    });
    assert_eq!(found.losses("requests").iter().map(|(_, packets)| packets).sum::<u64>(), 0);
    assert_eq!(found.unaccounted(), [], "{:#}", found.document);
    assert_eq!(found.status, Some(0), "{}", found.errors);
    assert_eq!(drained(&server), 20);
}

#[test]
fn a_port_that_nobody_listens_at() {
    let Some(scene) = DropsTestLab::up("a_port_that_nobody_listens_at", 1) else { return };
    let client = scene.client();
    let before = scene.counter("Udp", "NoPorts");
    let refused = || scene.counter("Udp", "NoPorts") - before;
    let found = scene.found(|| {
        send(&client, 100);
        within("all are refused", || refused() == 100);
    });
    found.is_only("requests", "no-socket", 100);
}

#[test]
fn a_source_from_the_wrong_side() {
    let Some(scene) = DropsTestLab::up("a_source_from_the_wrong_side", 2) else { return };
    scene.shell("echo 1 > /proc/sys/net/ipv4/conf/eth0/rp_filter");
    shell(scene.sender(), "ip address add 198.18.1.77/32 dev eth0");
    let (_server, wrong) = (scene.server(), scene.socket(scene.sender(), "198.18.1.77:0"));
    let before = scene.counter("TcpExt", "IPReversePathFilter");
    let filtered = || scene.counter("TcpExt", "IPReversePathFilter") - before;
    let found = scene.found(|| {
        send(&wrong, 100);
        within("all are refused", || filtered() == 100);
    });
    found.is_only("requests", "rp-filter", 100);
}

#[test]
fn a_checksum_that_is_wrong() {
    let Some(scene) = DropsTestLab::up("a_checksum_that_is_wrong", 1) else { return };
    let (_echo, client) = (scene.echo(), scene.client());
    let before = scene.counter("Udp", "InCsumErrors");
    let wrong = || scene.counter("Udp", "InCsumErrors") - before;
    let found = scene.found(|| {
        exchange(&client, 10, 10);
        scene.sender().run(|| send_damaged(50)).expect("the host runs");
        within("all are found", || wrong() == 50);
        exchange(&client, 10, 10);
    });
    found.is_only("requests", "bad-checksum", 50);
}

#[test]
fn a_program_in_xdp_that_drops_a_port() {
    let Some(scene) = DropsTestLab::up("a_program_in_xdp_that_drops_a_port", 1) else { return };
    let attach = || XdpService::sink().port(PORT).attach("eth0");
    let sink = scene.receiver().run(attach).expect("the host runs").expect("a sink");
    let (_server, client) = (scene.server(), scene.client());
    let dropped = || sink.account().expect("an account").dropped;
    let found = scene.found(|| {
        send(&client, 100);
        within("all are dropped", || dropped() == 100);
    });
    found.is_only("requests", "xdp-drop", 100);
}

#[test]
fn datagrams_longer_than_what_the_server_reads() {
    let Some(scene) = DropsTestLab::up("datagrams_longer_than_what_the_server_reads", 1) else { return };
    let (server, client) = (scene.server(), scene.client());
    let found = scene.found(|| {
        for _ in 0..30 {
            send(&client, 1);
            assert_eq!(server.recv(&mut [0; 60]).expect("a datagram"), 60);
        }
    });
    found.is_only("requests", "truncated", 30);
}

/// Reads all waiting datagrams and returns their number.
fn drained(server: &UdpSocket) -> u64 {
    server.set_nonblocking(true).expect("it does not wait");
    let mut read = 0;
    while server.recv(&mut [0; 200]).is_ok() {
        read += 1;
    }
    read
}

/// Bytes in the receive queue of the port's socket.
fn waiting(scene: &DropsTestLab) -> u64 {
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
