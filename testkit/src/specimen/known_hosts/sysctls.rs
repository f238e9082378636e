//! Sysctls as a kernel comes up with them.

use std::collections::BTreeMap;

use crate::specimen::Kernel;

/// The kernel's defaults of what has to do with packets, but for the reverse-path filter, which distributions switch on.
pub(super) fn stock(kernel: Kernel, nics: &[&str], rp_filter: u8) -> BTreeMap<String, String> {
    // SK_MEM_PACKETS in include/net/sock.h; 4 MiB since Linux 6.18.
    let memory = if kernel.at_least(6, 18) { 4 << 20 } else { 212_992 };
    let mut numbers = vec![
        ("net.core.rmem_default", memory),
        ("net.core.rmem_max", memory),
        ("net.core.wmem_default", memory),
        ("net.core.wmem_max", memory),
        ("net.core.netdev_budget", 300),
        ("net.core.netdev_max_backlog", 1000),
        ("net.core.dev_weight", 64),
        ("net.core.rps_sock_flow_entries", 0),
        ("net.ipv4.ip_early_demux", 1),
        ("net.ipv4.ip_forward", 0),
        ("net.ipv6.conf.all.forwarding", 0),
    ];
    if kernel.at_least(4, 12) {
        numbers.extend([("net.core.netdev_budget_usecs", 2000), ("net.ipv4.udp_early_demux", 1)]);
    }
    let mut all: BTreeMap<String, String> =
        numbers.into_iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect();
    for interface in ["all", "default", "lo"].iter().chain(nics) {
        for (name, value) in [("rp_filter", rp_filter), ("accept_local", 0), ("forwarding", 0)] {
            all.insert(format!("net.ipv4.conf.{interface}.{name}"), value.to_string());
        }
    }
    for (name, value) in
        [("net.core.flow_limit_cpu_bitmap", "0"), ("net.ipv4.ip_local_port_range", "32768\t60999")]
    {
        all.insert(name.to_owned(), value.to_owned());
    }
    all
}
