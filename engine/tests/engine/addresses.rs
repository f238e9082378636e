//! The source address of a reply is an address that the client expects.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};

use crate::support::{BACKENDS, EngineTestResult, ask, client, skip};
use linerate_engine::{Echo, Server};

/// A broadcast address cannot be the source of a reply.
#[test]
fn broadcast_request_is_answered_from_a_unicast_address() -> EngineTestResult {
    for backend in BACKENDS {
        for bind in ["0.0.0.0:0", "[::]:0"] {
            let running =
                Server::builder().bind(bind.parse()?).workers(1).backend(backend).start(|_| Echo)?;
            let client = client("127.0.0.1:0")?;
            client.set_broadcast(true)?;
            let to = SocketAddr::from(([127, 255, 255, 255], running.local_addr().port()));
            let (answer, from) = ask(&client, to, b"anybody?")?;
            assert_eq!(answer, b"anybody?");
            assert_eq!(from.ip(), "127.0.0.1".parse::<IpAddr>()?, "{backend:?} {bind}");
            assert_eq!(running.stop()?.total().send_failed.total(), 0);
        }
    }
    Ok(())
}

/// Requests from another host to several addresses of one interface, including broadcast,
/// link-local and multicast addresses. The hosts are two network namespaces with a veth pair.
#[test]
fn each_interface_address_is_the_source_of_its_replies() -> EngineTestResult {
    let test = "each_interface_address_is_the_source_of_its_replies";
    // Each host is a thread of its own, so its namespace is removed when the thread ends.
    std::thread::scope(|scope| {
        let (to_client, from_server) = mpsc::channel();
        let (to_server, from_client) = mpsc::channel();
        let client = scope.spawn(move || client_host(&from_server, &to_server));
        let server = scope.spawn(move || match server_host(&from_client, &to_client) {
            Err(AddressTestFailure::Unavailable(why)) => {
                skip(test, why);
                Ok(())
            }
            Err(AddressTestFailure::Wrong(why)) => Err(why),
            Ok(()) => Ok(()),
        });
        let outcomes = [server.join(), client.join()];
        for outcome in outcomes {
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(())
    })
}

enum AddressTestFailure {
    /// This machine cannot run the test.
    Unavailable(String),
    Wrong(String),
}

impl<E: std::error::Error> From<E> for AddressTestFailure {
    fn from(error: E) -> Self {
        Self::Wrong(error.to_string())
    }
}

/// An order to the client to query one server: the bound address and the port.
type ClientOrder = (&'static str, u16);

/// The id of a thread in the client's namespace, or the reason why there is no namespace. Later
/// messages report that the client has finished an order.
type ClientNamespace = Result<i32, String>;

fn server_host(
    from_client: &Receiver<ClientNamespace>,
    to_client: &Sender<ClientOrder>,
) -> Result<(), AddressTestFailure> {
    let client = from_client.recv()?.map_err(AddressTestFailure::Unavailable)?;
    crate::sys::unshare_network().map_err(|error| AddressTestFailure::Unavailable(error.to_string()))?;
    ip(&[
        "link set lo up",
        "link add lan0 type veth peer name lan1",
        &format!("link set lan1 netns {client}"),
        "link set lan0 addrgenmode none",
        "link set lan0 up",
        "address add 10.1.0.1/24 brd + dev lan0",
        "address add 10.1.0.2/24 dev lan0",
        "address add 10.9.0.3/24 dev lan0",
        "address add fd00::1/64 dev lan0 nodad",
        "address add fd00::2/64 dev lan0 nodad",
        "address add fe80::5/64 dev lan0 nodad",
    ])?;
    for backend in BACKENDS {
        for bind in ["0.0.0.0:0", "[::]:0"] {
            let running =
                Server::builder().bind(bind.parse()?).workers(1).backend(backend).start(|_| Echo)?;
            to_client.send((bind, running.local_addr().port()))?;
            // The client has finished the order. If the channel is closed, the client failed and
            // reports its error itself.
            let Ok(result) = from_client.recv() else {
                return Ok(());
            };
            result.map_err(AddressTestFailure::Wrong)?;
            let total = running.stop()?.total();
            assert_eq!(total.received, total.answered, "{backend:?} {bind}: {total:?}");
        }
    }
    Ok(())
}

fn client_host(orders: &Receiver<ClientOrder>, to_server: &Sender<ClientNamespace>) -> Result<(), String> {
    if let Err(error) = crate::sys::unshare_network() {
        let why = format!("no network namespace, which needs CAP_SYS_ADMIN: {error}");
        // The server's thread prints the SKIP message.
        let _ = to_server.send(Err(why));
        return Ok(());
    }
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    to_server.send(Ok(thread)).map_err(|error| text(&error))?;
    let mut ready = false;
    // The channel closes when the server's thread ends.
    while let Ok((bind, port)) = orders.recv() {
        if !ready {
            let result = ip(&[
                "link set lan1 addrgenmode none",
                "link set lan1 up",
                "address add 10.1.0.99/24 brd + dev lan1",
                "route add 10.9.0.0/24 dev lan1",
                "address add fd00::99/64 dev lan1 nodad",
                "address add fe80::99/64 dev lan1 nodad",
            ]);
            if let Err(AddressTestFailure::Unavailable(why) | AddressTestFailure::Wrong(why)) = result {
                return Err(why);
            }
            ready = true;
        }
        ask_every_address(bind, port).map_err(|error| text(&error))?;
        to_server.send(Ok(thread)).map_err(|error| text(&error))?;
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
    for to in ["fd00::1", "fd00::2", "fe80::5"] {
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

fn ip(commands: &[&str]) -> Result<(), AddressTestFailure> {
    for command in commands {
        let output = Command::new("ip").args(command.split(' ')).output();
        let output =
            output.map_err(|error| AddressTestFailure::Unavailable(format!("no ip command: {error}")))?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(AddressTestFailure::Unavailable(format!("ip {command}: {why}")));
        }
    }
    Ok(())
}
