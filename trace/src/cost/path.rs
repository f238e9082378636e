//! Cost by path: from the device where packets came in to the last device that sent them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use linerate_host::Host;
use linerate_host::stage::link::virtual_network::{PortKind, VirtualNetwork, VirtualPort};

use super::cost_tables::{Counters as _, PathOn, PathTime};
use super::{CostReport, CostVictim, DeviceCost, PathCost};
use crate::host_facts::interface_names;

/// The names of devices, and the owners of their other ends.
pub(super) struct PathNames {
    /// Inode of the own network namespace.
    own: Option<u32>,
    /// Interfaces of the own network namespace by index.
    interfaces: BTreeMap<u32, String>,
    network: VirtualNetwork,
}

impl PathNames {
    pub(super) fn observe(host: &Host) -> Self {
        let own = host.read_link("/proc/thread-self/ns/net").ok().as_deref().and_then(inode);
        Self { own, interfaces: interface_names(host), network: VirtualNetwork::observe(host, &[], &[]) }
    }

    fn name(&self, network: u32, index: u32, devices: &[DeviceCost]) -> String {
        let own_name = self.interfaces.get(&index).filter(|_| self.own == Some(network));
        let polled_device =
            devices.iter().find(|device| (device.network_namespace, device.ifindex) == (network, index));
        let known_name = own_name.or(polled_device.map(|device| &device.name));
        known_name.cloned().unwrap_or_else(|| format!("device {index}"))
    }

    fn port(&self, network: u32, index: u32) -> Option<&VirtualPort> {
        let ports = self.network.ports.iter().filter(|_| self.own == Some(network));
        ports.into_iter().find(|port| port.index == Some(index))
    }

    /// The end of a veth pair on this host, by its other end in a container.
    fn port_of_peer(&self, network: u32, index: u32) -> Option<&VirtualPort> {
        self.network.ports.iter().find(|port| {
            let namespace = port.owner.as_ref().and_then(|owner| inode(owner.network.as_deref()?));
            port.kind == PortKind::Veth && port.peer == Some(index) && namespace == Some(network)
        })
    }
}

/// Of `net:[4026531840]`.
fn inode(link: &str) -> Option<u32> {
    link.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}

pub(super) fn paths(
    names: &PathNames,
    times: &BTreeMap<PathOn, PathTime>,
    cost: &CostReport,
) -> Vec<PathCost> {
    // Over all CPUs.
    let mut sums: BTreeMap<PathOn, PathTime> = BTreeMap::new();
    for (path, time) in times {
        sums.entry(PathOn { cpu: 0, ..*path }).or_default().add(time);
    }
    // The packets that the host sent by its end of a veth pair continue at the container's end.
    let ends: Vec<(PathOn, u32)> = sums
        .keys()
        .filter(|path| path.is_entry == 0)
        .filter_map(|path| Some((*path, names.port_of_peer(path.network, path.ingress)?.index?)))
        .collect();
    for (end, egress) in ends {
        let entries: Vec<PathOn> = sums
            .keys()
            .filter(|path| path.is_entry != 0 && path.egress == egress && names.own == Some(path.network))
            .copied()
            .collect();
        let total: i64 = entries.iter().filter_map(|path| Some(sums.get(path)?.packets)).sum();
        if total > 0
            && let Some(time) = sums.remove(&end)
        {
            for path in entries {
                let sum = sums.entry(path).or_default();
                let share = sum.packets as f64 / total as f64;
                sum.add(&time.scaled(share));
            }
        }
    }
    let run_ns = cost.own.ns_a_run.value().copied().unwrap_or(0.0);
    let non_negative = |sum: i64| u64::try_from(sum).unwrap_or(0);
    let mut paths: Vec<PathCost> = Vec::new();
    let mut machines: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (path, time) in sums {
        let own_ns = (time.events as f64 * run_ns) as i64;
        let ends = [path.egress, path.ingress].map(|index| names.port(path.network, index));
        let owner = ends.into_iter().flatten().find_map(|port| port.owner.as_ref());
        if let Some(owner) = owner {
            machines.entry(owner.pid).or_default().push(paths.len());
        }
        paths.push(PathCost {
            ingress: names.name(path.network, path.ingress, &cost.devices),
            egress: (path.egress != 0).then(|| names.name(path.network, path.egress, &cost.devices)),
            network_namespace: path.network,
            owner: owner.map(|owner| owner.name.clone()),
            packets: non_negative(time.packets),
            taken_ns: non_negative(time.ns - own_ns),
            own_ns: non_negative(own_ns.min(time.ns)),
            vhost_ns: 0,
        });
    }
    for (pid, path_indexes) in machines {
        share_vhost(&mut paths, &path_indexes, vhost_ns(&cost.victims, pid));
    }
    paths.sort_by_key(|path| Reverse(path.taken_ns + path.vhost_ns));
    paths
}

/// Time of the machine's vhost threads, without the time that packets took from them.
fn vhost_ns(victims: &[CostVictim], pid: u32) -> u64 {
    let name = format!("vhost-{pid}");
    let threads = victims.iter().filter(|victim| victim.comm == name);
    threads.map(|victim| victim.on_cpu_ns.saturating_sub(victim.taken_ns + victim.taken_other_ns)).sum()
}

fn share_vhost(paths: &mut [PathCost], path_indexes: &[usize], ns: u64) {
    let total: u64 = path_indexes.iter().map(|index| paths[*index].packets).sum();
    for index in path_indexes {
        let packets = paths[*index].packets;
        paths[*index].vhost_ns = (ns as f64 * packets as f64 / total.max(1) as f64) as u64;
    }
}

impl PathCost {
    /// Time per packet; `None` if no packet came in by this path.
    #[must_use]
    pub fn ns_a_packet(&self) -> Option<f64> {
        (self.packets > 0).then(|| (self.taken_ns + self.vhost_ns) as f64 / self.packets as f64)
    }
}

#[cfg(test)]
mod tests {
    use linerate_host::stage::link::virtual_network::PortOwner;

    use super::*;
    use crate::cost::OwnTime;
    use linerate_host::Known;

    fn port(interface: &str, kind: PortKind, index: u32, peer: Option<u32>, owner: PortOwner) -> VirtualPort {
        VirtualPort {
            interface: interface.into(),
            kind,
            index: Some(index),
            peer,
            up: true,
            master: Some("br0".into()),
            multi_queue: false,
            receive_queues: 1,
            owner: Some(owner),
            totals: BTreeMap::new(),
        }
    }

    fn owner(name: &str, pid: u32, network: &str) -> PortOwner {
        PortOwner { pid, name: name.into(), cgroup: None, network: Some(network.into()), virtual_cpus: None }
    }

    /// eth0 (2) is bridged to a container by veth1 (8), whose other end is 7 in namespace 900, and to a machine by tap0 (5).
    #[test]
    fn veth_peer_and_vhost_time_is_charged_to_the_forwarding_path() {
        let names = PathNames {
            own: Some(100),
            interfaces: [(2, "eth0"), (5, "tap0"), (8, "veth1")]
                .map(|(index, name)| (index, name.to_owned()))
                .into(),
            network: VirtualNetwork {
                ports: vec![
                    port("veth1", PortKind::Veth, 8, Some(7), owner("named", 77, "net:[900]")),
                    port("tap0", PortKind::Tap, 5, None, owner("web1", 6001, "net:[100]")),
                ],
                ..VirtualNetwork::default()
            },
        };
        let on = |network, ingress, egress, cpu| PathOn {
            ingress,
            egress,
            network,
            cpu,
            is_entry: u32::from(network == 100),
            unused: 0,
        };
        let time = |ns, packets| PathTime { ns, packets, events: 0 };
        let path_times = BTreeMap::from([
            (on(100, 2, 8, 0), time(3_000, 10)),
            (on(100, 2, 8, 1), time(3_000, 10)),
            (on(900, 7, 0, 1), time(4_000, 0)),
            (on(100, 2, 5, 0), time(1_000, 5)),
            (on(100, 5, 2, 0), time(1_500, 15)),
            (on(901, 3, 0, 0), PathTime { ns: 110, packets: 0, events: 10 }),
        ]);
        let vhost = CostVictim {
            comm: "vhost-6001".into(),
            on_cpu_ns: 9_000,
            taken_ns: 900,
            taken_other_ns: 100,
            ..CostVictim::default()
        };
        let own = OwnTime { ns_a_run: Known::Value(10.0), ..OwnTime::default() };
        let cost = CostReport { own, victims: vec![vhost], ..CostReport::default() };
        let paths = paths(&names, &path_times, &cost);
        let rows: Vec<_> = paths
            .iter()
            .map(|path| {
                let ends = (path.ingress.as_str(), path.egress.as_deref().unwrap_or("-"));
                (ends, path.owner.as_deref(), path.packets, path.taken_ns, path.vhost_ns)
            })
            .collect();
        assert_eq!(
            rows,
            [
                (("eth0", "veth1"), Some("named"), 20, 10_000, 0),
                (("tap0", "eth0"), Some("web1"), 15, 1_500, 6_000),
                (("eth0", "tap0"), Some("web1"), 5, 1_000, 2_000),
                (("device 3", "-"), None, 0, 10, 0),
            ]
        );
        assert_eq!((paths[0].ns_a_packet(), paths[3].ns_a_packet()), (Some(500.0), None));
        assert_eq!(paths[3].own_ns, 100);
    }
}
