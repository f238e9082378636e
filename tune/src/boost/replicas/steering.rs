//! The CPU of each copy, and the CPUs whose datagrams it gets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use linerate_host::setting::{SettingValue, SteeringTable};
use linerate_host::stage::socket::SocketProtocol;
use linerate_host::{CpuSet, Host, PacketPath, Scope, Setting, bpf};

use super::{ReplicaConfig, ReplicaError, ReplicaSteering};
use crate::boost::discovery::cpuset;
use crate::boost::plan::{CpuHosts, ReceivingCpus};

/// CPUs of the copies, and the CPUs whose copies take the packets of each CPU.
pub(super) struct CopyPlacement {
    /// By copy.
    pub(super) cpus: Vec<u32>,
    hosts: BTreeMap<u32, BTreeSet<u32>>,
    steering: ReplicaSteering,
}

impl CopyPlacement {
    pub(super) fn choose(host: &Host, config: &ReplicaConfig) -> Result<Self, ReplicaError> {
        let path = PacketPath::observe(host, &Scope::default());
        let receiving = ReceivingCpus::of_path(&path).ok_or_else(|| linerate_host::HostError::NotLive {
            what: "the list of online CPUs".to_owned(),
        })?;
        if let Some(named) = &config.cpus {
            let pid = std::process::id();
            check_cpus(named, &receiving.online, cpuset(host, pid, pid, Some(&receiving.online)))?;
        }
        // A container may have only a part of the CPUs.
        let allowed = rustix::thread::sched_getaffinity(None).map_err(|errno| ReplicaError::Io {
            what: "read the CPUs of this process",
            source: errno.into(),
        })?;
        // Named CPUs may be outside the affinity of this process, such as isolated CPUs.
        let is_usable = |cpu: &u32| match &config.cpus {
            Some(cpus) => cpus.contains(*cpu),
            None => allowed.is_set(*cpu as usize),
        };
        let usable: Vec<u32> = receiving.order().into_iter().filter(is_usable).collect();
        let cpus: Vec<u32> = usable.iter().copied().cycle().take(config.replicas as usize).collect();
        let copy_cpus: BTreeSet<u32> = cpus.iter().copied().collect();
        let hosts = CpuHosts::of(&path.machine, &receiving, &copy_cpus);
        let hosts = receiving.online.iter().map(|cpu| (cpu, hosts.hosts_of(cpu).collect())).collect();
        Ok(Self { cpus, hosts, steering: config.steering })
    }

    fn follows_quic_ids(&self) -> bool {
        self.steering == ReplicaSteering::QuicId
    }

    /// The table of one group of sockets, given the cookies of each copy.
    fn table(&self, sockets: &BTreeMap<u32, Vec<u64>>) -> SteeringTable {
        let cookies_of = |is_selected: &dyn Fn(u32) -> bool| -> Vec<u64> {
            let selected = sockets.iter().filter(|(copy, _)| is_selected(self.cpus[**copy as usize]));
            selected.flat_map(|(_, cookies)| cookies).copied().collect()
        };
        let row = |(cpu, hosts): (&u32, &BTreeSet<u32>)| {
            let near_sockets = match self.steering {
                ReplicaSteering::Cpu => cookies_of(&|cpu| hosts.contains(&cpu)),
                ReplicaSteering::Flow | ReplicaSteering::QuicId => Vec::new(),
            };
            (*cpu, if near_sockets.is_empty() { cookies_of(&|_| true) } else { near_sockets })
        };
        SteeringTable {
            by_cpu: self.hosts.iter().map(row).collect(),
            follows_quic_ids: self.follows_quic_ids(),
        }
    }

    /// A table that gives the packets of every CPU to all these sockets.
    pub(super) fn same_for_all(&self, cookies: impl Iterator<Item = u64>) -> SteeringTable {
        let cookies: Vec<u64> = cookies.collect();
        let by_cpu = self.hosts.keys().map(|cpu| (*cpu, cookies.clone())).collect();
        SteeringTable { by_cpu, follows_quic_ids: self.follows_quic_ids() }
    }

    pub(super) fn steer(
        &self,
        host: &Host,
        local: SocketAddr,
        sockets: &BTreeMap<u32, Vec<u64>>,
    ) -> Result<(), String> {
        let namespace = bpf::network_namespace().map_err(|error| error.to_string())?;
        let setting = Setting::Steering { namespace: namespace.into(), protocol: SocketProtocol::Udp, local };
        let table = self.table(sockets);
        setting.write(host, &SettingValue::new(table.to_string())).map_err(|error| error.to_string())
    }
}

/// Fails if copies cannot run on these CPUs. `cpuset` has the CPUs of the control group; `None`
/// without a limit.
fn check_cpus(named: &CpuSet, online: &CpuSet, cpuset: Option<CpuSet>) -> Result<(), ReplicaError> {
    if let Some(cpu) = named.iter().find(|cpu| !online.contains(*cpu)) {
        return Err(ReplicaError::Refused(format!("there is no CPU {cpu} online: see lscpu")));
    }
    if let Some(cpuset) = cpuset
        && let Some(cpu) = named.iter().find(|cpu| !cpuset.contains(*cpu))
    {
        return Err(ReplicaError::Refused(format!(
            "CPU {cpu} is not in the cpuset of this control group ({cpuset}): see cpuset.cpus.effective"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_cpus_must_be_online_and_in_the_cpuset() {
        let cpus = |list| CpuSet::from_list(list).expect("a list");
        for (named, cpuset, expected) in [
            ("2-3", None, None),
            ("2-3", Some("1-3"), None),
            ("3-4", None, Some("there is no CPU 4 online")),
            ("2-3", Some("0-2"), Some("CPU 3 is not in the cpuset of this control group (0-2)")),
        ] {
            let result = check_cpus(&cpus(named), &cpus("0-3"), cpuset.map(cpus));
            let error = result.err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(error.is_empty(), expected.is_none(), "{error}");
            assert!(error.contains(expected.unwrap_or_default()), "{error}");
        }
    }

    #[test]
    fn copies_share_packets_of_their_cpu_and_of_cpus_without_a_copy() {
        let hosts = [(0, 0), (1, 1), (2, 0), (3, 1)].map(|(cpu, host)| (cpu, BTreeSet::from([host])));
        for (steering, sockets, expected) in [
            (ReplicaSteering::Cpu, &[(0, 40), (1, 41), (2, 42)][..], "by-cpu 0:40+42 1:41 2:40+42 3:41"),
            // Copy 1 is missing.
            (ReplicaSteering::Cpu, &[(0, 40), (2, 42)], "by-cpu 0:40+42 1:40+42 2:40+42 3:40+42"),
            (ReplicaSteering::Flow, &[(0, 40), (1, 41)], "by-cpu 0:40+41 1:40+41 2:40+41 3:40+41"),
        ] {
            let placement = CopyPlacement { cpus: vec![0, 1, 0], hosts: hosts.clone().into(), steering };
            let sockets = sockets.iter().map(|(copy, cookie)| (*copy, vec![*cookie])).collect();
            assert_eq!(placement.table(&sockets).to_string(), expected);
        }
    }
}
