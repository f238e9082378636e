//! `linerate cost` leaves no BPF program in the kernel, however it ends.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use aya::programs::loaded_programs;

use super::scene::CostProcess;
use crate::support::skip;

#[test]
fn a_killed_look_leaves_no_program() {
    if !rustix::process::geteuid().is_root() {
        return skip("a_killed_look_leaves_no_program", "takes root");
    }
    let looking = CostProcess::start(&["--duration", "60"]);
    let ours = programs_of(looking.pid());
    assert!(!ours.is_empty(), "it has programs in the kernel while it looks");
    assert!(!ours.is_disjoint(&loaded()), "they are among those of the kernel");
    looking.kill();
    gone(&ours);
}

#[test]
fn a_look_that_is_over_leaves_no_program() {
    if !rustix::process::geteuid().is_root() {
        return skip("a_look_that_is_over_leaves_no_program", "takes root");
    }
    let looking = CostProcess::start(&["--duration", "60", "--json", "-"]);
    let ours = programs_of(looking.pid());
    let document = looking.document();
    assert_eq!(document["schema"], "linerate.cost/2");
    gone(&ours);
}

/// The kernel frees programs some time after the last descriptor is closed.
fn gone(ours: &BTreeSet<u32>) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !ours.is_disjoint(&loaded()) {
        assert!(Instant::now() < deadline, "the programs {ours:?} are gone within 20 s");
        std::thread::yield_now();
    }
}

/// IDs of the BPF programs that a process holds. The kernel does not reuse IDs soon.
fn programs_of(pid: u32) -> BTreeSet<u32> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("its descriptors");
    let told = descriptors.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok());
    told.filter_map(|told| {
        let line = told.lines().find_map(|line| line.strip_prefix("prog_id:").map(str::to_owned));
        line.and_then(|number| number.trim().parse().ok())
    })
    .collect()
}

fn loaded() -> BTreeSet<u32> {
    // A program may disappear between the list and its query.
    loaded_programs().flatten().map(|program| program.id()).collect()
}
