//! `linerate boost replace` under load, and `boost attach`.

use rustix::process::Signal;

use super::scene::{PORT, ReplicaTestHost, unified_hierarchy};
use crate::boost_servers::scene::{count, signal, tell, within};
use crate::support::{machine, skip};

const REPLACEMENTS: usize = 3;

#[test]
fn a_server_is_replaced_without_losing_a_request() {
    let test = "a_server_is_replaced_without_losing_a_request";
    let _machine = machine();
    let Some(host) = ReplicaTestHost::up(test) else { return };
    let options = ["--replicas", "2", "--drain", "0.1"];
    let mut old = host.run(&["--replicas", "2", "--port", PORT], &[]);
    old.until("2 replicas on CPU");
    let load = host.loading(4_000.0);
    for _ in 0..REPLACEMENTS {
        let before = host.copies();
        let mut new = host.replace(&options, &[]);
        new.until(&format!("Port {PORT} is taken over"));
        old.wait(0);
        assert!(host.copies().len() == 2 && host.copies().iter().all(|pid| !before.contains(pid)));
        old = new;
    }
    // Copies that do not start leave the old server as it is.
    let before = host.copies();
    let said = host.refused_to("replace", &["--port", PORT], &["--background"]);
    assert!(said.contains("went to the background"), "{said}");
    assert_eq!(host.copies(), before);
    let outcome = load.end();
    tell(&format!(
        "replicas: {REPLACEMENTS} replacements, {} of {} lost",
        count(&outcome, "lost"),
        count(&outcome, "sent")
    ));
    assert_eq!(count(&outcome, "lost"), 0, "{outcome}");
    old.end(Signal::TERM, 0);
    host.expect_nothing_left();
}

#[test]
fn a_server_that_never_asked_for_it_is_replaced_without_losing_a_request() {
    let test = "a_server_that_never_asked_for_it_is_replaced_without_losing_a_request";
    let _machine = machine();
    let Some(host) = ReplicaTestHost::up(test) else { return };
    let mut alone = host.server(&["--tcp"]).spawn().expect("it starts");
    within(10, "the server is there", || !host.copies().is_empty());
    let load = host.loading(4_000.0);
    // Copies that do not answer leave the server as it is.
    let options = ["--port", PORT, "--probe", "echo"];
    let said = host.refused_to("replace", &options, &["--silent"]);
    assert!(said.contains("does not answer on udp 0.0.0.0:5300: no valid reply"), "{said}");
    assert!(said.contains("After 5 s every copy has the port, but not every copy waits"), "{said}");
    assert_eq!(host.copies(), [alone.id()]);
    let mut new = host.replace(&["--replicas", "2", "--drain", "0.1", "--probe", "echo"], &["--tcp"]);
    new.until(&format!("and process {} has ended", alone.id()));
    alone.wait().expect("a child");
    let outcome = load.end();
    tell(&format!(
        "replicas: one socket replaced, {} of {} lost",
        count(&outcome, "lost"),
        count(&outcome, "sent")
    ));
    assert_eq!(count(&outcome, "lost"), 0, "{outcome}");
    new.end(Signal::TERM, 0);
    host.expect_nothing_left();
}

#[test]
fn copies_that_end_while_the_old_server_drains_are_old_or_new() {
    let test = "copies_that_end_while_the_old_server_drains_are_old_or_new";
    let _machine = machine();
    let Some(host) = ReplicaTestHost::up(test) else { return };
    let mut old = host.run(&["--replicas", "2", "--port", PORT], &[]);
    old.until("2 replicas on CPU");
    let before = host.copies();
    let mut new = host.replace(&["--replicas", "2", "--drain", "2"], &[]);
    new.until("2 replicas on CPU");
    let after: Vec<u32> = host.copies().into_iter().filter(|pid| !before.contains(pid)).collect();
    signal(before[0], Signal::KILL);
    old.until("Another linerate boost replace has taken the port over");
    signal(after[1], Signal::KILL);
    // The new copies are supervised while the old server drains.
    new.until("Copy 1 serves again");
    let (out, _) = host.boost(0, &["status"]);
    assert!(out.contains("Other copies have taken the port over"), "{out}");
    new.until(&format!("Port {PORT} is taken over"));
    old.wait(0);
    let left = host.copies();
    assert!(left.len() == 2 && left[0] == after[0] && left[1] != after[1], "{before:?} {after:?} {left:?}");
    let status = host.document(&["status"]);
    assert_eq!(status["replicas"][0]["copies"][1]["restarts"], 1, "{status}");
    new.end(Signal::TERM, 0);
    host.expect_nothing_left();
}

#[test]
fn processes_of_an_attached_group_share_a_port() {
    let test = "processes_of_an_attached_group_share_a_port";
    let _machine = machine();
    let Some(host) = ReplicaTestHost::up(test) else { return };
    let Some(hierarchy) = unified_hierarchy() else { return skip(test, "no cgroup2 is mounted") };
    let group = hierarchy.join(format!("linerate-test-{}", std::process::id()));
    std::fs::create_dir(&group).expect("made");
    // The lab mounts its own /sys, so this path leads through the test's root.
    let seen = format!("/proc/{}/root{}", std::process::id(), group.display());
    let mut attach = host.attach(&["--cgroup", &seen, "--port", PORT]);
    attach.until("Ctrl-C detaches");
    let start = || host.server_in(&seen).spawn().expect("it starts");
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
