//! `linerate boost replace` under load, and `boost attach`.

use rustix::process::Signal;
use serde_json::Value;

use super::scene::{PORT, PORT_NUMBER, ReplicaRun, ReplicaTestHost, unified_hierarchy};
use crate::boost_servers::scene::print_figure;
use crate::boost_servers::traces::traces;
use crate::support::{count, machine, signal, skip, within};

const REPLACEMENTS: usize = 3;

#[test]
fn replacing_replicas_loses_no_request_and_only_new_copies_are_restarted() {
    machine();
    let Some(host) = ReplicaTestHost::up() else { return };
    let mut run = host.run(&["--replicas", "2", "--port", PORT], &[]);
    run.until("2 replicas on CPU");
    run = replace_under_load(&host, run);
    assert_interrupted_replace_lets_the_supervisor_restart_its_copies(&host, &mut run);
    run = assert_only_new_copies_are_restarted_while_old_ones_drain(&host, run);
    run.end(Signal::TERM, 0);
    host.assert_all_removed();
}

/// Replaces the copies several times. Returns the last run.
fn replace_under_load(host: &ReplicaTestHost, mut old: ReplicaRun) -> ReplicaRun {
    let load = host.start_load(PORT_NUMBER, 4_000.0, &[]);
    for _ in 0..REPLACEMENTS {
        let before = host.copies();
        let mut new = host.replace(&["--replicas", "2", "--drain", "0.1"], &[]);
        new.until(&format!("Port {PORT} is taken over"));
        old.wait(0);
        assert!(host.copies().len() == 2 && host.copies().iter().all(|pid| !before.contains(pid)));
        old = new;
    }
    // Copies that do not start leave the old server as it is.
    let before = host.copies();
    let output = host.refusal_of("replace", &["--port", PORT], &["--background"]);
    assert!(output.contains("went to the background"), "{output}");
    assert_eq!(host.copies(), before);
    assert_lost_nothing(&format!("{REPLACEMENTS} replacements"), &load.end());
    old
}

fn assert_lost_nothing(what: &str, outcome: &Value) {
    let [lost, sent] = ["lost", "sent"].map(|key| count(outcome, key));
    print_figure(&format!("replicas: {what}, {lost} of {sent} lost"));
    assert_eq!(lost, 0, "{outcome}");
}

fn assert_interrupted_replace_lets_the_supervisor_restart_its_copies(
    host: &ReplicaTestHost,
    old: &mut ReplicaRun,
) {
    for is_killed in [false, true] {
        let before = host.copies();
        let mut new = host.replace(&["--replicas", "1", "--drain", "60"], &[]);
        new.until("1 replica on CPU");
        signal(before[0], Signal::KILL);
        old.until("Another linerate boost replace has taken the port over");
        if is_killed {
            new.kill();
            host.expect(0, &["undo", "--port", PORT]);
        } else {
            new.end(Signal::INT, 0);
        }
        old.until("copies that end are started again");
        old.until(" serves again");
        assert!(host.copies().len() == 2 && host.copies().contains(&before[1]), "{before:?}");
        let status = host.document(&["status"]);
        assert_eq!(status["replicas"][0]["is_replaced"], false, "{status}");
    }
}

/// Returns the run of the new copies.
fn assert_only_new_copies_are_restarted_while_old_ones_drain(
    host: &ReplicaTestHost,
    mut old: ReplicaRun,
) -> ReplicaRun {
    let before = host.copies();
    let mut new = host.replace(&["--replicas", "2", "--drain", "2"], &[]);
    new.until("2 replicas on CPU");
    let after: Vec<u32> = host.copies().into_iter().filter(|pid| !before.contains(pid)).collect();
    signal(before[0], Signal::KILL);
    old.until("Another linerate boost replace has taken the port over");
    signal(after[1], Signal::KILL);
    // The new copies are supervised while the old server drains.
    new.until("Copy 1 serves again");
    let (out, _) = host.expect(0, &["status"]);
    assert!(out.contains("Other copies have taken the port over"), "{out}");
    new.until(&format!("Port {PORT} is taken over"));
    old.wait(0);
    let remaining = host.copies();
    assert!(
        remaining.len() == 2 && remaining[0] == after[0] && remaining[1] != after[1],
        "{before:?} {after:?} {remaining:?}"
    );
    let status = host.document(&["status"]);
    assert_eq!(status["replicas"][0]["copies"][1]["restarts"], 1, "{status}");
    new
}

#[test]
fn replace_takes_over_a_server_without_boost_run_unless_it_is_interrupted() {
    machine();
    let Some(host) = ReplicaTestHost::up() else { return };
    let mut server = host.start_server(&["--tcp"]);
    let settings = || traces(&host, server.id(), PORT_NUMBER);
    let before = settings();
    // Before the copies have the port, and while the server drains.
    for (options, words, event) in [
        (["--probe", "echo"], &["--tcp", "--silent"][..], "0| ready"),
        (["--drain", "60"], &["--tcp"], "1 replica on CPU"),
    ] {
        let mut new = host.replace(&[&["--replicas", "1"], &options[..]].concat(), words);
        new.until(event);
        let refusal = host.refusal_of("replace", &["--port", PORT], &[]);
        assert!(
            refusal.contains(&format!("linerate process {} is taking port {PORT} over", new.pid())),
            "{refusal}"
        );
        let output = new.end(Signal::INT, 0);
        assert_eq!((host.copies(), settings()), (vec![server.id()], before.clone()), "{output}");
        let is_reported = output.contains(&format!("Process {} of the old server still runs", server.id()));
        assert_eq!(is_reported, options[0] == "--drain", "{output}");
    }

    let load = host.start_load(PORT_NUMBER, 4_000.0, &[]);
    // Copies that do not answer leave the server as it is.
    let output = host.refusal_of("replace", &["--port", PORT, "--probe", "echo"], &["--silent"]);
    assert!(output.contains("does not answer on udp 0.0.0.0:5300: no valid reply"), "{output}");
    assert!(output.contains("After 5 s every copy has the port, but not every copy waits"), "{output}");
    assert_eq!(host.copies(), [server.id()]);
    let mut new = host.replace(&["--replicas", "2", "--drain", "0.1", "--probe", "echo"], &["--tcp"]);
    new.until(&format!("and process {} has ended", server.id()));
    server.wait().expect("a child");
    assert_lost_nothing("one socket replaced", &load.end());
    new.end(Signal::TERM, 0);
    host.assert_all_removed();
}

#[test]
fn replace_takes_only_the_port_of_the_named_server_with_all_its_addresses() {
    machine();
    let Some(host) = ReplicaTestHost::up() else { return };
    for (server, port, words, expected) in [
        (&["--control", "5301"][..], "5301", ["--at", "5301"], "has no UDP socket"),
        (
            &[],
            PORT,
            ["--address", "127.0.0.1"],
            "gets datagrams of udp 0.0.0.0:5300 of the old server at once",
        ),
    ] {
        let server = host.start_server(server);
        let output = host.refusal_of("replace", &["--port", port], &words);
        assert!(output.contains(expected), "{output}");
        assert_eq!(host.copies(), [server.id()]);
    }
    let [mut old, other] =
        ["127.0.0.1", "127.0.0.2"].map(|address| host.start_server(&["--address", address]));
    let words = ["--address", "127.0.0.1"];
    let output = host.refusal_of("replace", &["--port", PORT], &words);
    assert!(output.contains("several servers are on this port"), "{output}");
    let mut new = host.replace(&["--pid", &old.id().to_string(), "--drain", "0"], &words);
    new.until(&format!("and process {} has ended", old.id()));
    old.wait().expect("a child");
    assert!(host.copies().len() == 2 && host.copies().contains(&other.id()));
    new.end(Signal::TERM, 0);
    drop(other);
    host.assert_all_removed();
}

#[test]
fn processes_of_an_attached_cgroup_share_a_port() {
    machine();
    let Some(host) = ReplicaTestHost::up() else { return };
    let Some(hierarchy) = unified_hierarchy() else { return skip("no cgroup2 is mounted") };
    let group = hierarchy.join(format!("linerate-test-{}", std::process::id()));
    std::fs::create_dir(&group).expect("made");
    // The lab mounts its own /sys, so this path leads through the test's root.
    let path = format!("/proc/{}/root{}", std::process::id(), group.display());
    let mut attach = host.attach(&["--cgroup", &path, "--port", PORT]);
    attach.until("Ctrl-C detaches");
    let start = || host.server_in(&path).spawn().expect("it starts");
    let mut servers = [start(), start()];
    within(10, "both have the port", || host.copies().len() == 2);
    attach.end(Signal::INT, 0);
    let mut third = start();
    assert_eq!(third.wait().expect("a child").code(), Some(3), "the port is taken again");
    for server in &mut servers {
        server.kill().and_then(|()| server.wait()).expect("a child");
    }
    within(10, "the group is empty", || std::fs::remove_dir(&group).is_ok());
}
