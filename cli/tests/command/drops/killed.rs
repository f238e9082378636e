//! `linerate drops` leaves no BPF program loaded, however it ends.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::Signal;

use super::scene::{DropsTestLab, PORT, within};

/// IDs of the BPF programs that a process holds.
pub(crate) fn program_ids(process: u32) -> BTreeSet<u32> {
    let files = fs::read_dir(format!("/proc/{process}/fdinfo")).expect("a process").flatten();
    let texts: Vec<String> = files.filter_map(|file| fs::read_to_string(file.path()).ok()).collect();
    let numbers = texts.iter().flat_map(|text| text.lines()).filter_map(|line| line.strip_prefix("prog_id:"));
    numbers.map(|number| number.trim().parse().expect("a number")).collect()
}

/// Number of these programs that the kernel still has.
pub(crate) fn loaded_count(programs: &BTreeSet<u32>) -> usize {
    // A program of another test may disappear before it is queried.
    let all = aya::programs::loaded_programs().filter_map(|program| Some(program.ok()?.id()));
    all.filter(|number| programs.contains(number)).count()
}

#[test]
fn drops_ended_by_a_signal_leaves_no_bpf_program_loaded() {
    let Some(scene) = DropsTestLab::up("drops_ended_by_a_signal_leaves_no_bpf_program_loaded", 1) else {
        return;
    };
    for signal in [Signal::KILL, Signal::INT, Signal::TERM] {
        let mut drops = scene.start_drops(&["--port", &PORT.to_string()]);
        let child = drops.child();
        let programs = program_ids(child.id());
        assert!(!programs.is_empty() && loaded_count(&programs) == programs.len(), "{programs:?}");
        child.signal(signal).expect("a signal");
        let status = child.wait().expect("it ends");
        assert_eq!(status.code().is_none(), signal == Signal::KILL, "{signal:?}: {status}");
        within("its programs are gone", || loaded_count(&programs) == 0);
    }
}
