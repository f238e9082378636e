//! A killed observation leaves no BPF program loaded. Perf events end with the descriptors of the
//! process.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use aya::programs::loaded_programs;
use linerate_host::Host;
use linerate_testkit::skip;
use linerate_trace::contention::{self, LockContention};
use linerate_trace::flame::{self, StackProfile};

/// If set, the process observes until it is killed. The value does not matter.
const LOOK: &str = "LINERATE_TEST_LOOK_UNTIL_KILLED";

/// Time limit of every wait.
const DEADLINE: Duration = Duration::from_secs(30);

/// BPF programs whose descriptors a process holds.
fn programs_of(process: u32) -> BTreeSet<u32> {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{process}/fdinfo")) else {
        return BTreeSet::new();
    };
    let texts = descriptors.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let id = |text: String| text.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok());
    texts.filter_map(id).collect()
}

/// Perf events that a process has open.
fn events_of(process: u32) -> usize {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return 0 };
    let links = descriptors.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.filter(|link| link.to_string_lossy().contains("[perf_event]")).count()
}

fn loaded_ids() -> BTreeSet<u32> {
    loaded_programs().filter_map(|program| Some(program.ok()?.id())).collect()
}

/// Repeats the check until `condition` is true. Returns false after [`DEADLINE`].
fn becomes_true(mut condition: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < DEADLINE {
        if condition() {
            return true;
        }
        thread::sleep(Duration::from_millis(20));
    }
    false
}

#[test]
fn killed_observation_leaves_no_bpf_program_loaded() {
    let test = "killed_observation_leaves_no_bpf_program_loaded";
    if std::env::var_os(LOOK).is_some() {
        observe();
    }
    let mut child = start_observer(test);
    let process = child.id();
    let mut programs = BTreeSet::new();
    let begun = becomes_true(|| {
        programs = programs_of(process);
        let over = child.try_wait().expect("a status").is_some();
        over || (programs.len() >= 2 && events_of(process) > 0)
    });
    if child.try_wait().expect("a status").is_some() {
        return skip(test, "BPF programs or perf events are not available here");
    }
    assert!(begun && programs.is_subset(&loaded_ids()), "{programs:?}");
    child.kill().expect("killed");
    child.wait().expect("reaped");
    // The kernel frees the programs a moment later.
    assert!(becomes_true(|| programs.is_disjoint(&loaded_ids())), "{programs:?} stay loaded");
}

/// Starts this program as a process that observes until it is killed.
fn start_observer(test: &str) -> Child {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(["--exact", test]).env(LOOK, "").stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("started")
}

fn observe() -> ! {
    let options = contention::ContentionOptions { duration: DEADLINE * 4, cpus: None };
    thread::scope(|scope| {
        scope.spawn(|| {
            if LockContention::observe(&Host::live(), &options, &|| false).is_err() {
                std::process::exit(1);
            }
        });
        if StackProfile::observe(&Host::live(), &flame::ProfileOptions::all(DEADLINE * 4), &|| false).is_err()
        {
            std::process::exit(1);
        }
    });
    std::process::exit(0)
}
