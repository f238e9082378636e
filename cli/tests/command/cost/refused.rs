//! Without the required capabilities, `linerate cost` names them in one line.

use std::fs;
use std::process::Command;

use crate::support::{assert_refused, program, skip};

#[test]
fn cost_without_privileges_names_the_capabilities() {
    let arguments = ["cost", "--duration", "0.1"];
    let output = if rustix::process::geteuid().is_root() {
        let Some(copy) = program_for_all_users() else {
            return skip("cost_without_privileges_names_the_capabilities", "no directory for all users");
        };
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(copy.path().join("linerate"));
        command.args(arguments).output().expect("setpriv starts")
    } else {
        crate::support::linerate(&arguments)
    };
    assert_refused(&output, "CAP_BPF");
    assert_refused(&output, "CAP_PERFMON");
    assert!(output.stdout.is_empty());
}

/// A copy of the program that any user may run.
fn program_for_all_users() -> Option<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().ok()?;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).ok()?;
    let copy = directory.path().join("linerate");
    fs::copy(program(), &copy).ok()?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).ok()?;
    Some(directory)
}
