//! The lab tests as an ordinary user, without root.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use linerate_lab::userns::{LabPrivilege, enter_if_needed};
use linerate_lab::{Lab, LabRegistry};
use tempfile::TempDir;

use crate::TrialResult;

/// The user id and group id of `nobody`.
const NOBODY: u32 = 65534;

/// Runs the other tests again as an ordinary user who first enters a user namespace.
pub(crate) fn lab_tests_pass_inside_a_user_namespace() -> TrialResult {
    let program_copy = ProgramCopy::new()?;
    program_copy.run(&["role", "inside"])
}

/// Runs the tests that do not enter a user namespace themselves, because the processes that they
/// start do.
pub(crate) fn lab_tests_pass_from_outside_a_user_namespace() -> TrialResult {
    let program_copy = ProgramCopy::new()?;
    program_copy.run(&["role", "outside"])
}

/// The registry of a user is the same before and after entering a user namespace.
pub(crate) fn the_registry_is_the_same_inside_and_outside_a_user_namespace() -> TrialResult {
    let program_copy = ProgramCopy::new()?;
    let runtime = program_copy.directory.path().join("runtime");
    fs::create_dir(&runtime).unwrap();
    chown(&runtime, Some(NOBODY), Some(NOBODY)).unwrap();
    let output = program_copy.command(&["role", "where"]).env("XDG_RUNTIME_DIR", &runtime).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let path = runtime.join("linerate/labs");
    let lines: Vec<&Path> = text.lines().map(Path::new).collect();
    assert_eq!(lines, [&path, &path]);
    Ok(())
}

/// Prints the registry before and after entering a user namespace.
pub(crate) fn print_registry_paths() -> ExitCode {
    println!("{}", LabRegistry::open().unwrap().path().display());
    match enter_if_needed() {
        LabPrivilege::UserNamespace => {
            println!("{}", LabRegistry::open().unwrap().path().display());
            ExitCode::SUCCESS
        }
        other => {
            println!("{other:?}");
            ExitCode::FAILURE
        }
    }
}

/// If the machine forbids user namespaces, the error names the rule and how to change it.
pub(crate) fn forbidden_user_namespaces_report_the_cause_and_the_fix() -> TrialResult {
    let program_copy = ProgramCopy::new()?;
    let output = program_copy.command(&["role", "forbidden"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        text,
        "cannot make a network namespace: needs CAP_SYS_ADMIN (run as root), or unprivileged user namespaces: \
         user.max_user_namespaces is 0; allow it: sysctl -w user.max_user_namespaces=10000, or run as root\n"
    );
    Ok(())
}

/// Enters a user namespace, forbids further user namespaces in it, drops all capabilities, and
/// tries to start a lab.
pub(crate) fn forbidden() -> ExitCode {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    enter_if_needed();
    fs::write("/proc/sys/user/max_user_namespaces", "0").unwrap();
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).unwrap();
    enter_if_needed();
    let directory = tempfile::tempdir().unwrap();
    let registry = LabRegistry::at(directory.path().join("labs")).unwrap();
    let error = Lab::builder().registry(&registry).start().unwrap_err();
    println!("{error}");
    ExitCode::SUCCESS
}

/// A directory with a copy of this program that the ordinary user can execute.
struct ProgramCopy {
    directory: TempDir,
}

impl ProgramCopy {
    fn new() -> Result<Self, String> {
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        if map.split_ascii_whitespace().nth(2) == Some("1") {
            return Err("only root can become another user".to_owned());
        }
        let directory = tempfile::tempdir().unwrap();
        let open = || fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.path(), open()).unwrap();
        let program = directory.path().join("hosts");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        fs::set_permissions(&program, open()).unwrap();
        let program_copy = Self { directory };
        program_copy
            .command(&["--list"])
            .output()
            .map_err(|e| format!("cannot become user {NOBODY}: {e}"))?;
        Ok(program_copy)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.directory.path().join("hosts"));
        command
            .args(arguments)
            .current_dir("/")
            .env_remove("XDG_RUNTIME_DIR")
            .env_remove("TMPDIR")
            .uid(NOBODY)
            .gid(NOBODY);
        command
    }

    fn run(&self, arguments: &[&str]) -> TrialResult {
        let status = self.command(arguments).status().unwrap();
        assert!(status.success(), "{status}");
        Ok(())
    }
}
