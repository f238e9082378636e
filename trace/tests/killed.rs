//! A killed observation leaves nothing loaded.

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
    let told = descriptors.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let id = |text: String| text.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok());
    told.filter_map(id).collect()
}

/// Perf events that a process has open.
fn events_of(process: u32) -> usize {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return 0 };
    let links = descriptors.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.filter(|link| link.to_string_lossy().contains("[perf_event]")).count()
}

fn loaded() -> BTreeSet<u32> {
    loaded_programs().filter_map(|program| Some(program.ok()?.id())).collect()
}

/// Asks until the answer is yes. Returns false after [`DEADLINE`].
fn comes_true(mut question: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < DEADLINE {
        if question() {
            return true;
        }
        thread::sleep(Duration::from_millis(20));
    }
    false
}

#[test]
fn what_is_killed_leaves_no_program_and_no_event() {
    let test = "what_is_killed_leaves_no_program_and_no_event";
    if std::env::var_os(LOOK).is_some() {
        look();
    }
    let mut child = looker(test);
    let process = child.id();
    let mut programs = BTreeSet::new();
    let begun = comes_true(|| {
        programs = programs_of(process);
        let over = child.try_wait().expect("asked").is_some();
        over || (programs.len() >= 2 && events_of(process) > 0)
    });
    if child.try_wait().expect("asked").is_some() {
        return skip(test, "BPF programs or perf events are not to be had here");
    }
    assert!(begun && programs.is_subset(&loaded()), "{programs:?}");
    child.kill().expect("killed");
    child.wait().expect("reaped");
    // The kernel frees the programs a moment later.
    assert!(comes_true(|| programs.is_disjoint(&loaded())), "{programs:?} stay loaded");
}

/// Starts this program as a process that observes until it is killed.
fn looker(test: &str) -> Child {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(["--exact", test]).env(LOOK, "").stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("started")
}

fn look() -> ! {
    let asked = contention::ContentionOptions { duration: DEADLINE * 4, cpus: None };
    thread::scope(|scope| {
        scope.spawn(|| {
            if LockContention::observe(&Host::live(), &asked, &|| false).is_err() {
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
