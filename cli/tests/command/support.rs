//! Helpers for the tests of the command.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use linerate_lab::{Lab, LabBuilder, LabChild, LabHost};
use linerate_testkit::reflector::installed::find;
use linerate_testkit::reflector::{Reflector, RunningReflector};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::schema::conforms;
use crate::turns::{self, share_machine};

/// The command under test. The variable CARGO_BIN_EXE_linerate overrides its path at build time, so
/// that you can run the test program elsewhere.
pub(crate) fn program() -> PathBuf {
    share_machine();
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

/// Standard output of a command.
pub(crate) fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The document that a command printed.
pub(crate) fn document_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", errors_of(output)))
}

/// Standard output and standard error of a command, whose exit status has to be this.
#[track_caller]
pub(crate) fn checked_text(output: &Output, status: i32, command: impl Display) -> (String, String) {
    let (out, err) = output_text(output);
    assert_eq!(output.status.code(), Some(status), "{command}: {out}{err}");
    (out, err)
}

/// Standard output and standard error of a command.
pub(crate) fn output_text(output: &Output) -> (String, String) {
    (text_of(output), errors_of(output))
}

/// The document that a command printed. Its schema and the exit status have to be these.
pub(crate) fn checked_document(output: &Output, status: i32, schema: &str) -> Value {
    assert_eq!(output.status.code(), Some(status), "{}", errors_of(output));
    let document = document_of(output);
    conforms(&document, schema);
    document
}

/// The document in a file.
pub(crate) fn read_document(path: impl AsRef<Path>) -> Value {
    serde_json::from_str(&fs::read_to_string(path).expect("written")).expect("JSON")
}

/// A number in a document.
pub(crate) fn count(document: &Value, key: &str) -> u64 {
    document[key].as_u64().unwrap_or_else(|| panic!("no count '{key}' in {document:#}"))
}

/// The texts that the items of a list have under a key.
pub(crate) fn texts<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    let text = |item: &'a Value| item[key].as_str().unwrap_or_else(|| panic!("no text '{key}' in {item}"));
    list.as_array().expect("a list").iter().map(text).collect()
}

/// The step of a ladder's result with this ID.
pub(crate) fn step<'a>(result: &'a Value, id: &str) -> &'a Value {
    let mut steps = result["steps"].as_array().expect("steps").iter();
    steps.find(|step| step["id"] == id).unwrap_or_else(|| panic!("{id} is missing: {result}"))
}

/// Fails unless a command ended with status 2 and one line on standard error that contains `words`.
pub(crate) fn assert_refused(output: &Output, words: &str) {
    let errors = errors_of(output);
    assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
    assert!(errors.contains(words), "no '{words}': {errors}");
}

/// A temporary directory, whose paths are arguments of commands.
pub(crate) struct TestDirectory(tempfile::TempDir);

impl TestDirectory {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.path().join(name).to_str().expect("a name").to_owned()
    }

    /// Writes a file. Returns its path.
    pub(crate) fn write(&self, name: &str, content: impl Display) -> String {
        let file = self.file(name);
        fs::write(&file, content.to_string()).expect("written");
        file
    }
}

/// Runs the command as a user without privileges.
pub(crate) fn run_as_nobody(arguments: &[&str]) -> Output {
    // This user may be unable to reach the target directory, but can run a file that is open.
    let file = fs::File::open(program()).expect("the command");
    let mut command = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    command.args(arguments).output().expect("the command starts")
}

/// A child process that is killed when it is dropped.
pub(crate) struct TestChild(pub(crate) Child);

impl Deref for TestChild {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for TestChild {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for TestChild {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process id");
    kill_process(pid, signal).expect("a signal can be sent");
}

/// Prints a SKIP line with the reason and the name of the running test, which is its thread's name.
pub(crate) fn skip(why: impl Display) {
    linerate_testkit::skip(thread::current().name().unwrap_or("a test"), why);
}

/// Whether the test runs as root. If not, prints a SKIP line.
pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("requires root");
    }
    is_root
}

/// Whether units may run the command under test: only root can replace it. If not, as in a user's checkout, prints a
/// SKIP line.
pub(crate) fn is_program_of_root() -> bool {
    let is_of_root = |path: &Path| path.metadata().is_ok_and(|metadata| metadata.uid() == 0);
    let all_are = program().ancestors().all(is_of_root);
    if !all_are {
        skip("requires a checkout of root");
    }
    all_are
}

/// Whether the machine has two CPUs. If not, prints a SKIP line.
pub(crate) fn has_two_cpus() -> bool {
    let has_two = thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
    if !has_two {
        skip("requires two CPUs");
    }
    has_two
}

/// Whether a program is installed. If not, prints a SKIP line with its name.
pub(crate) fn is_installed(program: &str) -> bool {
    let is_installed = find(program).is_some();
    if !is_installed {
        skip(format!("{program} is not installed"));
    }
    is_installed
}

/// Waits until no other test that calls this runs.
pub(crate) fn machine() {
    turns::machine();
}

/// Whether labs can be created here. If not, prints a SKIP line.
pub(crate) fn can_make_labs() -> bool {
    start_lab(Lab::builder()).is_some()
}

/// Starts a lab. Prints a SKIP line and returns `None` if no lab can be created.
pub(crate) fn start_lab(builder: LabBuilder) -> Option<Lab> {
    share_machine();
    builder.start().map_err(skip).ok()
}

/// Starts a lab like `start_lab`, but only as root.
pub(crate) fn start_root_lab(builder: LabBuilder) -> Option<Lab> {
    if is_root() { start_lab(builder) } else { None }
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

/// The lines that a program prints.
pub(crate) fn lines_of<R: Read>(output: &mut Option<R>) -> impl Iterator<Item = String> + use<R> {
    BufReader::new(output.take().expect("a pipe")).lines().map_while(Result::ok)
}

/// Reads a program's output up to the first line with a value. Returns the value and the lines
/// before it. Later lines are read, too, so that the program never waits for a full pipe.
pub(crate) fn await_line<T>(
    output: &mut Option<impl Read + Send + 'static>,
    parse: impl Fn(&str) -> Option<T>,
) -> (T, Vec<String>) {
    let mut lines = lines_of(output);
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
