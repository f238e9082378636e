//! A server process of a boosted NSD is killed under load.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::nsd::{NsdTestServer, PORT};
use super::scene::{BUSY_RATE, BoostServersTestHost, count, signal, tell, within};
use super::traces::{allowed, steering};
use crate::support::machine;

const RATE: f64 = 4_000.0;

/// For each 0.1 s interval: its start in seconds, requests sent and replies received.
fn tenths(outcome: &Value) -> Vec<(f64, u64, u64)> {
    let intervals = outcome["intervals"].as_array().expect("intervals").iter();
    let begins = |interval: &Value| interval["begins_seconds"].as_f64().expect("a time");
    intervals.map(|each| (begins(each), count(each, "sent"), count(each, "received"))).collect()
}

/// Longest time in which fewer than 3/4 of the requests got a reply, in seconds. Half of the
/// requests go to the killed process's CPU.
fn longest_gap(outcome: &Value) -> f64 {
    let (mut longest, mut now) = (0.0_f64, 0.0);
    for (_, sent, received) in tenths(outcome) {
        now = if received * 4 < sent * 3 { now + 0.1 } else { 0.0 };
        longest = longest.max(now);
    }
    longest
}

/// Starts `boost apply --watch` and returns once it watches.
fn watched(host: &BoostServersTestHost, port: &str) -> Child {
    let mut command = host.boost(&["--port", port, "apply", "--yes", "--watch", "--look", "0.5"]);
    let mut watch = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the command starts");
    let mut lines = BufReader::new(watch.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("is watched")), "it ended");
    // The rest is read, so that the pipe never fills.
    std::thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
    watch
}

#[test]
fn a_server_process_that_is_killed_is_replaced_by_others_and_gets_its_cpu_back() {
    let test = "a_server_process_that_is_killed_is_replaced_by_others_and_gets_its_cpu_back";
    let _machine = machine();
    let Some(mut host) = BoostServersTestHost::up(test, &["nsd", "ss"]) else { return };
    let nsd = NsdTestServer::start(&mut host);
    let port = PORT.to_string();
    let busy = host.loading(PORT, BUSY_RATE, &nsd.ask(&[]));
    let mut watch = watched(&host, &port);
    let pinned = |pid: u32| allowed(pid, pid).parse::<u32>().is_ok();
    within(10, "both are pinned", || nsd.servers().iter().all(|pid| pinned(*pid)));
    busy.end();
    let load = host.loading(PORT, RATE, &nsd.ask(&[]));

    // No output reports the end of the first check.
    std::thread::sleep(Duration::from_secs(1));

    // The stopped parent forks no replacement. The killed process's socket stays open and fills up.
    let killed = nsd.servers()[0];
    signal(nsd.parent(), Signal::STOP);
    signal(killed, Signal::KILL);
    std::thread::sleep(Duration::from_secs(3));
    signal(nsd.parent(), Signal::CONT);
    within(10, "NSD forks another, which is pinned", || {
        let servers = nsd.servers();
        servers.len() == 2 && !servers.contains(&killed) && servers.iter().all(|pid| pinned(*pid))
    });
    let cpus: Vec<String> = nsd.servers().iter().map(|pid| allowed(*pid, *pid)).collect();
    assert!(cpus.contains(&"0".to_owned()) && cpus.contains(&"1".to_owned()), "{cpus:?}");
    let outcome = load.end();
    let gap = longest_gap(&outcome);
    tell(&format!(
        "nsd: a process killed, watched: longest gap {gap:.1} s, {} lost",
        count(&outcome, "lost")
    ));
    // One second, in steps of 0.1 s.
    assert!(gap < 1.05, "{:?}", tenths(&outcome));

    host.expect(0, &["--port", &port, "status"]);
    signal(watch.id(), Signal::INT);
    assert!(watch.wait().expect("a child").success());
    assert_eq!(steering(&host, PORT)[0].1, "\"cpu\"", "the boost stays in effect");
    host.expect(0, &["--port", &port, "undo"]);
    assert_eq!(steering(&host, PORT)[0].1, "\"hash\"");
    assert!(nsd.servers().iter().all(|pid| !pinned(*pid)));
}

#[test]
fn unwatched_a_process_that_is_killed_loses_what_it_held_and_no_more() {
    let test = "unwatched_a_process_that_is_killed_loses_what_it_held_and_no_more";
    let _machine = machine();
    let Some(mut host) = BoostServersTestHost::up(test, &["nsd", "ss"]) else { return };
    let nsd = NsdTestServer::start(&mut host);
    let port = PORT.to_string();
    let busy = host.loading(PORT, BUSY_RATE, &nsd.ask(&[]));
    host.expect(0, &["--port", &port, "apply", "--yes", "--look", "0.5"]);
    busy.end();
    let load = host.loading(PORT, RATE, &nsd.ask(&[]));
    let killed = nsd.servers()[0];
    signal(killed, Signal::KILL);
    within(10, "NSD forks another", || {
        let servers = nsd.servers();
        servers.len() == 2 && !servers.contains(&killed)
    });
    let outcome = load.end();
    tell(&format!("nsd: a process killed, not watched: {} lost", count(&outcome, "lost")));
    // The process holds one query at a time, because Debian builds NSD without recvmmsg. Its socket
    // stays open in its parent.
    assert!(count(&outcome, "lost") <= 1, "{outcome}");
    // The killed thread is gone. The steering is restored.
    let (gone, _) = host.expect(0, &["--port", &port, "undo"]);
    assert!(gone.contains(&killed.to_string()), "{gone}");
    assert_eq!(steering(&host, PORT)[0].1, "\"hash\"");
}
