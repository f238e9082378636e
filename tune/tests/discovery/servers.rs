//! NSD with two workers and a socket for each, and chronyd with one socket.

use std::collections::BTreeSet;
use std::net::{Ipv6Addr, SocketAddr};

use linerate_host::Known;
use linerate_host::stage::socket::SocketProtocol;
use linerate_testkit::reflector::installed::{self, InstalledNsd, find};
use linerate_tune::boost::discovery::{ReaderEvidence, ServerQuery};

use crate::scene::{Scene, observation_options, on_port, skip};

/// A query for `ns.example.test A`.
const QUERY: &[u8] =
    b"\x12\x34\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x02ns\x07example\x04test\x00\x00\x01\x00\x01";

#[test]
fn both_nsd_servers_are_observed_with_their_sockets() {
    let test = "both_nsd_servers_are_observed_with_their_sockets";
    let Some(nsd) = find("nsd") else { return skip(test, "nsd is not installed") };
    let Some(mut scene) = Scene::set(test) else { return };
    let address = SocketAddr::new(scene.address(), 5300);
    let addresses = [address, SocketAddr::from((Ipv6Addr::LOCALHOST, 5300))];
    let files = InstalledNsd {
        directory: scene.directory.path(),
        addresses: &addresses,
        servers: 2,
        reuseport: true,
        zones: &[],
        options: &[],
    };
    let config = files.write().expect("written").display().to_string();
    let main = scene.serve(&nsd, &["-d", "-c", &config], address, QUERY);

    let server = scene.observe(&on_port(5300), observation_options(300, false)).expect("a server");
    assert_eq!((server.name.as_str(), server.processes[0].pid), ("nsd", main), "{server:#?}");
    let protocols =
        |protocol: SocketProtocol| server.groups.iter().filter(move |group| group.protocol == protocol);
    for group in protocols(SocketProtocol::Udp) {
        assert!(group.reuseport && group.members.len() == 2, "{group:#?}");
        match &group.steering {
            Known::Value(steering) => assert!(steering == "none" && group.ordered, "{group:#?}"),
            Known::Unknown { why } => skip(test, format_args!("steering: {why}")),
        }
    }
    assert_eq!(
        (protocols(SocketProtocol::Udp).count(), protocols(SocketProtocol::Tcp).count()),
        (2, 2),
        "{server:#?}"
    );
    let workers: BTreeSet<u32> = server.readers.iter().map(|reader| reader.pid).collect();
    assert_eq!((server.readers.len(), workers.len()), (2, 2), "{server:#?}");
    assert!(
        !workers.contains(&main)
            && server.readers.iter().all(|reader| reader.seen <= ReaderEvidence::Polling)
    );
    for group in protocols(SocketProtocol::Udp) {
        // Each worker reads one of the two sockets.
        let readers: BTreeSet<u32> = (group.members.iter())
            .flat_map(|member| {
                let readers: Vec<_> =
                    server.readers_of(member.socket.cookie).map(|reader| reader.tid).collect();
                assert_eq!(readers.len(), 1, "{server:#?}");
                readers
            })
            .collect();
        assert_eq!(readers.len(), 2, "{server:#?}");
    }

    let by_pid = |pid: u32| ServerQuery { pid: Some(pid), ..ServerQuery::default() };
    for pid in server.processes.iter().map(|process| process.pid) {
        let server_of_pid = scene.observe(&by_pid(pid), observation_options(50, false)).expect("a server");
        assert_eq!(server_of_pid.processes.len(), server.processes.len());
        assert_eq!(server_of_pid.groups.len(), server.groups.len());
    }

    let server = scene.observe_under_load(&on_port(5300), observation_options(500, true), address, QUERY);
    match &server.delivery {
        Known::Value(delivery) => {
            assert!(!delivery.read.is_empty(), "{server:#?}");
            let read: BTreeSet<u32> = delivery.read.iter().map(|item| item.pid).collect();
            let readers = server.readers.iter().filter(|reader| reader.seen == ReaderEvidence::Reading);
            assert_eq!(readers.map(|reader| reader.pid).collect::<BTreeSet<_>>(), read);
        }
        Known::Unknown { why } => skip(test, format_args!("delivery: {why}")),
    }
    assert_eq!(server.readers.len(), 2, "{server:#?}");
}

#[test]
fn chronyd_is_observed_as_one_thread_that_reads_all_sockets() {
    let test = "chronyd_is_observed_as_one_thread_that_reads_all_sockets";
    let Some(chronyd) = find("chronyd") else { return skip(test, "chronyd is not installed") };
    let Some(mut scene) = Scene::set(test) else { return };
    let config = installed::chrony(scene.directory.path(), None, 1230).expect("written");
    let config = config.display().to_string();
    let address = SocketAddr::new(scene.address(), 1230);
    let mut request = [0; 48];
    // NTP version 4, client mode.
    request[0] = 0x23;
    // -x: chronyd does not set the clock.
    let arguments = ["-x", "-d", "-u", "root", "-f", &config];
    let main = scene.serve(&chronyd, &arguments, address, &request);

    let server = scene.observe(&on_port(1230), observation_options(200, false)).expect("a server");
    assert_eq!(server.name, "chronyd");
    // chronyd sets SO_REUSEPORT, so each socket is a group of one.
    assert!(server.groups.iter().all(|group| group.members.len() == 1), "{server:#?}");
    let [reader] = server.readers.as_slice() else { panic!("{server:#?}") };
    assert_eq!((reader.pid, reader.seen), (main, ReaderEvidence::OnlyThread), "{server:#?}");
    assert_eq!(reader.sockets.len(), server.groups.len());

    let server = scene.observe_under_load(&on_port(1230), observation_options(400, true), address, &request);
    match &server.delivery {
        Known::Value(_) => assert_eq!(server.readers[0].seen, ReaderEvidence::Reading, "{server:#?}"),
        Known::Unknown { why } => skip(test, format_args!("delivery: {why}")),
    }
}
