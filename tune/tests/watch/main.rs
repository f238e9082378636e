//! Servers with forked workers, boosted and watched in a lab while clients send requests.
//!
//! This program has no standard test harness, because it is also the server, whose master forks and
//! so must have a single thread.

mod clients;
mod scene;
mod watched_boost;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Trial};

/// The error is the reason why a test cannot run here.
type Skipped = Result<(), String>;

/// The name and the function of a test.
type Test = (&'static str, fn() -> Skipped);

const TESTS: &[Test] = &[
    ("other_workers_answer_for_a_dead_worker", watched_boost::other_workers_answer_for_a_dead_worker),
    (
        "worker_that_died_before_the_watch_is_reported",
        watched_boost::worker_that_died_before_the_watch_is_reported,
    ),
    (
        "replacement_worker_gets_the_cpu_of_the_dead_worker",
        watched_boost::replacement_worker_gets_the_cpu_of_the_dead_worker,
    ),
    ("a_watch_ends_with_its_server", watched_boost::a_watch_ends_with_its_server),
    ("watch_ends_when_its_boost_is_undone", watched_boost::watch_ends_when_its_boost_is_undone),
    (
        "no_request_is_lost_after_a_worker_socket_closes",
        watched_boost::no_request_is_lost_after_a_worker_socket_closes,
    ),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let ["role", "prefork", server] = words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return scene::serve(server);
    }
    // One test at a time, because they measure times.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let trials = TESTS.iter().map(|(name, test)| trial(name, *test)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A trial that is ignored, with the reason, if the test cannot run here.
fn trial(name: &'static str, test: fn() -> Skipped) -> Trial {
    Trial::ignorable_test(name, move || match test() {
        Ok(()) => Ok(Completion::Completed),
        Err(why) => {
            linerate_testkit::skip(name, &why);
            Ok(Completion::ignored_with(why))
        }
    })
}
