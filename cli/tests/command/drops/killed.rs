//! `linerate drops` leaves no BPF program loaded, however it ends.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::Signal;

use super::scene::{DropsTestLab, PORT, within};

/// IDs of the BPF programs that a process holds.
pub(crate) fn held(process: u32) -> BTreeSet<u32> {
    let files = fs::read_dir(format!("/proc/{process}/fdinfo")).expect("a process").flatten();
    let texts: Vec<String> = files.filter_map(|file| fs::read_to_string(file.path()).ok()).collect();
    let numbers = texts.iter().flat_map(|text| text.lines()).filter_map(|line| line.strip_prefix("prog_id:"));
    numbers.map(|number| number.trim().parse().expect("a number")).collect()
}

/// Number of these programs that the kernel still has.
pub(crate) fn loaded(programs: &BTreeSet<u32>) -> usize {
    // A program of another test may disappear before it is queried.
    let all = aya::programs::loaded_programs().filter_map(|program| Some(program.ok()?.id()));
    all.filter(|number| programs.contains(number)).count()
}

#[test]
fn a_killed_trace_leaves_nothing_loaded() {
    let Some(scene) = DropsTestLab::up("a_killed_trace_leaves_nothing_loaded", 1) else { return };
    for signal in [Signal::KILL, Signal::INT, Signal::TERM] {
        let mut looking = scene.look(&["--port", &PORT.to_string()]);
        let child = looking.child();
        let programs = held(child.id());
        assert!(!programs.is_empty() && loaded(&programs) == programs.len(), "{programs:?}");
        child.signal(signal).expect("a signal");
        let status = child.wait().expect("it ends");
        assert_eq!(status.code().is_none(), signal == Signal::KILL, "{signal:?}: {status}");
        within("its programs are gone", || loaded(&programs) == 0);
    }
}
