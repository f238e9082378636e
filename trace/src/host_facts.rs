//! Facts of the host that several measurements require.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::stage::socket::{HostSockets, SocketProtocol};
use linerate_host::{CpuSet, Host, HostError, Scope};

pub(crate) fn online_cpus(host: &Host) -> Result<CpuSet, HostError> {
    host.read_parsed("/sys/devices/system/cpu/online", CpuSet::from_list)
}

// The initial PID namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h, since Linux 3.8).
const FIRST_PROCESSES: &str = "pid:[4026531836]";

pub(crate) fn sees_all_processes(host: &Host) -> bool {
    host.read_link("/proc/self/ns/pid").is_ok_and(|namespace| namespace == FIRST_PROCESSES)
}

/// UDP ports of the kernel's tunnels, such as VXLAN: no process holds their sockets.
pub(crate) fn tunnel_ports(host: &Host) -> Vec<u16> {
    const TUNNELS: [&str; 3] = ["DEVTYPE=geneve", "DEVTYPE=vxlan", "DEVTYPE=wireguard"];
    let is_tunnel = |name: &String| {
        let text = host.read(&format!("/sys/class/net/{name}/uevent")).unwrap_or_default();
        text.lines().any(|line| TUNNELS.contains(&line))
    };
    if !interface_names(host).values().any(is_tunnel) || !sees_all_processes(host) {
        return Vec::new();
    }
    let sockets = HostSockets::observe(host, &Scope::default());
    let of_kernel = sockets.services().iter().filter(|service| {
        service.protocol == SocketProtocol::Udp && service.processes.value().is_some_and(Vec::is_empty)
    });
    of_kernel.map(|service| service.local.port()).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Readable interfaces of the host's network namespace by index.
pub(crate) fn interface_names(host: &Host) -> BTreeMap<u32, String> {
    const DEVICES: &str = "/sys/class/net";
    let names = host.list(DEVICES).unwrap_or_default();
    let indexes = names.into_iter().filter_map(|name| {
        let index = host.read(&format!("{DEVICES}/{name}/ifindex")).ok()?;
        Some((index.trim().parse().ok()?, name))
    });
    indexes.collect()
}
