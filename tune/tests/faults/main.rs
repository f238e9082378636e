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

use libtest_mimic::Arguments;
use linerate_testkit::{NamedTest, TrialResult, named_tests, run_tests};

const TESTS: &[NamedTest] = named_tests![
    kill::undo_restores_settings_after_a_kill_at_any_step_of_a_tune,
    kill::undo_restores_settings_after_a_kill_at_any_step_of_an_undo,
    kill::undo_restores_settings_after_a_kill_at_any_journal_system_call,
    kill::undo_can_be_repeated_after_a_kill_at_any_journal_system_call,
    guard::confirmed_tune_stays_in_effect,
    guard::guard_inherits_no_descriptor_session_or_directory,
    guard::a_killed_guard_leaves_an_overdue_tune,
    disk::tune_is_refused_at_the_start_if_the_disk_is_full,
    disk::disk_that_fills_up_midway_loses_no_journal_record,
    disk::values_that_a_change_reset_leave_space_for_its_undo,
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["role", role, ref rest @ ..] = words[..] {
        return roles::play(role, rest);
    }
    // One test at a time, because each changes the machine's settings and starts processes.
    run_tests(Arguments::from_args(), TESTS, &as_root())
}

fn as_root() -> TrialResult {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err("requires root".to_owned()) }
}
