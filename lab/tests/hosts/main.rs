//! Labs on the running kernel: as root, and as an ordinary user in a user namespace.
//!
//! The tests do not use the standard harness, for two reasons: a process must have a single thread
//! when it enters a user namespace, and the tests start this program again as the process to be
//! killed, as the holder of a lab, and as an ordinary user.

mod hold;
mod kill;
mod lab;
mod ordinary;
mod scene;

use std::process::ExitCode;

use libtest_mimic::Arguments;
use linerate_lab::userns::{LabPrivilege, enter_if_needed, probe};
use linerate_testkit::{NamedTest, TrialResult, named_tests, run_tests};

const TESTS: &[NamedTest] = named_tests![
    lab::packets_pass_both_ways,
    lab::extra_addresses_exchange_packets,
    lab::sysfs_lists_only_the_interfaces_of_the_host,
    lab::labs_with_equal_addresses_run_side_by_side,
    lab::threads_spawned_in_a_host_stay_in_its_namespace,
    lab::a_panic_in_a_host_is_an_error_and_the_host_stays_usable,
    lab::invalid_shapes_are_refused_and_leave_no_files,
    lab::child_processes_run_in_the_namespace_of_the_host,
    lab::a_program_may_use_the_cpus_of_the_thread_that_starts_it,
    lab::drop_removes_processes_files_and_interfaces,
    lab::the_namespace_limit_is_reported_and_leaves_no_files,
    kill::clean_after_a_kill_leaves_no_processes_or_files,
    kill::clean_succeeds_after_a_kill_at_any_moment,
    kill::drop_reports_files_that_cannot_be_removed,
    kill::a_setting_of_a_killed_lab_cannot_be_recorded_again,
    kill::clean_ends_living_labs_only_with_scope_all,
    kill::clean_spares_a_namespace_that_reuses_an_inode_number,
    hold::a_held_lab_supports_list_exec_and_down,
    hold::a_lab_name_can_be_up_only_once,
    hold::up_and_down_report_errors,
    hold::a_killed_holder_is_cleaned_up,
];

/// The tests that also work from outside the user namespace of the lab.
const FROM_OUTSIDE: &[&str] = &[
    "kill::clean_after_a_kill_leaves_no_processes_or_files",
    "kill::clean_succeeds_after_a_kill_at_any_moment",
    "hold::a_held_lab_supports_list_exec_and_down",
    "hold::a_lab_name_can_be_up_only_once",
    "hold::a_killed_holder_is_cleaned_up",
];

const AS_ORDINARY_USER: &[NamedTest] = named_tests![
    ordinary::lab_tests_pass_inside_a_user_namespace,
    ordinary::lab_tests_pass_from_outside_a_user_namespace,
    ordinary::forbidden_user_namespaces_report_the_cause_and_the_fix,
    ordinary::the_registry_is_the_same_inside_and_outside_a_user_namespace,
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["role", "victim", registry, name, life] => return kill::victim(registry, name, life),
        ["role", "holder", registry, options] => return hold::holder(registry, options),
        ["role", "exec", registry, lab, host, program, ref rest @ ..] => {
            return hold::exec(registry, lab, host, program, rest);
        }
        ["role", "hindered", registry] => return kill::hindered(registry),
        ["role", "forbidden"] => return ordinary::forbidden(),
        ["role", "where"] => return ordinary::print_registry_paths(),
        // The harness must not parse the arguments of a role.
        ["role", "inside"] => {
            return run(
                Arguments::from_iter(["inside of a user namespace"]),
                TESTS.iter(),
                &enter_if_needed(),
            );
        }
        ["role", "outside"] => {
            let from_outside = |(name, _): &&NamedTest| FROM_OUTSIDE.contains(name);
            return run(
                Arguments::from_iter(["from outside of it"]),
                TESTS.iter().filter(from_outside),
                &probe(),
            );
        }
        _ => {}
    }
    let arguments = Arguments::from_args();
    let privilege = if arguments.list { probe() } else { enter_if_needed() };
    run(arguments, TESTS.iter().chain(AS_ORDINARY_USER), &privilege)
}

/// Runs the tests, one after the other, because some of them count processes or change limits of
/// the whole process.
fn run(
    arguments: Arguments,
    tests: impl Iterator<Item = &'static NamedTest>,
    privilege: &LabPrivilege,
) -> ExitCode {
    let permitted = match privilege {
        LabPrivilege::Forbidden { why, how_to_allow } => Err(format!("{why}; {how_to_allow}")),
        _ => Ok(()),
    };
    run_tests(arguments, tests, &permitted)
}
