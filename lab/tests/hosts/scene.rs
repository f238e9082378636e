//! A registry, child processes and checks for the tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use linerate_lab::{CleanScope, Lab, LabBuilder, LabRegistry, LabState, NamespaceId};
use tempfile::TempDir;

/// A temporary registry for one test.
pub(crate) struct Scene {
    _directory: TempDir,
    pub(crate) registry: LabRegistry,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let registry = LabRegistry::at(directory.path().join("labs")).unwrap();
        Self { _directory: directory, registry }
    }

    pub(crate) fn builder(&self) -> LabBuilder {
        Lab::builder().registry(&self.registry)
    }

    /// The files in the registry, without its lock.
    pub(crate) fn files(&self) -> Vec<String> {
        names(self.registry.path()).into_iter().filter(|name| name != ".lock").collect()
    }
}

impl Drop for Scene {
    /// Removes the labs of a test that failed.
    fn drop(&mut self) {
        let _ = self.registry.clean(CleanScope::All, &mut |_, _| Ok(()));
    }
}

/// A command that runs this program in one of its roles.
pub(crate) fn role(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("role").args(arguments);
    command
}

/// The names in a directory, sorted.
pub(crate) fn names(directory: &Path) -> BTreeSet<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

pub(crate) fn interfaces(sys: &Path) -> Vec<String> {
    let mut found = names(&sys.join("class/net"));
    found.remove("bonding_masters");
    found.into_iter().collect()
}

pub(crate) fn namespaces(lab: &LabState) -> Vec<NamespaceId> {
    lab.hosts.iter().map(|host| host.namespace).collect()
}

/// Processes that have a thread in one of the namespaces, as far as /proc shows it to this user.
pub(crate) fn processes_in(namespaces: &[NamespaceId]) -> Vec<i32> {
    use std::os::unix::fs::MetadataExt;
    let is_in = |path: &Path| {
        fs::metadata(path).is_ok_and(|found| {
            namespaces.iter().any(|id| id.device == found.dev() && id.inode == found.ino())
        })
    };
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        let Ok(tasks) = fs::read_dir(process.path().join("task")) else {
            continue;
        };
        if tasks.flatten().any(|task| is_in(&task.path().join("ns/net"))) {
            found.push(pid);
        }
    }
    found
}

/// Waits up to 20 s for a change that the kernel makes asynchronously.
pub(crate) fn eventually(condition: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "not within 20 s: {condition}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Panics. For a `clean` that must have nothing to restore.
pub(crate) fn nothing_to_restore(key: &str, _: &serde_json::Value) -> Result<(), String> {
    panic!("unexpected request to restore {key}")
}
