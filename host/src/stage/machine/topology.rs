//! NUMA nodes and cores from sysfs.

use std::collections::BTreeSet;

use super::NumaNode;
use crate::known::UnknownReason;
use crate::{CpuSet, Host, Known};

const NODES: &str = "/sys/devices/system/node";
const CPUS: &str = "/sys/devices/system/cpu";

/// An empty set, such as that of a node without CPUs, is an empty line. An empty file is an error.
pub(super) fn cpu_list(host: &Host, path: &str) -> Known<CpuSet> {
    host.read_known(path, |text| match text {
        "" => Err("empty".to_owned()),
        text => CpuSet::from_list(text).map_err(|error| error.to_string()),
    })
}

/// Nodes with CPUs.
pub(super) fn nodes(host: &Host) -> Result<Vec<NumaNode>, UnknownReason> {
    let mut nodes = Vec::new();
    for node in host.list_numbers(NODES, "node")? {
        let cpus = cpu_list(host, &format!("{NODES}/node{node}/cpulist")).into_known()?;
        if !cpus.is_empty() {
            nodes.push(NumaNode { node, cpus });
        }
    }
    if nodes.is_empty() { Err(format!("{NODES}: no node with CPUs").into()) } else { Ok(nodes) }
}

/// Cores of the online CPUs. The file of a hardware thread lists its siblings.
pub(super) fn cores(host: &Host, online: &Known<CpuSet>) -> Result<Vec<CpuSet>, UnknownReason> {
    let mut listed_cpus = BTreeSet::new();
    let mut cores = Vec::new();
    for cpu in online.known()?.iter() {
        if listed_cpus.contains(&cpu) {
            continue;
        }
        let core = siblings(host, cpu).into_known()?;
        if !core.contains(cpu) {
            return Err(format!("{CPUS}/cpu{cpu}/topology: CPU {cpu} is not in its own core").into());
        }
        listed_cpus.extend(core.iter());
        cores.push(core);
    }
    Ok(cores)
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
        let nodes = Known::from(nodes(&host)).into_value().expect("nodes");
        let expected = [NumaNode { node: 2, cpus: list("0-3") }, NumaNode { node: 10, cpus: list("4-7") }];
        assert_eq!(nodes, expected);
    }

    #[test]
    fn hardware_threads_are_grouped_by_core() {
        let file = |cpu: u32, list: &str| {
            (format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list"), list.to_owned())
        };
        let host = Host::scripted([file(0, "0,2\n"), file(1, "1,3\n")]);
        let cores = |host: &Host| Known::from(cores(host, &Known::Value(list("0-3"))));
        assert_eq!(cores(&host), Known::Value(vec![list("0,2"), list("1,3")]));
        let missing_cpu = cores(&Host::scripted([file(0, "0,2\n")]));
        assert!(missing_cpu.why_contains("cpu1/topology"), "{missing_cpu:?}");
        let wrong_core = cores(&Host::scripted([file(0, "1\n")]));
        assert!(wrong_core.why_contains("not in its own core"));
    }
}
