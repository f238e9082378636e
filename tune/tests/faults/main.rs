//! Tunes of real settings in a lab: kills at every step, guards, and full disks.
//!
//! This program has no standard test harness, because the tests start it again: as the maker of a
//! tune, and as the guard, whose first line of output is read.

mod disk;
mod guard;
mod kill;
mod roles;
mod scene;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Trial};

/// The error is the reason why a test cannot run here.
type Skipped = Result<(), String>;

/// The name and the function of a test.
type Test = (&'static str, fn() -> Skipped);

const TESTS: &[Test] = &[
    ("kill::at_every_step_of_a_tune", kill::at_every_step_of_a_tune),
    ("kill::at_every_step_of_an_undo", kill::at_every_step_of_an_undo),
    ("kill::at_every_system_call_of_the_journal", kill::at_every_system_call_of_the_journal),
    ("kill::drift_survives", kill::drift_survives),
    ("kill::an_interface_that_was_removed_is_gone", kill::an_interface_that_was_removed_is_gone),
    ("guard::unconfirmed_is_undone", guard::unconfirmed_is_undone),
    ("guard::confirmed_stays", guard::confirmed_stays),
    ("guard::a_killed_maker_is_undone_at_once", guard::a_killed_maker_is_undone_at_once),
    ("guard::keeps_nothing_of_its_maker", guard::keeps_nothing_of_its_maker),
    ("guard::a_killed_guard_leaves_an_overdue_tune", guard::a_killed_guard_leaves_an_overdue_tune),
    ("disk::a_full_disk_refuses_at_the_start", disk::a_full_disk_refuses_at_the_start),
    ("disk::a_disk_that_fills_up_midway_loses_nothing", disk::a_disk_that_fills_up_midway_loses_nothing),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["role", role, ref rest @ ..] = words[..] {
        return roles::play(role, rest);
    }
    // One test at a time, because each changes the machine's settings and starts processes.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let trials = TESTS.iter().map(|(name, test)| trial(name, *test)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A trial that is ignored, with the reason, if the test cannot run here.
fn trial(name: &'static str, test: fn() -> Skipped) -> Trial {
    Trial::ignorable_test(name, move || match as_root().and_then(|()| test()) {
        Ok(()) => Ok(Completion::Completed),
        Err(why) => {
            linerate_testkit::skip(name, &why);
            Ok(Completion::ignored_with(why))
        }
    })
}

fn as_root() -> Skipped {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err("takes root".to_owned()) }
}
