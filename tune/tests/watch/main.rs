//! Servers with forked workers, boosted and watched in a lab while clients send requests.
//!
//! This program has no standard test harness, because it is also the server, whose master forks and
//! so must have a single thread.

mod clients;
mod scene;
mod watched_boost;

use std::process::ExitCode;

use libtest_mimic::Arguments;
use linerate_testkit::{NamedTest, TrialResult as Skipped, named_tests, run_tests};

const TESTS: &[NamedTest] = named_tests![
    watched_boost::other_workers_answer_for_a_dead_worker,
    watched_boost::worker_that_died_before_the_watch_is_reported,
    watched_boost::replacement_worker_gets_the_cpu_of_the_dead_worker,
    watched_boost::a_watch_ends_with_its_server,
    watched_boost::watch_ends_when_its_boost_is_undone,
    watched_boost::no_request_is_lost_after_a_worker_socket_closes,
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let ["role", "prefork", server] = words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return scene::serve(server);
    }
    // One test at a time, because they measure times.
    run_tests(Arguments::from_args(), TESTS, &Ok(()))
}
