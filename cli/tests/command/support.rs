//! Helpers for the tests of the command.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The command under test. The variable CARGO_BIN_EXE_linerate overrides its path at build time, so
/// that you can run the test program elsewhere.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("CARGO_BIN_EXE_linerate")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_linerate")), PathBuf::from)
}

/// Runs the command to its end.
pub(crate) fn linerate(arguments: &[&str]) -> Output {
    Command::new(program()).args(arguments).output().expect("the command starts")
}

/// Prints a SKIP line for a test that cannot run here.
pub(crate) fn skip(test: &str, why: &str) {
    linerate_testkit::skip(test, why);
}

/// Some tests read counters of the whole machine or use all of its CPUs, so they run one at a time.
static MACHINE: Mutex<()> = Mutex::new(());

/// Waits until no other such test runs.
pub(crate) fn machine() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether labs can be created here, or the reason why not.
pub(crate) fn labs_can_be_made() -> Result<(), String> {
    let name = format!("test-{}-{:?}", std::process::id(), std::thread::current().id());
    let name: String = name.to_lowercase().chars().filter(|letter| letter.is_ascii_alphanumeric()).collect();
    let up = linerate(&["lab", "up", &name]);
    if !up.status.success() {
        return Err(String::from_utf8_lossy(&up.stderr).trim().to_owned());
    }
    let down = linerate(&["lab", "down", &name]);
    assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
    Ok(())
}
