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

use std::io::Write as _;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Trial};
use linerate_lab::userns::{LabPrivilege, enter_if_needed, probe};

/// The result of a test. The error is the reason why the test cannot run here.
type Skipped = Result<(), String>;

/// The name and the function of a test.
type Test = (&'static str, fn() -> Skipped);

const TESTS: &[Test] = &[
    ("lab::packets_pass_both_ways", lab::packets_pass_both_ways),
    ("lab::extra_addresses_answer", lab::extra_addresses_answer),
    ("lab::sysfs_shows_the_hosts_own", lab::sysfs_shows_the_hosts_own),
    ("lab::labs_side_by_side", lab::labs_side_by_side),
    ("lab::threads_stay_in_their_host", lab::threads_stay_in_their_host),
    ("lab::a_panic_is_an_error", lab::a_panic_is_an_error),
    ("lab::bad_shapes_leave_nothing", lab::bad_shapes_leave_nothing),
    ("lab::children_live_in_the_host", lab::children_live_in_the_host),
    ("lab::a_missing_program_is_an_error", lab::a_missing_program_is_an_error),
    ("lab::drop_removes_everything", lab::drop_removes_everything),
    ("lab::a_limit_is_named_and_leaves_nothing", lab::a_limit_is_named_and_leaves_nothing),
    ("kill::nothing_is_left", kill::nothing_is_left),
    ("kill::at_any_moment", kill::at_any_moment),
    ("kill::settings_are_restored", kill::settings_are_restored),
    ("kill::what_a_lab_leaves_is_told", kill::what_a_lab_leaves_is_told),
    ("kill::a_living_lab_is_left_alone", kill::a_living_lab_is_left_alone),
    ("kill::a_namespace_of_the_same_number_is_spared", kill::a_namespace_of_the_same_number_is_spared),
    ("hold::up_list_exec_down", hold::up_list_exec_down),
    ("hold::a_name_is_up_once", hold::a_name_is_up_once),
    ("hold::what_fails_is_told", hold::what_fails_is_told),
    ("hold::a_killed_holder_is_cleaned_up", hold::a_killed_holder_is_cleaned_up),
];

/// The tests that also work from outside the user namespace of the lab.
const FROM_OUTSIDE: &[&str] = &[
    "kill::nothing_is_left",
    "kill::at_any_moment",
    "hold::up_list_exec_down",
    "hold::a_name_is_up_once",
    "hold::a_killed_holder_is_cleaned_up",
];

const AS_ORDINARY_USER: &[Test] = &[
    ("ordinary::inside_a_user_namespace", ordinary::inside_a_user_namespace),
    ("ordinary::outside_of_it", ordinary::outside_of_it),
    ("ordinary::what_forbids_it_is_named", ordinary::what_forbids_it_is_named),
    ("ordinary::one_registry_inside_and_outside", ordinary::one_registry_inside_and_outside),
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
        ["role", "where"] => return ordinary::where_it_is(),
        // The harness must not parse the arguments of a role.
        ["role", "inside"] => {
            return run(
                Arguments::from_iter(["inside of a user namespace"]),
                TESTS.iter(),
                &enter_if_needed(),
            );
        }
        ["role", "outside"] => {
            let from_outside = |(name, _): &&Test| FROM_OUTSIDE.contains(name);
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

/// Runs the tests one after the other, because some of them count processes or change limits of the
/// whole process.
fn run(
    arguments: Arguments,
    tests: impl Iterator<Item = &'static Test>,
    privilege: &LabPrivilege,
) -> ExitCode {
    let forbidden = match privilege {
        LabPrivilege::Forbidden { .. } => Some(privilege.to_string()),
        _ => None,
    };
    let trials = tests.map(|(name, test)| trial(name, *test, forbidden.clone())).collect();
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials).exit_code()
}

/// Wraps a test for the harness. A test that cannot run here prints SKIP and counts as ignored, not
/// as passed.
fn trial(name: &'static str, test: fn() -> Skipped, forbidden: Option<String>) -> Trial {
    Trial::ignorable_test(name, move || match forbidden.map_or(Ok(()), Err).and_then(|()| test()) {
        Ok(()) => Ok(Completion::Completed),
        Err(why) => {
            let _ = std::io::stderr().write_all(format!("\nSKIP {name}: {why}\n").as_bytes());
            Ok(Completion::ignored_with(why))
        }
    })
}
