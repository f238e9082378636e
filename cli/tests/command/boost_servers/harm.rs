//! A boost of a server whose processes keep client state. linerate's catalogue does not list it.

use std::time::Duration;

use super::scene::{BUSY_RATE, BoostServersTestHost};
use super::traces::traces;
use crate::support::{checked_document, count, errors_of, machine};

const PORT: u16 = 5300;

#[test]
fn harmful_boost_is_undone_and_clients_get_replies_again() {
    machine();
    let Some(mut host) = BoostServersTestHost::up(&["gcc", "ss"]) else { return };
    let Some(server) = host.compile_server() else { return };
    host.spread();
    let port = PORT.to_string();
    let pid = host.serve(PORT, server, &[&port, "--stateful"]);
    let load = host.start_load(PORT, BUSY_RATE, &[]);
    let before = traces(&host, pid, PORT);
    let output = host.run(&["--port", &port, "apply", "--yes", "--look", "0.5", "--json", "-"]);
    let applied = checked_document(&output, 1, "linerate.boost-apply/2");
    let verification = &applied["result"]["verification"];
    assert_eq!(verification["verdict"], "harmful", "{}", errors_of(&output));
    assert!(verification["why"].as_str().is_some_and(|why| why.contains("clients")), "{verification}");
    assert_eq!((&applied["result"]["undone"], traces(&host, pid, PORT)), (&true.into(), before));
    let (status, _) = host.expect(0, &["status"]);
    assert_eq!(status, "No boost is in effect.\n");
    // The same clients get replies again: checks three of the last 0.1 s intervals of the load,
    // without the very last one.
    std::thread::sleep(Duration::from_millis(500));
    let outcome = load.end();
    let last = outcome["intervals"].as_array().expect("intervals").iter().rev().skip(1).take(3);
    for interval in last {
        let [sent, answered] = ["sent", "answered"].map(|key| count(interval, key));
        // Full buffers may drop up to 10 %.
        assert!(sent > 0 && answered * 10 >= sent * 9, "{interval}");
    }
}
