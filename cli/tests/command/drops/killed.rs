//! Commands that trace leave no BPF program loaded, however they end.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use super::scene::DropsTestLab;
use crate::support::{await_line, program, start_on, within};

/// IDs of the BPF programs that a process holds. The kernel does not reuse IDs soon.
fn program_ids(process: u32) -> BTreeSet<u32> {
    let files = fs::read_dir(format!("/proc/{process}/fdinfo")).expect("a process").flatten();
    let texts: Vec<String> = files.filter_map(|file| fs::read_to_string(file.path()).ok()).collect();
    let numbers = texts.iter().flat_map(|text| text.lines()).filter_map(|line| line.strip_prefix("prog_id:"));
    numbers.map(|number| number.trim().parse().expect("a number")).collect()
}

/// Number of these programs that the kernel still has.
fn loaded_count(programs: &BTreeSet<u32>) -> usize {
    // A program of another test may disappear before it is queried.
    let all = aya::programs::loaded_programs().filter_map(|program| Some(program.ok()?.id()));
    all.filter(|number| programs.contains(number)).count()
}

#[test]
fn commands_ended_by_a_signal_leave_no_bpf_program_loaded() {
    let Some(scene) = DropsTestLab::up(1) else { return };
    for (arguments, ready, signals) in [
        (
            &["drops", "--json", "-", "--port", "4053", "--", "sh", "-c", "echo ready; exec sleep 60"][..],
            "ready",
            &[Signal::KILL, Signal::INT, Signal::TERM][..],
        ),
        (&["cost", "--json", "-", "--duration", "60"], "looking at ", &[Signal::KILL, Signal::INT]),
        // flame prints nothing at its start.
        (&["flame", "--duration", "60"], "", &[Signal::KILL]),
    ] {
        for signal in signals {
            let mut child = start_on(scene.receiver(), program(), arguments);
            if !ready.is_empty() {
                await_line(&mut child.stderr, |line| line.starts_with(ready).then_some(()));
            }
            let mut programs = BTreeSet::new();
            within(20, "the programs are loaded", || {
                programs = program_ids(child.id());
                programs.len() >= 2
            });
            assert_eq!(loaded_count(&programs), programs.len(), "{programs:?}");
            child.signal(*signal).expect("a signal");
            if *signal != Signal::KILL {
                let output = child.stdout.take().expect("a pipe");
                let document: Value = serde_json::from_reader(output).expect("a document");
                assert_eq!(document["schema"], format!("linerate.{}/2", arguments[0]));
            }
            let status = child.wait().expect("it ends");
            assert_eq!(
                status.code().is_none(),
                *signal == Signal::KILL,
                "{arguments:?} {signal:?}: {status}"
            );
            within(20, "the programs are gone", || loaded_count(&programs) == 0);
        }
    }
}
