//! Without the required capabilities, `linerate cost` names them in one line.

use std::fs;
use std::process::Command;

use crate::support::{program, skip};

#[test]
fn who_may_not_load_programs_is_told_what_it_takes() {
    let arguments = ["cost", "--duration", "0.1"];
    let output = if rustix::process::geteuid().is_root() {
        let Some(copy) = for_all() else {
            return skip("who_may_not_load_programs_is_told_what_it_takes", "no directory for all users");
        };
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(copy.path().join("linerate"));
        command.args(arguments).output().expect("setpriv starts")
    } else {
        crate::support::linerate(&arguments)
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
    assert!(errors.contains("CAP_BPF") && errors.contains("CAP_PERFMON"), "{errors}");
    assert!(output.stdout.is_empty());
}

/// A copy of the program that any user may run.
fn for_all() -> Option<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().ok()?;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).ok()?;
    let copy = directory.path().join("linerate");
    fs::copy(program(), &copy).ok()?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).ok()?;
    Some(directory)
}
