//! Helpers for the tests of the command.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ChildStderr, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use linerate_lab::{Lab, LabBuilder, LabChild, LabHost};
use linerate_testkit::reflector::installed::find;
use linerate_testkit::reflector::{Reflector, RunningReflector};
pub(crate) use linerate_testkit::skip;
use serde_json::Value;

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

/// Standard error of a command.
pub(crate) fn errors_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The document that a command printed.
pub(crate) fn document_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", errors_of(output)))
}

/// Fails unless a command ended with status 2 and one line on standard error that contains `words`.
pub(crate) fn assert_refused(output: &Output, words: &str) {
    let errors = errors_of(output);
    assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
    assert!(errors.contains(words), "no '{words}': {errors}");
}

/// Whether the test runs as root. If not, prints a SKIP line.
pub(crate) fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(test, "requires root");
    }
    is_root
}

/// Whether a program is installed. If not, prints a SKIP line with its name.
pub(crate) fn is_installed(test: &str, program: &str) -> bool {
    let is_installed = find(program).is_some();
    if !is_installed {
        skip(test, format!("{program} is not installed"));
    }
    is_installed
}

/// Some tests read counters of the whole machine or use all of its CPUs, so they run one at a time.
static MACHINE: Mutex<()> = Mutex::new(());

/// Waits until no other such test runs.
pub(crate) fn machine() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether labs can be created here. If not, prints a SKIP line.
pub(crate) fn can_make_labs(test: &str) -> bool {
    start_lab(test, Lab::builder()).is_some()
}

/// Starts a lab. Prints a SKIP line and returns `None` if no lab can be created.
pub(crate) fn start_lab(test: &str, builder: LabBuilder) -> Option<Lab> {
    builder.start().map_err(|error| skip(test, error)).ok()
}

pub(crate) fn start_echo(host: &LabHost, address: SocketAddr) -> RunningReflector {
    let start = || Reflector::builder().address(address).start();
    host.run(start).expect("the host runs").expect("an echo server")
}

/// Starts a program on a lab host, with pipes for its output.
pub(crate) fn start_on(host: &LabHost, program: impl AsRef<OsStr>, arguments: &[&str]) -> LabChild {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    host.spawn(command).expect("the program starts")
}

/// Runs a program on a lab host to its end.
pub(crate) fn run_on(host: &LabHost, program: impl AsRef<OsStr>, arguments: &[&str]) -> Output {
    let mut child = start_on(host, program, arguments);
    let (stdout, stderr) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
    // Both pipes are read, so that the program never waits for a full one.
    let errors = thread::spawn(|| read_all(stderr));
    let stdout = read_all(stdout);
    let stderr = errors.join().expect("it is read");
    Output { status: child.wait().expect("it ends"), stdout, stderr }
}

fn read_all(mut pipe: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes).expect("it is read");
    bytes
}

/// Runs a shell script on a lab host. Returns standard output.
pub(crate) fn shell(host: &LabHost, script: &str) -> String {
    let output = run_on(host, "sh", &["-ec", script]);
    assert!(output.status.success(), "{script}: {}", errors_of(&output));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Reads standard error up to the first line with a value. Returns the value and the lines before
/// it. Later lines are read, too, so that the program never waits for a full pipe.
pub(crate) fn await_line<T>(
    errors: &mut Option<ChildStderr>,
    parse: impl Fn(&str) -> Option<T>,
) -> (T, Vec<String>) {
    let mut lines = BufReader::new(errors.take().expect("a pipe")).lines().map_while(Result::ok);
    let mut before = Vec::new();
    let value = lines.by_ref().find_map(|line| {
        let value = parse(&line);
        before.extend(value.is_none().then_some(line));
        value
    });
    let value = value.unwrap_or_else(|| panic!("it ends: {before:?}"));
    thread::spawn(move || lines.for_each(drop));
    (value, before)
}

/// Polls a condition, because no event reports it.
pub(crate) fn within(seconds: u64, description: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let mut pause = Duration::from_millis(1);
    while !condition() {
        assert!(Instant::now() < deadline, "{description} within {seconds} s");
        thread::sleep(pause);
        // Conditions that are soon met are seen soon, and others cost little CPU time.
        pause = (2 * pause).min(Duration::from_millis(50));
    }
}
