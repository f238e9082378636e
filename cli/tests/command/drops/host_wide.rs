//! Losses that require a machine-wide setting. They run only with LINERATE_TEST_HOST_WIDE=1.

use std::fs;
use std::path::Path;

use rustix::net::sockopt;

use super::scene::{ADDRESS, DropsTestLab, PORT, drain_until, send};
use crate::support::{has_two_cpus, machine, program, run_on, skip};

/// A machine-wide setting, restored at the end.
struct HostSettingGuard {
    path: &'static str,
    original: String,
}

impl HostSettingGuard {
    fn set(path: &'static str, value: &str) -> Option<Self> {
        if std::env::var_os("LINERATE_TEST_HOST_WIDE").is_none() {
            let why = "it writes it for the whole machine; LINERATE_TEST_HOST_WIDE=1 allows that";
            skip(format!("{path}: {why}"));
            return None;
        }
        let setting = fs::read_to_string(path).and_then(|original| {
            fs::write(path, value)?;
            Ok(Self { path, original })
        });
        setting.map_err(|error| skip(format!("{path}: {error}"))).ok()
    }
}

impl Drop for HostSettingGuard {
    fn drop(&mut self) {
        fs::write(self.path, &self.original).expect("the setting is restored");
    }
}

#[test]
fn full_connection_table_is_counted_as_conntrack_full() {
    const FLOWS: u64 = 300;
    machine();
    let Some(scene) = DropsTestLab::up(1) else { return };
    scene.shell(
        "nft add table inet t; nft 'add chain inet t c { type filter hook input priority 0; }'; \
         nft add rule inet t c ct state new counter",
    );
    // The lab's flows fill the table. This machine has few flows of its own.
    let Some(_guard) = HostSettingGuard::set("/proc/sys/net/netfilter/nf_conntrack_max", "100") else {
        return;
    };
    let server = scene.server();
    let clients: Vec<_> = (0..FLOWS).map(|_| scene.client()).collect();
    let dropped = || statistics(&scene).iter().map(|cpu| cpu[DROP]).sum::<u64>();
    let before = dropped();
    let output = scene.run_during(|| {
        clients.iter().for_each(|client| send(client, 1));
        drain_until(&server, FLOWS, || dropped() - before);
    });
    let dropped = dropped() - before;
    // Some new flows evict an old entry from a nearby hash bucket.
    assert!(dropped > FLOWS / 3 && dropped <= FLOWS - 100, "{dropped}");
    output.assert_only_loss("requests", "conntrack-full", dropped);
}

/// The column of dropped packets (Linux 6.18, net/netfilter/nf_conntrack_standalone.c).
const DROP: usize = 10;

/// `/proc/net/stat/nf_conntrack`, one row per CPU.
fn statistics(scene: &DropsTestLab) -> Vec<Vec<u64>> {
    let text = scene.shell("cat /proc/net/stat/nf_conntrack");
    let (names, rows) = text.split_once('\n').expect("rows");
    assert_eq!(names.split_whitespace().nth(DROP), Some("drop"));
    let number = |cell: &str| u64::from_str_radix(cell, 16).expect("a count");
    rows.lines().map(|row| row.split_whitespace().map(number).collect()).collect()
}

#[test]
fn full_backlog_is_counted_as_backlog_full() {
    machine();
    if !has_two_cpus() {
        return;
    }
    let Some(scene) = DropsTestLab::up(1) else { return };
    let Some(_guard) = HostSettingGuard::set("/proc/sys/net/core/netdev_max_backlog", "10") else {
        return;
    };
    scene.shell("for queue in /sys/class/net/eth0/queues/rx-*; do echo 2 > $queue/rps_cpus; done");
    let _server = scene.server();
    let file = scene.path("load.json");
    let server = format!("{ADDRESS}:{PORT}");
    let flood = ["load", &server, "--flood", "--duration", "0.3", "--drain", "0.1", "--cpus", "0", "--quiet"];
    let before = softnet_dropped();
    let drops = scene.start_drops(&["--port", &PORT.to_string(), "--load", &file]);
    run_on(scene.sender(), program(), &[&flood[..], &["--json", &file]].concat());
    assert!(Path::new(&file).exists());
    let output = drops.end();
    // The counter is machine-wide, so it may include losses of other programs.
    let dropped = softnet_dropped() - before;
    let backlog = output.loss("requests", "backlog-full")["packets"].as_u64().expect("a count");
    assert!(backlog > 0 && backlog <= dropped, "{backlog} of {dropped}");
    assert!(dropped - backlog <= dropped / 100, "{backlog} of {dropped}");
    assert_eq!(output.unaccounted(), [], "{:#}", output.document);
}

/// Packets dropped because a CPU's backlog was full (`/proc/net/softnet_stat`).
fn softnet_dropped() -> u64 {
    let text = fs::read_to_string("/proc/net/softnet_stat").expect("statistics");
    let column = |row: &str| u64::from_str_radix(row.split_whitespace().nth(1).expect("a column"), 16);
    text.lines().map(|row| column(row).expect("a count")).sum()
}

#[test]
fn exhausted_udp_memory_is_counted_as_udp_memory() {
    // More datagrams than fit into the reserve of the CPUs: SK_MEMORY_PCPU_RESERVE, 1 MiB per CPU
    // (include/net/sock.h, Linux 6.18).
    const SENT: u64 = 5000;
    machine();
    let Some(scene) = DropsTestLab::up(1) else { return };
    let (server, client) = (scene.server(), scene.client());
    sockopt::set_socket_recv_buffer_size_force(&server, 16 << 20).expect("a large buffer");
    let Some(_guard) = HostSettingGuard::set("/proc/sys/net/ipv4/udp_mem", "0 0 0") else {
        return;
    };
    // Linux 6.18 and 6.19 count these drops at the socket only, not in /proc/net/snmp.
    let refused_count = || -> u64 {
        let sockets = scene.shell(&format!("ss -Hulnm sport = {PORT} | grep -o 'd[0-9]*)'"));
        sockets.trim_matches(['d', ')']).parse().expect("a count")
    };
    let output = scene.run_during(|| {
        send(&client, SENT);
        drain_until(&server, SENT, refused_count);
    });
    assert!(refused_count() > 0);
    output.assert_only_loss("requests", "udp-memory", refused_count());
}
