//! Labs that a separate process holds (`lab up`).

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use linerate_lab::hold::{self, HoldOptions};
use linerate_lab::registry::{CleanScope, HolderKind};
use linerate_lab::{LabError, LabRegistry, LabShape, NamespaceId};

use crate::TrialResult;
use crate::scene::{Scene, eventually, namespaces, nothing_to_restore, processes_in, role};

/// The process that holds a lab.
pub(crate) fn holder(registry: &str, options: &str) -> ExitCode {
    match hold::run(Path::new(registry), options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The process that executes a program in a lab host.
pub(crate) fn exec(registry: &str, lab: &str, host: &str, program: &str, arguments: &[&str]) -> ExitCode {
    let registry = LabRegistry::at(registry).unwrap();
    let Err(error) = hold::exec(&registry, lab, host, program, arguments);
    println!("{error}");
    ExitCode::FAILURE
}

fn options(name: &str) -> HoldOptions {
    HoldOptions { name: name.to_owned(), shape: LabShape { senders: 2, ..LabShape::default() } }
}

fn up(scene: &Scene, name: &str) -> linerate_lab::Result<linerate_lab::LabState> {
    hold::up(&scene.registry, &options(name), role(&["holder"]))
}

/// The output of a shell script in a lab host, and whether the script succeeded.
fn output(scene: &Scene, lab: &str, host: &str, script: &str) -> (String, bool) {
    let registry = scene.registry.path().to_str().unwrap();
    let result =
        role(&["exec", registry, lab, host, "/bin/sh", "-c", script]).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8(result.stdout).unwrap();
    (text.trim().to_owned(), result.status.success())
}

pub(crate) fn a_held_lab_supports_list_exec_and_down() -> TrialResult {
    let scene = Scene::new();
    let lab = up(&scene, "test").unwrap();
    assert_eq!((lab.name.as_str(), lab.kind), ("test", HolderKind::Held));
    let labs = hold::list(&scene.registry).unwrap();
    assert_eq!(labs, std::slice::from_ref(&lab));
    let hosts: Vec<&str> = lab.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(hosts, ["receiver", "sender0", "sender1"]);
    assert_eq!(lab.links.len(), 2);

    let (text, succeeded) = output(&scene, "test", "sender1", "echo $LINERATE_LAB $LINERATE_HOST");
    assert_eq!((text.as_str(), succeeded), ("test sender1", true));
    // The script runs in the network namespace of the host.
    let (text, _) = output(&scene, "test", "sender1", "readlink /proc/self/ns/net");
    let NamespaceId { inode, .. } = lab.hosts[2].namespace;
    assert_eq!(text, format!("net:[{inode}]"));
    let (text, _) = output(&scene, "test", "receiver", "echo /sys/class/net/eth*");
    assert_eq!(text, "/sys/class/net/eth0 /sys/class/net/eth1");
    let (_, succeeded) = output(&scene, "test", "receiver", "exit 5");
    assert!(!succeeded);

    let (text, succeeded) = output(&scene, "test", "nobody", "true");
    assert_eq!(
        (text.as_str(), succeeded),
        ("lab test has no host nobody; its hosts are receiver, sender0, sender1", false)
    );

    // `down` ends the processes that still run in the lab.
    let namespaces = namespaces(&lab);
    let mut command: Command = hold::command(&scene.registry, "test", "receiver", "/bin/sleep").unwrap();
    let mut sleeper = command.arg("600").spawn().unwrap();
    assert_eq!(processes_in(&namespaces).len(), 2);
    let report = hold::down(&scene.registry, "test", &mut nothing_to_restore).unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert!(report.labs[0].was_alive);
    assert!(!sleeper.wait().unwrap().success());
    assert_eq!(hold::list(&scene.registry).unwrap(), []);
    assert_eq!(scene.files(), [""; 0]);
    eventually("no process in the namespaces", || processes_in(&namespaces).is_empty());
    Ok(())
}

pub(crate) fn a_lab_name_can_be_up_only_once() -> TrialResult {
    let scene = Scene::new();
    let lab = up(&scene, "same").unwrap();
    let error = up(&scene, "same").unwrap_err();
    assert!(matches!(error, LabError::NameTaken { .. }), "{error}");
    // A lab with another name can be up at the same time.
    up(&scene, "other").unwrap();
    assert_eq!(hold::list(&scene.registry).unwrap().len(), 2);
    hold::down(&scene.registry, "same", &mut nothing_to_restore).unwrap();
    let remaining = hold::list(&scene.registry).unwrap();
    assert_eq!(remaining.len(), 1);
    assert_ne!(remaining[0].id, lab.id);
    hold::down(&scene.registry, "other", &mut nothing_to_restore).unwrap();
    let error = hold::down(&scene.registry, "other", &mut nothing_to_restore).unwrap_err();
    assert_eq!(error.to_string(), "no lab named other is up; none is");
    Ok(())
}

pub(crate) fn up_and_down_report_errors() -> TrialResult {
    let scene = Scene::new();
    let error = up(&scene, "Not A Name").unwrap_err();
    assert!(error.to_string().contains("is not usable"), "{error}");
    let mut wrong = options("wrong");
    wrong.shape.senders = 1000;
    let error = hold::up(&scene.registry, &wrong, role(&["holder"])).unwrap_err();
    assert!(matches!(error, LabError::OutOfRange { .. }), "{error}");
    // A program that does not hold a lab.
    let error =
        hold::up(&scene.registry, &options("test"), Command::new("/bin/false")).unwrap_err().to_string();
    assert!(error.contains("ended before it was ready"), "{error}");
    let error = hold::up(&scene.registry, &options("test"), Command::new("/nowhere")).unwrap_err();
    assert!(matches!(error, LabError::System { .. }), "{error}");
    // `down` refuses a lab that belongs to a running command.
    let _own = scene.builder().name("own").start().unwrap();
    let error = hold::down(&scene.registry, "own", &mut nothing_to_restore).unwrap_err();
    assert!(matches!(error, LabError::NotHeld { .. }), "{error}");
    assert_eq!(scene.files().len(), 1);
    Ok(())
}

pub(crate) fn a_killed_holder_is_cleaned_up() -> TrialResult {
    let scene = Scene::new();
    let lab = up(&scene, "test").unwrap();
    let namespaces = namespaces(&lab);
    let mut command = hold::command(&scene.registry, "test", "receiver", "/bin/sleep").unwrap();
    let mut sleeper = command.arg("600").spawn().unwrap();
    let holder = rustix::process::Pid::from_raw(lab.process.pid).unwrap();
    rustix::process::kill_process(holder, rustix::process::Signal::KILL).unwrap();
    eventually("the holder is gone", || !lab.process.is_alive());
    assert!(matches!(scene.registry.find("test"), Err(LabError::NoSuchLab { .. })));

    // The name is free again. The processes of the old lab have ended when the new lab is up.
    up(&scene, "test").unwrap();
    assert!(!sleeper.wait().unwrap().success());
    eventually("no process in the old namespaces", || processes_in(&namespaces).is_empty());
    let report = scene.registry.clean(CleanScope::All, &mut nothing_to_restore).unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(scene.files(), [""; 0]);
    Ok(())
}
