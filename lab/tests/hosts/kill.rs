//! Cleanup after the process of a lab is killed.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::Instant;

use linerate_lab::registry::CleanScope;
use linerate_lab::userns::enter_if_needed;
use linerate_lab::{Lab, LabRegistry};
use serde_json::json;

use crate::TrialResult;
use crate::scene::{Scene, eventually, namespaces, nothing_to_restore, processes_in, role};

/// Arguments of the process to be killed: it keeps its lab, or drops it.
const STAYS: &str = "stays";
const PASSES: &str = "passes";

/// The process to be killed. It starts a lab with child processes and prints its progress.
pub(crate) fn victim(registry: &str, name: &str, life: &str) -> ExitCode {
    enter_if_needed();
    print_progress("begin");
    let registry = LabRegistry::at(registry).unwrap();
    let builder = Lab::builder().registry(&registry).name(name).senders(2);
    let lab = builder.start().unwrap();
    lab.record_host_wide("audit", json!(1)).unwrap();
    lab.record_host_wide("irq 7", json!("0-3")).unwrap();
    lab.record_host_wide("put back", json!(true)).unwrap();
    lab.forget_host_wide("put back").unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "sleep 600 & echo; exec sleep 600"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = lab.receiver().spawn(command).unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    print_progress("ready");
    if life == STAYS {
        child.wait().unwrap();
        return ExitCode::SUCCESS;
    }
    for key in ["irq 7", "audit"] {
        lab.forget_host_wide(key).unwrap();
    }
    drop(lab);
    print_progress("end");
    // Waits until it is killed.
    let _ = std::io::stdin().read_line(&mut line);
    ExitCode::SUCCESS
}

/// A process whose lab cannot remove its registry file, because a directory has replaced the file.
pub(crate) fn hindered(registry: &str) -> ExitCode {
    enter_if_needed();
    let registry = LabRegistry::at(registry).unwrap();
    let lab = Lab::builder().registry(&registry).start().unwrap();
    for entry in std::fs::read_dir(registry.path()).unwrap() {
        let file = entry.unwrap().path();
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
    }
    drop(lab);
    ExitCode::SUCCESS
}

pub(crate) fn drop_reports_files_that_cannot_be_removed() -> TrialResult {
    let directory = tempfile::tempdir().unwrap();
    let registry = directory.path().join("labs");
    let output = role(&["hindered", registry.to_str().unwrap()]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.starts_with("linerate: ") && stderr.contains("left behind"), "{stderr}");
    Ok(())
}

fn print_progress(word: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{word}").unwrap();
    output.flush().unwrap();
}

fn start(scene: &Scene, name: &str, life: &str) -> (Child, BufReader<ChildStdout>) {
    let registry = scene.registry.path().to_str().unwrap();
    let mut victim =
        role(&["victim", registry, name, life]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(victim.stdout.take().unwrap());
    (victim, output)
}

fn await_word(output: &mut BufReader<ChildStdout>, word: &str) {
    let mut line = String::new();
    while line.trim() != word {
        line.clear();
        let length = output.read_line(&mut line).unwrap();
        assert_ne!(length, 0, "the process ended before it printed {word}");
    }
}

fn kill(mut victim: Child) {
    victim.kill().unwrap();
    victim.wait().unwrap();
}

fn restore_any(_: &str, _: &serde_json::Value) -> Result<(), String> {
    Ok(())
}

pub(crate) fn clean_after_a_kill_leaves_no_processes_or_files() -> TrialResult {
    let scene = Scene::new();
    let (victim, mut output) = start(&scene, "victim", STAYS);
    await_word(&mut output, "ready");
    let lab = scene.registry.find("victim").unwrap();
    let namespaces = namespaces(&lab);
    // The victim, its child and its grandchild.
    assert_eq!(processes_in(&namespaces).len(), 3);
    let is_sleep =
        |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "sleep\n");
    eventually("the grandchild is no copy of the shell", || {
        processes_in(&namespaces).iter().any(|pid| is_sleep(*pid))
    });
    kill(victim);

    eventually("the child is gone with its parent", || processes_in(&namespaces).len() <= 1);
    let mut restored = Vec::new();
    let mut restore = |key: &str, original: &serde_json::Value| {
        restored.push((key.to_owned(), original.clone()));
        Ok(())
    };
    let report = scene.registry.clean(CleanScope::Dead, &mut restore).unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(restored, [("irq 7".to_owned(), json!("0-3")), ("audit".to_owned(), json!(1))]);
    let [cleaned_lab] = &report.labs[..] else { panic!("{report:?}") };
    assert_eq!((cleaned_lab.name.as_str(), cleaned_lab.was_alive), ("victim", false));
    // The grandchild's parent has ended. `clean` finds the grandchild by its network namespace.
    assert_eq!(cleaned_lab.killed.len(), 1, "{cleaned_lab:?}");
    assert_eq!(cleaned_lab.killed[0].command, "sleep");
    assert_eq!(processes_in(&namespaces), [0; 0]);
    assert_eq!(scene.files(), [""; 0]);
    Ok(())
}

pub(crate) fn clean_succeeds_after_a_kill_at_any_moment() -> TrialResult {
    let scene = Scene::new();
    let (victim, mut output) = start(&scene, "measured", PASSES);
    await_word(&mut output, "begin");
    let begin = Instant::now();
    await_word(&mut output, "end");
    let lifetime = begin.elapsed();
    kill(victim);

    // Kills the process at 24 moments, from before the first step of the lab until after the last.
    for round in 0u32..24 {
        let name = format!("round-{round}");
        let (victim, mut output) = start(&scene, &name, PASSES);
        await_word(&mut output, "begin");
        std::thread::sleep(lifetime * round / 20);
        // Afterwards, only the namespaces that the registry lists now can be checked.
        let namespaces = scene.registry.find(&name).map(|lab| namespaces(&lab)).unwrap_or_default();
        kill(victim);
        let report = scene.registry.clean(CleanScope::Dead, &mut restore_any).unwrap();
        assert!(report.is_complete(), "round {round}: {report:?}");
        assert_eq!(scene.files(), [""; 0], "round {round}");
        eventually("no process in the namespaces", || processes_in(&namespaces).is_empty());
    }
    Ok(())
}

pub(crate) fn a_setting_of_a_killed_lab_cannot_be_recorded_again() -> TrialResult {
    let scene = Scene::new();
    let (victim, mut output) = start(&scene, "victim", STAYS);
    await_word(&mut output, "ready");
    kill(victim);
    // The start of a lab, which may have the same name, removes all of a dead lab except its
    // changed settings, which it cannot restore.
    let lab = scene.builder().name("victim").start().unwrap();
    let error = lab.record_host_wide("audit", json!(0)).unwrap_err();
    assert!(error.to_string().ends_with("run `linerate lab clean` first"), "{error}");
    drop(lab);
    scene.registry.clean(CleanScope::Dead, &mut restore_any).unwrap();
    Ok(())
}

pub(crate) fn clean_ends_living_labs_only_with_scope_all() -> TrialResult {
    let scene = Scene::new();
    let (mut victim, mut output) = start(&scene, "living", STAYS);
    await_word(&mut output, "ready");
    let own = scene.builder().name("own").start().unwrap();
    let namespaces = namespaces(&scene.registry.find("living").unwrap());
    let report = scene.registry.clean(CleanScope::Dead, &mut nothing_to_restore).unwrap();
    assert_eq!(report.labs.len(), 0, "{report:?}");
    assert_eq!(report.alive.len(), 2, "{report:?}");
    assert_eq!(processes_in(&namespaces).len(), 3);

    // `CleanScope::All` ends the other lab, but not the lab of the calling process.
    let report = scene.registry.clean(CleanScope::All, &mut restore_any).unwrap();
    assert_eq!(report.alive, ["own"], "{report:?}");
    let [cleaned_lab] = &report.labs[..] else { panic!("{report:?}") };
    assert!(cleaned_lab.was_alive && cleaned_lab.gone, "{cleaned_lab:?}");
    assert_eq!(own.receiver().run(|| 1).unwrap(), 1);
    eventually("no process in the namespaces", || processes_in(&namespaces).is_empty());
    let status = victim.wait().unwrap();
    assert!(!status.success(), "{status}");
    Ok(())
}

pub(crate) fn clean_spares_a_namespace_that_reuses_an_inode_number() -> TrialResult {
    let scene = Scene::new();
    let lab = scene.builder().start().unwrap();
    let mut command = Command::new("/bin/sleep");
    command.arg("600");
    let mut child = lab.receiver().spawn(command).unwrap();
    // A dead lab whose namespaces had the same inode numbers as the namespaces of this lab.
    let mut dead = lab.state();
    dead.id = format!("{:016x}", !u64::from_str_radix(&dead.id, 16).unwrap());
    dead.name = "dead".to_owned();
    dead.process.start_ticks += 1;
    let path = scene.registry.path().join(format!("{}.json", dead.id));
    std::fs::write(path, serde_json::to_string(&dead).unwrap()).unwrap();
    let report = scene.registry.clean(CleanScope::Dead, &mut nothing_to_restore).unwrap();
    assert_eq!(report.labs.len(), 1);
    assert!(report.labs[0].killed.is_empty(), "{report:?}");
    assert_eq!(scene.files().len(), 1);
    assert_eq!(child.wait_at_most(std::time::Duration::ZERO).unwrap(), None);
    Ok(())
}
