//! A server process of a boosted NSD is killed under load.

use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::nsd::{NsdTestServer, PORT};
use super::scene::{BUSY_RATE, BoostServersTestHost, print_figure};
use super::traces::{allowed_cpus, steering};
use crate::support::{count, lines_of, machine, signal, within};

const RATE: f64 = 4_000.0;

/// For each 0.1 s interval: its start in seconds, requests sent and replies received.
fn tenths(outcome: &Value) -> Vec<(f64, u64, u64)> {
    let intervals = outcome["intervals"].as_array().expect("intervals").iter();
    let begins = |interval: &Value| interval["begins_seconds"].as_f64().expect("a time");
    intervals
        .map(|interval| (begins(interval), count(interval, "sent"), count(interval, "received")))
        .collect()
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

/// Starts `boost apply --watch` and returns once it watches, with a thread that reads its other lines.
fn start_watch(host: &BoostServersTestHost, port: &str) -> (Child, JoinHandle<Vec<String>>) {
    let mut command = host.boost(&["--port", port, "apply", "--yes", "--watch", "--look", "0.5"]);
    let mut watch = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the command starts");
    let mut lines = lines_of(&mut watch.stderr);
    assert!(lines.any(|line| line.contains("is watched")), "it ended");
    // The rest is read, so that the pipe never fills.
    (watch, std::thread::spawn(move || lines.collect()))
}

#[test]
fn watch_covers_a_killed_process_within_1_s_and_without_watch_at_most_one_query_is_lost() {
    machine();
    let Some(mut host) = BoostServersTestHost::up(&["nsd", "ss"]) else { return };
    let nsd = NsdTestServer::start(&mut host);
    let port = PORT.to_string();
    let busy = host.start_load(PORT, BUSY_RATE, &nsd.load_arguments(&[]));
    let (mut watch, lines) = start_watch(&host, &port);
    let is_pinned = |pid: u32| allowed_cpus(pid, pid).parse::<u32>().is_ok();
    within(10, "both are pinned", || nsd.servers().iter().all(|pid| is_pinned(*pid)));
    busy.end();
    let load = host.start_load(PORT, RATE, &nsd.load_arguments(&[]));

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
        servers.len() == 2 && !servers.contains(&killed) && servers.iter().all(|pid| is_pinned(*pid))
    });
    let cpus: Vec<String> = nsd.servers().iter().map(|pid| allowed_cpus(*pid, *pid)).collect();
    assert!(cpus.contains(&"0".to_owned()) && cpus.contains(&"1".to_owned()), "{cpus:?}");
    let outcome = load.end();
    let gap = longest_gap(&outcome);
    print_figure(&format!(
        "nsd: a process killed, watched: longest gap {gap:.1} s, {} lost",
        count(&outcome, "lost")
    ));
    // One second, in steps of 0.1 s.
    assert!(gap < 1.05, "{:?}", tenths(&outcome));

    host.expect(0, &["--port", &port, "status"]);
    signal(watch.id(), Signal::INT);
    assert!(watch.wait().expect("a child").success());
    let lines = lines.join().expect("all lines");
    let has_event = |words: [&str; 2]| lines.iter().any(|line| words.iter().all(|word| line.contains(word)));
    let is_reported = |pid: u32, words| has_event([&format!("of process {pid} is "), words]);
    assert!(is_reported(killed, " go to socket ") && lines.iter().any(|line| line.contains(" is new: ")));
    assert_eq!(steering(&host, PORT)[0].1, "\"cpu\"", "the boost stays in effect");
    host.expect(0, &["--port", &port, "undo"]);
    assert_eq!(steering(&host, PORT)[0].1, "\"hash\"");
    assert!(nsd.servers().iter().all(|pid| !is_pinned(*pid)));
    assert_unwatched_boost_loses_at_most_one_query(&host, &nsd);
}

fn assert_unwatched_boost_loses_at_most_one_query(host: &BoostServersTestHost, nsd: &NsdTestServer) {
    let port = PORT.to_string();
    let busy = host.start_load(PORT, BUSY_RATE, &nsd.load_arguments(&[]));
    host.expect(0, &["--port", &port, "apply", "--yes", "--look", "0.5"]);
    busy.end();
    let load = host.start_load(PORT, RATE, &nsd.load_arguments(&[]));
    let killed = nsd.servers()[0];
    signal(killed, Signal::KILL);
    within(10, "NSD forks another", || {
        let servers = nsd.servers();
        servers.len() == 2 && !servers.contains(&killed)
    });
    let outcome = load.end();
    print_figure(&format!("nsd: a process killed, not watched: {} lost", count(&outcome, "lost")));
    // The process holds one query at a time, because Debian builds NSD without recvmmsg. Its socket
    // stays open in its parent.
    assert!(count(&outcome, "lost") <= 1, "{outcome}");
    // The killed thread is gone. The steering is restored.
    let (undo_output, _) = host.expect(0, &["--port", &port, "undo"]);
    assert!(undo_output.contains("; 1 gone."), "{undo_output}");
    assert_eq!(steering(host, PORT)[0].1, "\"hash\"");
}
