//! Clients that stay with a copy: by address and port, and by QUIC connection ID.

use std::collections::BTreeSet;

use rustix::process::Signal;

use super::scene::{PORT, ReplicaTestHost};
use crate::support::machine;

/// Each connection sends three packets and prints the copy that gets each one: the first packet
/// (Initial), a packet with the server's connection ID from the same port (Handshake), and a packet
/// with a short header from another port.
const CONNECTIONS: &str = r"
connect() { exec 3<>/dev/udp/198.18.0.1/5300; }
ask() { printf $1 >&3; IFS= read -r -n 1 -t 5 copy <&3; printf %s $copy; }
for number in $(seq 10 41); do
    connect
    ask '\xc0\x00\x00\x00\x01\x08client'$number'\x00'
    ask '\xe0\x00\x00\x00\x01\x08server'$number'\x00'
    connect
    ask '\x40server'$number'payload'
    echo
done";

fn connections(host: &ReplicaTestHost, steer: &str) -> Vec<String> {
    let options = ["--replicas", "2", "--port", PORT, "--steer", steer, "--env", "COPY={replica}"];
    let mut run = host.run(&options, &["--answer"]);
    run.until("2 replicas on CPU");
    let lines = host.on_sender(CONNECTIONS).lines().map(str::to_owned).collect();
    run.end(Signal::TERM, 0);
    lines
}

#[test]
fn quic_connections_stay_with_their_replica_when_the_port_changes() {
    machine();
    let Some(host) = ReplicaTestHost::up() else { return };
    let by_id = connections(&host, "quic-cid");
    assert_eq!(by_id.len(), 32, "{by_id:?}");
    assert!(by_id.iter().all(|copies| copies == "000" || copies == "111"), "{by_id:?}");
    assert_eq!(by_id.iter().collect::<BTreeSet<_>>().len(), 2, "both copies have connections: {by_id:?}");

    let by_flow = connections(&host, "flow");
    assert!(by_flow.iter().all(|copies| copies.starts_with("00") || copies.starts_with("11")), "{by_flow:?}");
    assert!(by_flow.iter().any(|copies| copies != "000" && copies != "111"), "{by_flow:?}");
    host.assert_all_removed();
}
