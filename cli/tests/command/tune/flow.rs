//! `tune flow` on a NIC without flow rules: reports that, and uses RPS only with --rps.

use super::scene::TuneTestLab;

const PACKETS: [&str; 6] = ["--interface", "eth0", "--to", "0", "--match", "dst 198.18.0.1 udp port 53"];

#[test]
fn flow_without_nic_rules_sets_rps_only_with_the_option() {
    let Some(scene) = TuneTestLab::up() else { return };
    let before = scene.values();
    let (_, err) = scene.expect(2, "flow", &[&PACKETS[..], &["--yes"]].concat());
    let words = "linerate: eth0 cannot direct flows to queues: its driver has no rules for flows (ethtool -n): --rps moves \
                 all packets of eth0 to CPU 0 instead\n";
    assert_eq!(err, words);
    assert_eq!(before, scene.values());
    let (out, _) = scene.expect(0, "flow", &[&PACKETS[..], &["--rps", "--yes"]].concat());
    assert!(out.contains("4 changes on") && out.contains("Other packets of eth0 go to CPU 0, too"), "{out}");
    assert_eq!(scene.shell("cat /sys/class/net/eth0/queues/rx-*/rps_cpus | sort -u"), "1");
    scene.undo(&before);
}
