//! Test programs that do not use the standard harness.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Trial};

/// The result of a test. The error is the reason why the test cannot run here.
pub type TrialResult = Result<(), String>;

/// A test with its name.
pub type NamedTest = (&'static str, fn() -> TrialResult);

/// Tests of the modules of a program, each with its module and name.
#[macro_export]
macro_rules! named_tests {
    ($($module:ident::$test:ident,)*) => {
        &[$((concat!(stringify!($module), "::", stringify!($test)), $module::$test)),*]
    };
}

/// Runs the tests one after the other. A test that cannot run here prints SKIP and counts as
/// ignored, not as passed; so do all tests if `permitted` is an error.
pub fn run_tests(
    arguments: Arguments,
    tests: impl IntoIterator<Item = &'static NamedTest>,
    permitted: &TrialResult,
) -> ExitCode {
    let trial = |(name, test): &'static NamedTest| {
        let permitted = permitted.clone();
        Trial::ignorable_test(*name, move || match permitted.and_then(|()| test()) {
            Ok(()) => Ok(Completion::Completed),
            Err(why) => {
                crate::skip(name, &why);
                Ok(Completion::ignored_with(why))
            }
        })
    };
    let arguments = Arguments { test_threads: Some(1), ..arguments };
    libtest_mimic::run(&arguments, tests.into_iter().map(trial).collect()).exit_code()
}
