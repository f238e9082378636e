//! Hosts that forward packets and lose some of them at four places.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};

use super::scene::{DropsOutput, DropsTestLab, PORT};
use crate::support::shell;

/// Packets lost at each place, and packets that reach the server.
const LOST: u64 = 10;
const SERVED: u64 = 60;
/// Payload length in bytes of a datagram that no rule drops. The rules match on the length.
const PLAIN: usize = 100;

#[test]
fn router_losses_at_four_places_are_counted_by_reason() {
    let Some(scene) = DropsTestLab::up(2) else { return };
    scene.shell(&format!(
        "echo 1 > /proc/sys/net/ipv4/ip_forward; ip route add blackhole 198.18.9.0/24; nft add table inet t; {} {}",
        drop_rule("inet", "prerouting", -300, 101),
        drop_rule("inet", "postrouting", 0, 102),
    ));
    shell(scene.sender(), "ip route add default via 198.18.0.1");
    let server = scene.socket(scene.other_sender(), &format!("198.18.1.100:{PORT}"));
    let client = scene.client();
    let output = scene.run_during(|| {
        send(&client, "198.18.1.100", 101, LOST);
        send(&client, "198.18.1.100", 102, LOST);
        send(&client, "198.18.9.1", PLAIN, LOST);
        send_short_lived(&client, "198.18.1.100", LOST);
        send(&client, "198.18.1.100", PLAIN, SERVED);
        serve(&server);
    });
    assert_losses(
        &output,
        &[("blackhole-route", LOST), ("hops-used-up", LOST), ("netfilter-rule", 2 * LOST)],
    );
    let places = output.places("netfilter-rule");
    assert_eq!(
        places,
        ["chain inet t postrouting hook postrouting", "chain inet t prerouting hook prerouting"]
    );
}

#[test]
fn bridge_losses_at_four_places_are_counted_as_netfilter_rule() {
    let Some(scene) = DropsTestLab::up(2) else { return };
    scene.shell(&format!(
        "ip link add br0 type bridge; ip link set eth0 master br0; ip link set eth1 master br0; ip link set br0 up; \
         nft add table netdev t; \
         nft 'add chain netdev t c {{ type filter hook ingress device eth0 priority 0; }}'; \
         nft add rule netdev t c udp length {} drop; nft add table bridge t; {} {} {}",
        104 + 8,
        drop_rule("bridge", "prerouting", 0, 101),
        drop_rule("bridge", "forward", 0, 102),
        drop_rule("bridge", "postrouting", 0, 103),
    ));
    shell(scene.other_sender(), "ip address add 198.18.0.200/24 dev eth0");
    let server = scene.socket(scene.other_sender(), &format!("198.18.0.200:{PORT}"));
    let client = scene.client();
    let output = scene.run_during(|| {
        for length in 101..=104 {
            send(&client, "198.18.0.200", length, LOST);
        }
        send(&client, "198.18.0.200", PLAIN, SERVED);
        serve(&server);
    });
    assert_losses(&output, &[("netfilter-rule", 4 * LOST)]);
}

#[test]
fn nat_host_losses_at_four_places_are_counted_by_reason() {
    let Some(scene) = DropsTestLab::up(2) else { return };
    scene.shell(&format!(
        "echo 1 > /proc/sys/net/ipv4/ip_forward; nft add table inet t; {} {} {} nft add table ip n; \
         nft 'add chain ip n in {{ type nat hook prerouting priority -100; }}'; \
         nft add rule ip n in udp dport {PORT} dnat to 198.18.1.100:5053; \
         nft 'add chain ip n out {{ type nat hook postrouting priority 100; }}'; \
         nft add rule ip n out oifname eth1 masquerade",
        drop_rule("inet", "prerouting", -300, 101),
        drop_rule("inet", "forward", 0, 102),
        drop_rule("inet", "postrouting", 0, 103),
    ));
    let server = scene.socket(scene.other_sender(), "198.18.1.100:5053");
    let client = scene.client();
    let output = scene.run_during(|| {
        for length in 101..=103 {
            send(&client, super::scene::ADDRESS, length, LOST);
        }
        send_short_lived(&client, super::scene::ADDRESS, LOST);
        send(&client, super::scene::ADDRESS, PLAIN, SERVED);
        serve(&server);
    });
    assert_losses(&output, &[("hops-used-up", LOST), ("netfilter-rule", 3 * LOST)]);
}

/// Commands for a chain of table `t` that drops datagrams with this payload length.
fn drop_rule(family: &str, hook: &str, priority: i32, length: usize) -> String {
    format!(
        "nft 'add chain {family} t {hook} {{ type filter hook {hook} priority {priority}; }}'; \
         nft add rule {family} t {hook} udp length {} drop;",
        length + 8
    )
}

fn send(client: &UdpSocket, address: &str, length: usize, packets: u64) {
    let to = SocketAddr::new(address.parse().expect("an address"), PORT);
    for _ in 0..packets {
        client.send_to(&vec![7; length], to).expect("it leaves");
    }
}

/// Sends datagrams with a TTL of 1, which no router forwards.
fn send_short_lived(client: &UdpSocket, address: &str, packets: u64) {
    client.set_ttl(1).expect("a TTL");
    send(client, address, PLAIN, packets);
    client.set_ttl(64).expect("a TTL");
}

/// Reads all datagrams that reach the server.
fn serve(server: &UdpSocket) {
    for _ in 0..SERVED {
        assert_eq!(server.recv(&mut [0; 200]).expect("a datagram"), PLAIN);
    }
}

/// All packets have to be forwarded, or lost for these reasons.
fn assert_losses(output: &DropsOutput, expected: &[(&str, u64)]) {
    let mut lost: BTreeMap<String, u64> = BTreeMap::new();
    for (name, packets) in
        ["requests", "replies", "forwarded"].into_iter().flat_map(|direction| output.losses(direction))
    {
        *lost.entry(name).or_default() += packets;
    }
    let expected: BTreeMap<String, u64> =
        expected.iter().map(|(name, packets)| ((*name).to_owned(), *packets)).collect();
    assert_eq!(lost, expected, "{:#}", output.document);
    assert_eq!(output.unaccounted(), [], "{:#}", output.document);
    assert_eq!(output.forwarded(), SERVED, "{:#}", output.document);
    assert_eq!(output.document["balanced"], true, "{:#}", output.document);
    assert_eq!(output.status, Some(1), "{}", output.errors);
}
