//! `linerate boost unit` and its undo, in a mount namespace with units of its own.

use std::process::Command;

use crate::support::{is_program_of_root, is_root, program};

const SCRIPT: &str = r#"
set -e
units=/etc/systemd/system
mkdir -p $units
mount -t tmpfs none $units
printf '[Service]\nUser=nobody\nExecStart=/usr/sbin/server $WORDS\n' >$units/linerate-test.service
"$LINERATE" boost unit linerate-test.service --replicas 2 --port 123 --yes --state-dir "$STATE"
cat $units/linerate-test.service.d/90-linerate.conf
"$LINERATE" boost unit linerate-test.service --replicas 2 --port 123 --yes --state-dir "$STATE"
"$LINERATE" tune undo --state-dir "$STATE"
ls $units
"#;

#[test]
fn boost_unit_writes_a_drop_in_and_undo_removes_it() {
    let state = tempfile::tempdir().expect("a directory");
    if !is_root() || !is_program_of_root() {
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", SCRIPT]).env("LINERATE", program()).env("STATE", state.path());
    let output = command.output().expect("unshare");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    let group = Command::new("id").args(["-g", "nobody"]).output().expect("id");
    assert!(group.status.success(), "{group:?}");
    let group = String::from_utf8_lossy(&group.stdout).trim().to_owned();
    let start = format!(
        "/usr/bin/env --ignore-signal=PIPE /usr/bin/setpriv --reuid=nobody --regid={group} --init-groups -- "
    );
    let command =
        format!("boost run --replicas 2 --port 123 -- {start}/usr/sbin/server $WORDS\nDelegate=yes\n");
    assert!(out.contains(&command), "{out}");
    // The line works, and the program ignores SIGPIPE (bit 12).
    let test = r#"test "$(id -u):$(id -g)" = "$(id -u nobody):$(id -g nobody)" && grep -q 'SigIgn:.*[13579bdf]...$' /proc/self/status"#;
    let status = Command::new("sh")
        .args(["-c", &format!("exec {start}/bin/sh -c '{}'", test.replace('\'', "'\\''"))])
        .status();
    assert!(status.expect("sh").success(), "{start}");
    assert!(err.contains("nothing to change"), "{err}");
    assert!(out.ends_with("linerate-test.service\n"), "the drop-in and its directory are gone: {out}");
}
