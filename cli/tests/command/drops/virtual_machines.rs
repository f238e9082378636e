//! Packets lost on their way to virtual machines and containers.

use std::fs::File;
use std::io::Read as _;
use std::net::UdpSocket;

use super::scene::{DropsOutput, DropsTestLab, PORT, drain_until};
use crate::support::{shell, skip, start_on};
use crate::sys::open_tap;

/// Packets to each destination, and the length of a tap's queue in packets.
const SENT: u64 = 60;
const ROOM: u64 = 20;
const PAYLOAD: [u8; 100] = [7; 100];
/// MAC addresses of a virtual machine that reads nothing, and of one that is off.
const MACHINE: &str = "02:00:00:00:00:09";
const OFF: &str = "02:00:00:00:00:0a";

fn send(client: &UdpSocket, address: &str, packets: u64) {
    for _ in 0..packets {
        client.send_to(&PAYLOAD, (address, PORT)).expect("it leaves");
    }
}

/// Stops all packets that do not belong to the test: IPv6, and ARP for the virtual machines.
fn silence(scene: &DropsTestLab) {
    let quiet = "for file in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$file; done";
    for host in [scene.receiver(), scene.sender(), scene.other_sender()] {
        shell(host, quiet);
    }
    let neighbour = "ip neigh add 198.18.0";
    let neighbours =
        format!("{neighbour}.50 lladdr {MACHINE} dev eth0; {neighbour}.51 lladdr {OFF} dev eth0");
    shell(scene.sender(), &neighbours);
}

/// Number of the test's packets in a tap's queue. No other process reads the tap.
fn read_queue(mut tap: &File) -> u64 {
    rustix::io::ioctl_fionbio(tap, true).expect("it does not wait");
    let mut frame = [0; 2048];
    let frames =
        std::iter::from_fn(|| tap.read(&mut frame).ok().map(|length| frame[..length].ends_with(&PAYLOAD)));
    let packets = frames.filter(|is_ours| *is_ours).count();
    u64::try_from(packets).expect("a count")
}

fn assert_balanced(output: &DropsOutput) {
    assert_eq!(output.unaccounted(), [], "{:#}", output.document);
    assert_eq!(output.document["balanced"], true, "{:#}", output.document);
    assert_eq!(output.status, Some(1), "{}", output.errors);
}

#[test]
fn drops_names_full_taps_and_shaped_container_veths_on_a_bridge() {
    let Some(scene) = DropsTestLab::up(2) else { return };
    silence(&scene);
    let Some(tap) = open_tap(scene.receiver()) else { return };
    scene.shell(&format!(
        "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6; echo 1 >/proc/sys/net/ipv6/conf/tap0/disable_ipv6; \
         ip link add br0 type bridge; ip link set tap0 txqueuelen {ROOM}; ip link set br0 up; \
         for port in eth0 eth1; do ip link set $port master br0; done; tc qdisc replace dev eth1 root tbf rate 1mbit burst 1600 limit 1600"
    ));
    shell(scene.other_sender(), "ip address add 198.18.0.200/24 dev eth0");
    // A process of a container. `drops` names the container's veth after it.
    let mut container = start_on(scene.other_sender(), "sleep", &["60"]);
    let (client, server) =
        (scene.client(), scene.socket(scene.other_sender(), &format!("198.18.0.200:{PORT}")));
    send(&client, "198.18.0.200", 1);
    server.recv(&mut [0; 200]).expect("the bridge knows the container");
    // The taps start late, so that their queues are empty.
    scene.shell(&format!(
        "ip tuntap add tap1 mode tap; for port in tap0 tap1; do ip link set $port master br0 up; done; \
         bridge fdb add {MACHINE} dev tap0 master static; bridge fdb add {OFF} dev tap1 master static"
    ));
    let dropped = || scene.dropped_by_qdisc("eth1");
    let output = scene.run_during(|| {
        for address in ["198.18.0.50", "198.18.0.51", "198.18.0.200"] {
            send(&client, address, SENT);
        }
        drain_until(&server, SENT, dropped);
    });
    container.kill().expect("killed");
    assert!(dropped() > 0);
    assert_eq!(output.losses("requests"), [("bridge".to_owned(), SENT)]);
    let mut lost = output.losses("forwarded");
    lost.retain(|(_, packets)| *packets > 0);
    assert_eq!(
        lost,
        [("qdisc-drop".to_owned(), dropped()), ("tap-full".to_owned(), SENT - read_queue(&tap))]
    );
    let place = |name| output.loss("forwarded", name)["place"].as_str().expect("a place");
    // This process holds the tap, as QEMU would.
    let holder = format!("({})", std::process::id());
    assert!(place("tap-full").starts_with("tap tap0 of ") && place("tap-full").contains(&holder));
    let at = format!("veth eth1 of sleep ({})", container.id());
    assert!(place("qdisc-drop").starts_with(&at), "{}", place("qdisc-drop"));
    assert_eq!(output.forwarded(), 2 * SENT, "{:#}", output.document);
    assert_balanced(&output);
}

#[test]
fn full_macvtap_queues_are_counted_as_tap_full() {
    let Some(scene) = DropsTestLab::up(2) else { return };
    silence(&scene);
    let command = format!(
        "ip link add link eth0 name mvt0 address {MACHINE} txqueuelen {ROOM} type macvtap mode bridge"
    );
    let output = scene.shell(&format!("if {command} 2>/dev/null; then echo added; fi"));
    if output != "added" {
        return skip("this kernel has no macvtap");
    }
    let device = scene.path("tap");
    scene.shell(&format!(
        "echo 1 >/proc/sys/net/ipv6/conf/mvt0/disable_ipv6; ip link set mvt0 up; \
         mknod {device} c $(cat /sys/class/net/mvt0/macvtap/tap*/dev | tr : ' ')"
    ));
    let queue = File::options().read(true).write(true).open(&device).expect("the macvtap's device");
    let client = scene.client();
    let output = scene.run_during(|| send(&client, "198.18.0.50", SENT));
    let queued = read_queue(&queue);
    assert!((1..=ROOM).contains(&queued), "{queued}");
    output.assert_only_loss("requests", "tap-full", SENT - queued);
    assert_eq!(output.loss("requests", "tap-full")["place"], "macvtap mvt0", "{:#}", output.document);
    // Packets in the queue count as forwarded, not as lost.
    assert_eq!(output.forwarded(), queued, "{:#}", output.document);
    assert_balanced(&output);
}
