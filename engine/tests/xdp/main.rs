//! AF_XDP servers on the links of a lab. With `role` arguments, this program is the server that a
//! test kills, or the server without privileges.

mod pass;
mod scene;
mod serve;
mod surroundings;
mod sys;

use std::io::Write as _;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Trial};

/// A test that cannot run on this machine returns [`scene::XdpTestSkip`].
type XdpTestFn = fn() -> scene::XdpTestResult;

const TESTS: &[(&str, XdpTestFn)] = &[
    ("serve::every_length_both_families_and_kinds_of_address", serve::every_length),
    ("serve::a_service_is_told_who_asks", serve::a_service_is_told_who_asks),
    ("serve::a_frame_comes_with_the_time_it_was_taken", serve::a_frame_comes_with_the_time_it_was_taken),
    ("serve::what_no_frame_carries_leaves_by_the_socket", serve::long_and_elsewhere),
    ("serve::each_fate_is_counted", serve::each_fate_is_counted),
    ("serve::a_panic_costs_its_batch_alone", serve::a_panic_costs_its_batch_alone),
    ("serve::workers_serve_their_queues", serve::workers_serve_their_queues),
    ("serve::tags_are_kept", serve::tags_are_kept),
    ("serve::damage_is_counted", serve::damage_is_counted),
    ("serve::other_settings_serve_too", serve::other_settings_serve_too),
    ("pass::others_pass", pass::others_pass),
    ("pass::fragments_come_by_the_socket", pass::fragments_come_by_the_socket),
    ("surroundings::nothing_is_left_after_a_stop", surroundings::nothing_is_left_after_a_stop),
    ("surroundings::nothing_is_left_after_a_kill", surroundings::nothing_is_left_after_a_kill),
    ("surroundings::an_interface_may_go_down", surroundings::an_interface_may_go_down),
    ("surroundings::an_interface_may_vanish", surroundings::an_interface_may_vanish),
    ("surroundings::the_mtu_may_change", surroundings::the_mtu_may_change),
    ("surroundings::a_strange_program_is_left_alone", surroundings::a_strange_program_is_left_alone),
    ("surroundings::without_privilege_mmsg_serves", surroundings::without_privilege_mmsg_serves),
    ("surroundings::what_is_not_there_is_told", surroundings::what_is_not_there_is_told),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["role", "victim", address] => return surroundings::victim(address),
        ["role", "without-privilege"] => return surroundings::without_privilege(),
        _ => {}
    }
    let arguments = Arguments::from_args();
    let trials = TESTS.iter().map(|(name, test)| trial(name, *test)).collect();
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials).exit_code()
}

fn trial(name: &'static str, test: XdpTestFn) -> Trial {
    Trial::ignorable_test(name, move || match test() {
        Ok(()) => Ok(Completion::Completed),
        Err(error) => match error.downcast::<scene::XdpTestSkip>() {
            Ok(skip) => {
                let _ = std::io::stderr().write_all(format!("\nSKIP {name}: {skip}\n").as_bytes());
                Ok(Completion::ignored_with(skip.to_string()))
            }
            Err(error) => Err(error.to_string().into()),
        },
    })
}
