use super::*;

/// A machine with these online CPUs, hardware threads per core, and CPUs per NUMA node.
fn machine(online: &str, cores: &[&str], nodes: &[&str]) -> MachineState {
    let mut files = vec![("/sys/devices/system/cpu/online".to_owned(), format!("{online}\n"))];
    for core in cores {
        for cpu in CpuSet::from_list(core).expect("CPUs").iter() {
            let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            files.push((file, format!("{core}\n")));
        }
    }
    for (node, cpus) in nodes.iter().enumerate() {
        files.push((format!("/sys/devices/system/node/node{node}/cpulist"), format!("{cpus}\n")));
    }
    MachineState::observe(&Host::scripted(files.iter().map(|(path, text)| (path.as_str(), text.as_str()))))
}

fn placement_cpus(machine: &MachineState, cpus: &[u32]) -> (u32, u32, [Option<u32>; 4]) {
    let cpus = PlacementCpus::choose(machine, cpus);
    (cpus.packets, cpus.sender, cpus.receivers.map(|(_, cpu)| cpu.ok()))
}

#[test]
fn two_numa_nodes_with_smt_allow_every_placement() {
    let machine = machine("0-7", &["0,4", "1,5", "2,6", "3,7"], &["0-1,4-5", "2-3,6-7"]);
    let all: Vec<u32> = (0..8).collect();
    // The sender gets CPU 3 on node 1, because node 0 has no free core.
    assert_eq!(placement_cpus(&machine, &all), (0, 3, [Some(0), Some(4), Some(1), Some(2)]));
    assert_eq!(placement_cpus(&machine, &[2, 6]), (2, 2, [Some(2), Some(6), None, None]));
}

#[test]
fn unavailable_placements_have_a_reason() {
    let two = machine("0-1", &["0", "1"], &["0-1"]);
    assert_eq!(placement_cpus(&two, &[0, 1]), (0, 0, [Some(0), None, Some(1), None]));
    assert_eq!(placement_cpus(&two, &[1]), (1, 1, [Some(1), None, None, None]));
    let unknown = machine("0-1", &[], &["0-1"]);
    let cpus = PlacementCpus::choose(&unknown, &[0, 1]);
    let why = cpus.receivers[2].1.clone().expect_err("unknown");
    assert!(why.contains("which CPUs share a core is unknown: ") && why.contains("thread_siblings"), "{why}");
}
