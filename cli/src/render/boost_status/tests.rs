use linerate_host::stage::socket::SocketProtocol;
use linerate_tune::boost::delivery::DeliveryAgreement;
use linerate_tune::status::{TuneState, TuneStatus};

use super::*;
use crate::command::boost::DeliveryCounts;

const WIDE: TextStyle = TextStyle { width: 100, colour: false };

fn sample() -> BoostStatusDocument {
    let socket = |cookie, present, packets| SteeredSocket {
        cookie,
        present,
        packets_by_cpu: BTreeMap::from([(0, packets)]),
    };
    let steered = SteeredSockets {
        by_cpu: BTreeMap::from([(0, vec![41]), (1, vec![42]), (2, vec![41])]),
        sockets: vec![socket(41, true, 12_345), socket(42, false, 7)],
        hashed_by_cpu: BTreeMap::from([(1, 9)]),
    };
    let tune = TuneStatus {
        tune: 3,
        unix_seconds: 1_767_225_600,
        version: "0.1.0".into(),
        argv: Vec::new(),
        goal: "boost nsd on port 53".into(),
        devices: Vec::new(),
        earlier_boot: Some(false),
        state: TuneState::Made,
        until: None,
        seconds_left: None,
        overdue: None,
        persisted: false,
        settings: Vec::new(),
    };
    let agreement =
        DeliveryAgreement { packets: 1_000, on_arrival_cpu: 1_000, ..DeliveryAgreement::default() };
    let now = BoostedServerState {
        landed: DeliveryCounts { seconds: Some(2.0), agreement: Known::Value(agreement) },
        unread_sockets: vec![42],
        changes_wanted: 1,
    };
    let local = "0.0.0.0:53".parse().expect("an address");
    let group = SteeredGroup { protocol: SocketProtocol::Udp, local, steered: Known::Value(Some(steered)) };
    BoostStatusDocument {
        schema: "linerate.boost-status/1",
        version: "0.1.0",
        argv: Vec::new(),
        journal: "/var/lib/linerate/journal".into(),
        trouble: None,
        holder: None,
        boosts: vec![ActiveBoost { tune, groups: vec![group], now: Known::Value(now) }],
    }
}

#[derive(clap::Parser)]
struct BoostStatusTestArgs {
    #[command(flatten)]
    place: StateDirArgs,
}

fn told(in_force: &BoostStatusDocument) -> String {
    let line = <BoostStatusTestArgs as clap::Parser>::parse_from(["test"]);
    status(in_force, &line.place, false, WIDE)
}

#[test]
fn a_boost_tells_where_packets_went_and_what_is_gone() {
    let text = told(&sample());
    for line in [
        "tune 3  boost nsd on port 53  2026-01-01 00:00 UTC",
        "  udp 0.0.0.0:53: packets so far",
        "        41  0,2        12,345  0        there",
        "        42  1               7  0        gone: its packets go to others",
        "    9 packets of CPU 1 were left to the kernel's hash, since no socket of theirs was there",
        "  now       100 % of 1,000 datagrams were read on the CPU they arrived on.",
        "            nobody was seen to read socket 42",
        "            1 change would put it right: linerate boost apply",
    ] {
        assert!(text.lines().any(|told| told == line), "no '{line}' in\n{text}");
    }
}

#[test]
fn no_boost_is_a_line() {
    let mut empty = sample();
    empty.boosts.clear();
    assert_eq!(told(&empty), "No boost is in force.\n");
}
