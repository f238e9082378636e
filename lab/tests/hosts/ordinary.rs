//! The same without root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::Skipped;

/// The user and group of nobody.
const NOBODY: u32 = 65534;

/// Runs all other tests once more as an ordinary user.
pub(crate) fn all_of_it_without_root() -> Skipped {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    if map.split_ascii_whitespace().nth(2) == Some("1") {
        return Err("this is it".to_owned());
    }
    // The program may lie where that user cannot read.
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = directory.path().join("hosts");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();

    let status = Command::new(&program)
        .args(["lab::", "kill::", "hold::"])
        .current_dir("/")
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("TMPDIR")
        .uid(NOBODY)
        .gid(NOBODY)
        .status()
        .map_err(|e| format!("cannot become user {NOBODY}: {e}"))?;
    assert!(status.success(), "{status}");
    Ok(())
}
