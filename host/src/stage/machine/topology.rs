//! NUMA nodes and cores from sysfs.

use std::collections::BTreeSet;

use super::NumaNode;
use crate::{CpuSet, Host, Known};

const NODES: &str = "/sys/devices/system/node";
const CPUS: &str = "/sys/devices/system/cpu";

/// An empty set, such as that of a node without CPUs, is an empty line. An empty file is an error.
pub(super) fn cpu_list(host: &Host, path: &str) -> Known<CpuSet> {
    match host.read(path) {
        Ok(text) if text.is_empty() => Known::unknown(format!("{path}: empty")),
        Ok(text) => match CpuSet::from_list(&text) {
            Ok(set) => Known::Value(set),
            Err(error) => Known::unknown(format!("{path}: {error}")),
        },
        Err(error) => Known::unknown(error.to_string()),
    }
}

/// Nodes with CPUs.
pub(super) fn nodes(host: &Host) -> Known<Vec<NumaNode>> {
    let names = match host.list(NODES) {
        Ok(names) => names,
        Err(error) => return Known::unknown(error.to_string()),
    };
    let mut nodes = Vec::new();
    for node in names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()) {
        match cpu_list(host, &format!("{NODES}/node{node}/cpulist")) {
            Known::Value(cpus) if cpus.is_empty() => {}
            Known::Value(cpus) => nodes.push(NumaNode { node, cpus }),
            Known::Unknown { why } => return Known::Unknown { why },
        }
    }
    if nodes.is_empty() {
        return Known::unknown(format!("{NODES}: no node with CPUs"));
    }
    nodes.sort_by_key(|node| node.node);
    Known::Value(nodes)
}

/// Cores of the online CPUs. The file of a hardware thread lists its siblings.
pub(super) fn cores(host: &Host, online: &Known<CpuSet>) -> Known<Vec<CpuSet>> {
    let online = match online {
        Known::Value(online) => online,
        Known::Unknown { why } => return Known::unknown(why.clone()),
    };
    let mut listed_cpus = BTreeSet::new();
    let mut cores = Vec::new();
    for cpu in online.iter() {
        if listed_cpus.contains(&cpu) {
            continue;
        }
        match siblings(host, cpu) {
            Known::Value(core) if core.contains(cpu) => {
                listed_cpus.extend(core.iter());
                cores.push(core);
            }
            Known::Value(_) => {
                return Known::unknown(format!("{CPUS}/cpu{cpu}/topology: CPU {cpu} is not in its own core"));
            }
            Known::Unknown { why } => return Known::Unknown { why },
        }
    }
    Known::Value(cores)
}

/// `core_cpus_list` since Linux 5.3; the older name still exists in 6.18
/// (Documentation/ABI/stable/sysfs-devices-system-cpu).
fn siblings(host: &Host, cpu: u32) -> Known<CpuSet> {
    cpu_list(host, &format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> CpuSet {
        CpuSet::from_list(text).expect("a list")
    }

    #[test]
    fn numa_nodes_with_cpus_are_listed_in_numeric_order() {
        let host = Host::scripted([
            ("/sys/devices/system/node/node10/cpulist", "4-7\n"),
            ("/sys/devices/system/node/node2/cpulist", "0-3\n"),
            ("/sys/devices/system/node/node3/cpulist", "\n"),
            ("/sys/devices/system/node/online", "2-3,10\n"),
        ]);
        let nodes = nodes(&host).into_value().expect("nodes");
        let expected = [NumaNode { node: 2, cpus: list("0-3") }, NumaNode { node: 10, cpus: list("4-7") }];
        assert_eq!(nodes, expected);
    }

    #[test]
    fn a_malformed_or_missing_cpulist_makes_nodes_unknown() {
        let host = Host::scripted([("/sys/devices/system/node/node0/cpulist", "0-x\n")]);
        let why = "/sys/devices/system/node/node0/cpulist: '0-x' in '0-x' is not a CPU number or a range such as 0-3";
        assert_eq!(nodes(&host).why(), Some(why));
        assert!(nodes(&Host::scripted::<String, String>([])).why().is_some_and(|why| why.contains(NODES)));
    }

    #[test]
    fn hardware_threads_are_grouped_by_core() {
        let file = |cpu: u32, list: &str| {
            (format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list"), list.to_owned())
        };
        let host = Host::scripted([file(0, "0,2\n"), file(1, "1,3\n")]);
        let online = Known::Value(list("0-3"));
        assert_eq!(cores(&host, &online), Known::Value(vec![list("0,2"), list("1,3")]));
        let missing_cpu = cores(&Host::scripted([file(0, "0,2\n")]), &online);
        assert!(missing_cpu.why().is_some_and(|why| why.contains("cpu1/topology")), "{missing_cpu:?}");
        let wrong_core = cores(&Host::scripted([file(0, "1\n")]), &online);
        assert!(wrong_core.why().is_some_and(|why| why.contains("not in its own core")));
    }
}
