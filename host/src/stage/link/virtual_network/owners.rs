//! The virtual machine that holds a tap, and the container at the other end of a veth pair.

use std::collections::{BTreeMap, BTreeSet};

use super::{PortKind, PortOwner, VirtualPort};
use crate::Host;
use crate::known::number;
use crate::process::cgroup_path;
use crate::process::owners::descriptors;

/// Sets the owners of ports, and returns the processes of virtual machines.
pub(super) fn assign(host: &Host, ports: &mut [VirtualPort]) -> BTreeSet<u32> {
    let has_kind = |kinds: &[PortKind]| ports.iter().any(|port| kinds.contains(&port.kind));
    let (has_taps, has_veths) = (has_kind(&[PortKind::Tap, PortKind::Macvtap]), has_kind(&[PortKind::Veth]));
    let mut machines = BTreeSet::new();
    if !has_taps && !has_veths {
        return machines;
    }
    let pids = host.list_numbers("/proc", "").unwrap_or_default();
    if has_taps {
        let holders = tap_holders(host, &pids);
        machines.extend(holders.values());
        for port in ports.iter_mut() {
            let key = match port.kind {
                PortKind::Macvtap => tap_device(host, &port.interface),
                _ => Some(port.interface.clone()),
            };
            port.owner = key.and_then(|key| holders.get(&key)).map(|pid| owner(host, *pid));
        }
    }
    if has_veths {
        let peers = peers(host, &pids);
        for port in ports.iter_mut().filter(|port| port.kind == PortKind::Veth) {
            port.owner =
                port.index.zip(port.peer).and_then(|ends| peers.get(&ends)).map(|pid| owner(host, *pid));
        }
    }
    machines
}

/// `tap5` of macvtap0, whose device is `/dev/tap5`.
fn tap_device(host: &Host, interface: &str) -> Option<String> {
    let names = host.list(&format!("/sys/class/net/{interface}/macvtap")).ok()?;
    names.into_iter().next().map(|name| format!("/dev/{name}"))
}

/// The process per tap interface, and per device of a macvtap. Two network namespaces may have taps
/// with the same name; the tap of this namespace is held by a process of this namespace.
fn tap_holders(host: &Host, pids: &[u32]) -> BTreeMap<String, u32> {
    let own_network = own_namespace(host);
    let mut holders: BTreeMap<String, (bool, u32)> = BTreeMap::new();
    for pid in pids {
        let Ok(descriptors) = descriptors(host, *pid) else { continue };
        for (descriptor, target) in descriptors {
            if target == "/dev/net/tun" {
                // `tun_chr_show_fdinfo` of drivers/net/tun.c, Linux 3.18.
                let info = host.read(&format!("/proc/{pid}/fdinfo/{descriptor}")).unwrap_or_default();
                let Some(name) = info.lines().find_map(|line| line.strip_prefix("iff:")) else { continue };
                let is_own = namespace(host, &pid.to_string()) == own_network;
                let holder = holders.entry(name.trim().to_owned()).or_default();
                if is_own || !holder.0 {
                    *holder = (is_own, *pid);
                }
            } else if target.starts_with("/dev/tap") {
                holders.insert(target, (true, *pid));
            }
        }
    }
    holders.into_iter().map(|(name, (_, pid))| (name, pid)).collect()
}

/// The network namespace of a process.
fn namespace(host: &Host, pid: &str) -> Option<String> {
    host.read_link(&format!("/proc/{pid}/ns/net")).ok()
}

fn own_namespace(host: &Host) -> Option<String> {
    namespace(host, "self").or_else(|| namespace(host, "thread-self"))
}

/// The first process of each other network namespace, per veth pair. The key is the index of this
/// namespace's end and the index of its peer in the other namespace. The sysfs of the other
/// namespace has both if it is mounted there, as in containers.
fn peers(host: &Host, pids: &[u32]) -> BTreeMap<(u32, u32), u32> {
    let mut known_namespaces: BTreeSet<String> = own_namespace(host).into_iter().collect();
    let mut peers = BTreeMap::new();
    for pid in pids {
        let Some(inode) = namespace(host, &pid.to_string()) else { continue };
        if !known_namespaces.insert(inode) {
            continue;
        }
        let base = format!("/proc/{pid}/root/sys/class/net");
        for interface in host.list(&base).unwrap_or_default() {
            let number =
                |file: &str| host.read_parsed(&format!("{base}/{interface}/{file}"), number::<u32>).ok();
            if let (Some(index), Some(peer)) = (number("ifindex"), number("iflink"))
                && index != peer
            {
                peers.entry((peer, index)).or_insert(*pid);
            }
        }
    }
    peers
}

fn owner(host: &Host, pid: u32) -> PortOwner {
    let read = |file: &str| host.read(&format!("/proc/{pid}/{file}")).ok();
    let machine = read("cmdline").and_then(|text| machine_name(&text));
    let comm = || read("comm").map_or_else(|| pid.to_string(), |comm| comm.trim().to_owned());
    let network = namespace(host, &pid.to_string());
    PortOwner {
        pid,
        name: machine.unwrap_or_else(comm),
        cgroup: cgroup_path(host, &format!("/proc/{pid}")).into_value().flatten(),
        network,
        virtual_cpus: virtual_cpus(host, pid),
    }
}

/// The name in `-name guest=web1,debug-threads=on` or `-name web1`.
fn machine_name(command_line: &str) -> Option<String> {
    let mut words = command_line.split('\0').skip_while(|word| *word != "-name");
    let name = words.nth(1)?.split(',').next()?;
    Some(name.strip_prefix("guest=").unwrap_or(name).to_owned())
}

fn virtual_cpus(host: &Host, pid: u32) -> Option<u32> {
    let threads = host.list(&format!("/proc/{pid}/task")).ok()?;
    let is_cpu = |tid: &&String| {
        let comm = host.read(&format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
        comm.trim()
            .strip_prefix("CPU ")
            .is_some_and(|suffix| suffix.ends_with("/KVM") || suffix.ends_with("/TCG"))
    };
    u32::try_from(threads.iter().filter(is_cpu).count()).ok().filter(|count| *count > 0)
}
