//! Labs on the running kernel: as root, and as an ordinary user in a user namespace.
//!
//! This has no test harness of the standard kind, for two reasons: a process must have a single
//! thread when it enters a user namespace, and the tests start this program again as the process
//! to be killed, as the holder of a lab, and as an ordinary user.

mod hold;
mod kill;
mod lab;
mod ordinary;
mod scene;

use std::panic::catch_unwind;
use std::process::ExitCode;

use linerate_lab::userns::{Privilege, enter_if_needed, probe};

/// A test that cannot be done here says why.
type Skipped = Result<(), String>;

/// A name and what it names.
type Test = (&'static str, fn() -> Skipped);

const TESTS: &[Test] = &[
    ("lab::packets_pass_both_ways", lab::packets_pass_both_ways),
    ("lab::extra_addresses_answer", lab::extra_addresses_answer),
    ("lab::sysfs_shows_the_hosts_own", lab::sysfs_shows_the_hosts_own),
    ("lab::the_probe_agrees_with_the_lab", lab::the_probe_agrees_with_the_lab),
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
    ("kill::a_living_lab_is_left_alone", kill::a_living_lab_is_left_alone),
    ("kill::a_namespace_of_the_same_number_is_spared", kill::a_namespace_of_the_same_number_is_spared),
    ("hold::up_list_exec_down", hold::up_list_exec_down),
    ("hold::a_name_is_up_once", hold::a_name_is_up_once),
    ("hold::what_fails_is_told", hold::what_fails_is_told),
    ("hold::a_killed_holder_is_cleaned_up", hold::a_killed_holder_is_cleaned_up),
];

/// Of these, those that also work from outside the user namespace of the lab.
const FROM_OUTSIDE: &[&str] = &[
    "kill::nothing_is_left",
    "kill::at_any_moment",
    "hold::up_list_exec_down",
    "hold::a_name_is_up_once",
    "hold::a_killed_holder_is_cleaned_up",
];

/// For root only.
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
        ["role", "forbidden"] => return ordinary::forbidden(),
        ["role", "where"] => return ordinary::where_it_is(),
        ["role", "outside"] => {
            let from_outside = |(name, _): &&Test| FROM_OUTSIDE.contains(name);
            let chosen: Vec<_> = TESTS.iter().filter(from_outside).collect();
            return run(&chosen, &probe(), "from outside of its user namespace");
        }
        _ => {}
    }
    let request = Request::read(&arguments);
    let chosen: Vec<_> =
        TESTS.iter().chain(AS_ORDINARY_USER).filter(|(name, _)| request.chooses(name)).collect();
    if request.list {
        for (name, _) in chosen {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let privilege = enter_if_needed();
    run(&chosen, &privilege, &privilege.to_string())
}

/// As much of the arguments of the standard harness as its callers use.
#[derive(Default)]
struct Request<'a> {
    list: bool,
    exact: bool,
    /// Only the tests marked so are wanted; there are none.
    ignored: bool,
    names: Vec<&'a str>,
    skip: Vec<&'a str>,
}

impl<'a> Request<'a> {
    fn read(arguments: &'a [String]) -> Self {
        let mut request = Self::default();
        let mut arguments = arguments.iter().map(String::as_str);
        while let Some(argument) = arguments.next() {
            match argument {
                "--list" => request.list = true,
                "--exact" => request.exact = true,
                "--ignored" => request.ignored = true,
                "--skip" => request.skip.extend(arguments.next()),
                "--test-threads" | "--format" | "--color" | "--logfile" => {
                    arguments.next();
                }
                _ if argument.starts_with('-') => {}
                name => request.names.push(name),
            }
        }
        request
    }

    fn chooses(&self, test: &str) -> bool {
        let meets = |name: &&str| if self.exact { test == *name } else { test.contains(*name) };
        !self.ignored
            && (self.names.is_empty() || self.names.iter().any(meets))
            && !self.skip.iter().any(meets)
    }
}

fn run(chosen: &[&Test], privilege: &Privilege, how: &str) -> ExitCode {
    println!("\nrunning {} tests ({how})", chosen.len());
    let (mut passed, mut skipped, mut failed) = (0, 0, Vec::new());
    for (name, test) in chosen {
        let outcome = match privilege {
            Privilege::Forbidden { .. } => Ok(Err(privilege.to_string())),
            _ => catch_unwind(test),
        };
        match outcome {
            Ok(Ok(())) => {
                passed += 1;
                println!("test {name} ... ok");
            }
            Ok(Err(why)) => {
                skipped += 1;
                eprintln!("SKIP {name}: {why}");
                println!("test {name} ... ignored");
            }
            Err(_) => {
                failed.push(*name);
                println!("test {name} ... FAILED");
            }
        }
    }
    let word = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {} failed; {skipped} ignored; 0 measured; {} filtered out\n",
        failed.len(),
        TESTS.len() + AS_ORDINARY_USER.len() - chosen.len(),
    );
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        println!("failures:\n    {}", failed.join("\n    "));
        ExitCode::FAILURE
    }
}
