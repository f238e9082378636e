//! `linerate boost replace` under load, and `boost attach`.

use rustix::process::Signal;

use super::scene::{PORT, ReplicaTestHost, unified_hierarchy};
use crate::boost_servers::scene::{count, tell, within};
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
    // One that does not come up leaves the old server as it is.
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

    let mut alone = host.server(&[]).spawn().expect("it starts");
    within(10, "the server is there", || !host.copies().is_empty());
    let said = host.refused_to("replace", &["--port", PORT], &[]);
    assert!(said.contains("bound without SO_REUSEPORT"), "{said}");
    alone.kill().and_then(|()| alone.wait()).expect("a child");
}

#[test]
fn processes_of_an_attached_group_share_a_port() {
    let test = "processes_of_an_attached_group_share_a_port";
    let _machine = machine();
    let Some(host) = ReplicaTestHost::up(test) else { return };
    let Some(hierarchy) = unified_hierarchy() else { return skip(test, "no cgroup2 is mounted") };
    let group = hierarchy.join(format!("linerate-test-{}", std::process::id()));
    std::fs::create_dir(&group).expect("made");
    // The lab has a /sys of its own.
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
