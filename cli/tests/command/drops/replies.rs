//! Lost replies.

use super::scene::{DropsTestLab, drain_until, send};
use crate::sys::open_tun;

#[test]
fn qdisc_drops_are_counted_as_qdisc_drop() {
    let Some(scene) = DropsTestLab::up(1) else { return };
    const SENT: u64 = 200;
    scene.shell("tc qdisc replace dev eth0 root tbf rate 1mbit burst 1600 limit 1600");
    let (_echo, client) = (scene.echo(), scene.client());
    let dropped = || scene.dropped_by_qdisc("eth0");
    let output = scene.run_during(|| {
        send(&client, SENT);
        drain_until(&client, SENT, dropped);
    });
    assert!(dropped() > SENT / 2);
    // tbf reports the kernel's common reason, not the one for exceeded limits.
    output.assert_only_loss("replies", "qdisc-drop", dropped());
}

#[test]
fn nftables_drops_of_replies_are_counted_as_netfilter_rule() {
    let Some(scene) = DropsTestLab::up(1) else { return };
    scene.shell(&format!(
        "nft add table inet t; nft 'add chain inet t c {{ type filter hook output priority 0; }}'; \
         nft add rule inet t c udp sport {} numgen inc mod 4 0 counter drop",
        super::scene::PORT
    ));
    let (_echo, client) = (scene.echo(), scene.client());
    let output = scene.run_during(|| (0..25).for_each(|_| super::scene::exchange(&client, 4, 3)));
    assert_eq!(scene.shell("nft list chain inet t c | grep -o 'packets [0-9]*'"), "packets 25");
    output.assert_only_loss("replies", "netfilter-rule", 25);
}

#[test]
fn full_tun_queues_are_counted_as_tap_full() {
    const SENT: u64 = 30;
    const ROOM: u64 = 10;
    let Some(scene) = DropsTestLab::up(1) else { return };
    let Some(tun) = open_tun(scene.receiver()) else { return };
    scene.shell(&format!(
        "echo 1 > /proc/sys/net/ipv6/conf/tun0/disable_ipv6; ip link set tun0 txqueuelen {ROOM} up; ip address add 198.18.7.1/24 dev tun0; tc qdisc replace dev tun0 root noqueue"
    ));
    let server = scene.server();
    let output = scene.run_during(|| {
        for _ in 0..SENT {
            let _ = server.send_to(&[0; 100], "198.18.7.2:9");
        }
    });
    output.assert_only_loss("replies", "tap-full", SENT - ROOM);
    drop(tun);
}
