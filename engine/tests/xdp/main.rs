//! AF_XDP servers on the links of a lab. With `role` arguments, this program is the server that a
//! test kills, or the server without privileges.

mod pass;
mod scene;
mod serve;
#[expect(dead_code, unused_imports, reason = "these tests use few of its functions")]
#[path = "../support/mod.rs"]
mod support;
mod surroundings;
mod sys;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Trial};

/// A test that cannot run on this machine returns [`scene::XdpTestSkip`].
type XdpTestFn = fn() -> scene::XdpTestResult;

const TESTS: &[(&str, XdpTestFn)] = linerate_testkit::named_tests![
    serve::requests_of_every_length_are_answered_over_ipv4_and_ipv6,
    serve::service_gets_source_and_destination_addresses,
    serve::receive_time_of_a_frame_is_set_if_requested,
    serve::long_deferred_and_redirected_replies_leave_through_the_socket,
    serve::dropped_truncated_and_unsent_requests_are_counted,
    serve::panic_loses_its_request_only,
    serve::two_workers_or_one_worker_serve_both_queues,
    serve::vlan_tagged_requests_are_answered,
    serve::requests_with_wrong_checksums_are_counted_and_not_answered,
    serve::servers_with_non_default_settings_answer_requests,
    pass::other_ports_tcp_and_arp_pass_to_the_stack,
    pass::fragmented_requests_arrive_through_the_socket,
    surroundings::stop_and_drop_detach_the_xdp_program,
    surroundings::killed_server_leaves_no_xdp_program_attached,
    surroundings::server_continues_after_the_interface_goes_down_and_up,
    surroundings::server_continues_on_the_socket_after_the_interface_is_deleted,
    surroundings::server_continues_after_mtu_changes,
    surroundings::other_xdp_program_stays_attached_and_mmsg_serves,
    surroundings::unprivileged_server_falls_back_to_mmsg,
    surroundings::unusable_interfaces_are_reported_as_fallbacks,
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
                linerate_testkit::skip(name, &skip);
                Ok(Completion::ignored_with(skip.to_string()))
            }
            Err(error) => Err(error.to_string().into()),
        },
    })
}
