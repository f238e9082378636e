//! The source address of a reply is an address that the client expects.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::process::Command;

use crate::support::{BACKENDS, EngineTestResult, ask, client, skip};
use linerate_engine::{Echo, Server};
use linerate_lab::{Lab, LabHost};

/// A broadcast address cannot be the source of a reply. The kernel copies a broadcast to all sockets.
#[test]
fn broadcast_request_is_answered_once_from_a_unicast_address() -> EngineTestResult {
    for backend in BACKENDS {
        for bind in ["0.0.0.0:0", "[::]:0"] {
            let running =
                Server::builder().bind(bind.parse()?).workers(3).backend(backend).start(|_| Echo)?;
            let client = client("127.0.0.1:0")?;
            client.set_broadcast(true)?;
            let to = SocketAddr::from(([127, 255, 255, 255], running.local_addr().port()));
            let (answer, from) = ask(&client, to, b"anybody?")?;
            assert_eq!(answer, b"anybody?");
            assert_eq!(from.ip(), "127.0.0.1".parse::<IpAddr>()?, "{backend:?} {bind}");
            let total = running.stop()?.total();
            assert_eq!((total.received, total.answered), (1, 1), "{backend:?} {bind}: {total:?}");
        }
    }
    Ok(())
}

/// Requests from another host to several addresses of one interface, including broadcast,
/// link-local and multicast addresses.
#[test]
fn each_interface_address_is_the_source_of_its_replies() -> EngineTestResult {
    let test = "each_interface_address_is_the_source_of_its_replies";
    let Ok(lab) = Lab::builder().start().map_err(|error| skip(test, error)) else { return Ok(()) };
    let (server, client) = (lab.receiver(), &lab.senders()[0]);
    // The link of the lab has other addresses.
    ip(
        server,
        &[
            "link add lan0 type veth peer name lan1",
            &format!("link set lan1 netns {}", client.thread_id()),
            "link set lan0 addrgenmode none",
            "link set lan0 up",
            "address add 10.1.0.1/24 brd + dev lan0",
            "address add 10.1.0.2/24 dev lan0",
            "address add 10.9.0.3/24 dev lan0",
            "address add fd00::1/64 dev lan0 nodad",
            "address add fd00::2/64 dev lan0 nodad",
            "address add fe80::5/64 dev lan0 nodad",
            "-6 route add local fd00:99::/64 dev lo",
        ],
    )?;
    ip(
        client,
        &[
            "link set lan1 addrgenmode none",
            "link set lan1 up",
            "address add 10.1.0.99/24 brd + dev lan1",
            "route add 10.9.0.0/24 dev lan1",
            "address add fd00::99/64 dev lan1 nodad",
            "address add fe80::99/64 dev lan1 nodad",
            "-6 route add fd00:99::/64 via fd00::1",
        ],
    )?;
    for backend in BACKENDS {
        for (bind, requests) in [("0.0.0.0:0", 5), ("[::]:0", 10)] {
            let builder = Server::builder().bind(bind.parse()?).workers(3).backend(backend);
            let running = server.run(|| builder.start(|_| Echo))??;
            let port = running.local_addr().port();
            client.run(|| ask_every_address(bind, port).map_err(|error| error.to_string()))??;
            let total = running.stop()?.total();
            assert_eq!(
                (total.received, total.answered),
                (requests, requests),
                "{backend:?} {bind}: {total:?}"
            );
        }
    }
    Ok(())
}

fn ask_every_address(bind: &str, port: u16) -> EngineTestResult {
    for to in ["10.1.0.1", "10.1.0.2", "10.9.0.3"] {
        let to = SocketAddr::new(to.parse()?, port);
        let (_, from) = ask(&client("0.0.0.0:0")?, to, b"x")?;
        assert_eq!(from, to, "{bind}");
    }
    for to in ["10.1.0.255", "255.255.255.255"] {
        let broadcaster = client("10.1.0.99:0")?;
        broadcaster.set_broadcast(true)?;
        let (_, from) = ask(&broadcaster, SocketAddr::new(to.parse()?, port), b"x")?;
        assert_eq!(from.ip(), "10.1.0.1".parse::<IpAddr>()?, "{bind} at {to}");
    }
    if bind == "0.0.0.0:0" {
        return Ok(());
    }
    let scope = rustix::net::netdevice::name_to_index(&client("0.0.0.0:0")?, "lan1")?;
    for to in ["fd00::1", "fd00::2", "fe80::5", "fd00:99::7"] {
        let to: Ipv6Addr = to.parse()?;
        let scope = if to.is_unicast_link_local() { scope } else { 0 };
        let to = SocketAddr::from(SocketAddrV6::new(to, port, 0, scope));
        let (_, from) = ask(&client("[::]:0")?, to, b"x")?;
        assert_eq!(from, to);
    }
    // The all-nodes multicast address: the reply has the interface's link-local address.
    let to = SocketAddrV6::new("ff02::1".parse()?, port, 0, scope);
    let (_, from) = ask(&client("[::]:0")?, to.into(), b"x")?;
    assert_eq!(from.ip(), "fe80::5".parse::<IpAddr>()?);
    Ok(())
}

fn ip(host: &LabHost, commands: &[&str]) -> EngineTestResult {
    for command in commands {
        let output = host.run(|| Command::new("ip").args(command.split(' ')).output())??;
        assert!(output.status.success(), "ip {command}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
