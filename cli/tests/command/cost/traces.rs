//! `linerate cost` leaves no BPF program in the kernel, however it ends.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use aya::programs::loaded_programs;

use super::scene::CostProcess;
use crate::support::skip;

#[test]
fn killed_cost_leaves_no_bpf_program_loaded() {
    if !rustix::process::geteuid().is_root() {
        return skip("killed_cost_leaves_no_bpf_program_loaded", "requires root");
    }
    let cost = CostProcess::start(&["--duration", "60"]);
    let programs = programs_of(cost.pid());
    assert!(!programs.is_empty(), "cost has programs in the kernel while it measures");
    assert!(!programs.is_disjoint(&loaded_ids()), "the kernel lists the programs");
    cost.kill();
    await_unload(&programs);
}

#[test]
fn interrupted_cost_leaves_no_bpf_program_loaded() {
    if !rustix::process::geteuid().is_root() {
        return skip("interrupted_cost_leaves_no_bpf_program_loaded", "requires root");
    }
    let cost = CostProcess::start(&["--duration", "60", "--json", "-"]);
    let programs = programs_of(cost.pid());
    let document = cost.document();
    assert_eq!(document["schema"], "linerate.cost/2");
    await_unload(&programs);
}

/// The kernel frees programs some time after the last descriptor is closed.
fn await_unload(programs: &BTreeSet<u32>) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !programs.is_disjoint(&loaded_ids()) {
        assert!(Instant::now() < deadline, "the programs {programs:?} are gone within 20 s");
        std::thread::yield_now();
    }
}

/// IDs of the BPF programs that a process holds. The kernel does not reuse IDs soon.
fn programs_of(pid: u32) -> BTreeSet<u32> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("its descriptors");
    let texts = descriptors.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok());
    texts
        .filter_map(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("prog_id:").map(str::to_owned));
            line.and_then(|number| number.trim().parse().ok())
        })
        .collect()
}

fn loaded_ids() -> BTreeSet<u32> {
    // A program may disappear between the list and its query.
    loaded_programs().flatten().map(|program| program.id()).collect()
}
