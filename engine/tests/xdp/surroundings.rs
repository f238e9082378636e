//! The environment of an AF_XDP server: interfaces that go down or disappear, XDP programs of other
//! servers, killed processes, missing privileges and missing interfaces.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, ExitCode, Stdio};

use linerate_engine::{Echo, Server};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::scene::{PORT, XdpTestLab, XdpTestResult, ask, ask_until_answered, run, xdp_server};

pub(crate) fn stop_and_drop_detach_the_xdp_program() -> XdpTestResult {
    let (scene, address, running) = XdpTestLab::with_echo()?;
    assert!(scene.link()?.contains("xdp"));
    running.stop()?;
    assert!(!scene.link()?.contains("xdp"));
    // A prepared server that is dropped before its start also detaches its XDP program.
    let server = scene.lab.receiver().run(|| xdp_server(address, 2).prepare())??;
    assert!(server.xdp().is_some() && scene.link()?.contains("xdp"));
    drop(server);
    assert!(!scene.link()?.contains("xdp"));
    Ok(())
}

pub(crate) fn victim(address: &str) -> ExitCode {
    let serve =
        || -> Result<_, Box<dyn std::error::Error>> { Ok(xdp_server(address.parse()?, 2).start(|_| Echo)?) };
    match serve() {
        Ok(running) => {
            println!("{}", if running.xdp().is_some() { "serving" } else { "fell back" });
            let _ = std::io::stdout().flush();
            loop {
                std::thread::park();
            }
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn killed_server_leaves_no_xdp_program_attached() -> XdpTestResult {
    let scene = XdpTestLab::new()?;
    let address = SocketAddr::new(scene.ipv4(), PORT);
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["role", "victim", &address.to_string()]).stdout(Stdio::piped());
    let mut child = scene.lab.receiver().run(|| command.spawn())??;
    let output = child.stdout.take().ok_or("no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    assert_eq!(line.trim(), "serving");
    let client = scene.client(scene.ipv4())?;
    assert_eq!(ask(&client, address, b"alive")?.0, b"alive");
    assert!(scene.link()?.contains("xdp"));
    child.kill()?;
    child.wait()?;
    assert!(!scene.link()?.contains("xdp"));
    // The network stack receives the packets of the port again, and another server can bind it.
    let running = scene.lab.receiver().run(|| Server::builder().bind(address).start(|_| Echo))??;
    assert_eq!(ask(&client, address, b"by the stack")?.0, b"by the stack");
    let total = running.stop()?.total();
    assert_eq!((total.received, total.frames), (1, 0));
    Ok(())
}

pub(crate) fn server_continues_after_the_interface_goes_down_and_up() -> XdpTestResult {
    let (scene, address, running) = XdpTestLab::with_echo()?;
    let client = scene.client(scene.ipv4())?;
    ask_until_answered(&client, address, b"before")?;
    for _ in 0..3 {
        let before = running.total().frames;
        run(scene.lab.receiver(), "ip", &["link", "set", "eth0", "down"])?;
        // The server does not receive this datagram, because its interface is down.
        let _ = client.send_to(b"while it is down", address);
        run(scene.lab.receiver(), "ip", &["link", "set", "eth0", "up"])?;
        ask_until_answered(&client, address, b"after")?;
        for number in 0..32u8 {
            let client = scene.client(scene.ipv4())?;
            ask_until_answered(&client, address, &[number])?;
        }
        assert!(running.total().frames >= before + 32, "{:?}", running.total());
        assert!(running.ended_workers().is_empty());
    }
    running.stop()?;
    Ok(())
}

pub(crate) fn server_continues_on_the_socket_after_the_interface_is_deleted() -> XdpTestResult {
    let scene = XdpTestLab::new()?;
    let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT);
    let running = scene.start(xdp_server(any, 2), |_| Echo)?;
    let client = scene.client(scene.ipv4())?;
    ask_until_answered(&client, SocketAddr::new(scene.ipv4(), PORT), b"before")?;
    run(scene.lab.receiver(), "ip", &["link", "del", "eth0"])?;
    // Without the interface, the server still answers through its UDP socket.
    let local = scene.lab.receiver().run(|| std::net::UdpSocket::bind("127.0.0.1:0"))??;
    ask_until_answered(&local, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT), b"after")?;
    assert!(running.ended_workers().is_empty());
    running.stop()?;
    Ok(())
}

pub(crate) fn server_continues_after_mtu_changes() -> XdpTestResult {
    let (scene, address, running) = XdpTestLab::with_echo()?;
    let client = scene.client(scene.ipv4())?;
    for (mtu, length) in [("1300", 1200), ("1500", 1400), ("2100", 2000), ("1500", 1400)] {
        run(scene.lab.receiver(), "ip", &["link", "set", "eth0", "mtu", mtu])?;
        run(scene.sender(), "ip", &["link", "set", "eth0", "mtu", mtu])?;
        ask_until_answered(&client, address, &vec![3; length])
            .map_err(|error| format!("{length} bytes at {mtu}: {error}, {:?}", running.total()))?;
    }
    // A request of 2000 bytes does not fit into a UMEM frame, so it arrives through the socket.
    let total = running.stop()?.total();
    assert!(total.frames >= 3 && total.received > total.frames, "{total:?}");
    Ok(())
}

pub(crate) fn other_xdp_program_stays_attached_and_mmsg_serves() -> XdpTestResult {
    let scene = XdpTestLab::new()?;
    let (first, second) = (SocketAddr::new(scene.ipv4(), PORT), SocketAddr::new(scene.ipv4(), PORT + 1));
    let running = scene.start(xdp_server(first, 2), |_| Echo)?;
    let before = scene.link()?;
    let other = scene.lab.receiver().run(|| xdp_server(second, 2).start(|_| Echo))??;
    assert!(other.xdp().is_none());
    let fallbacks = format!("{:?}", other.fallbacks());
    assert!(fallbacks.contains("runs another XDP program") && fallbacks.contains("mmsg"), "{fallbacks}");
    assert_eq!(scene.link()?, before);
    let client = scene.client(scene.ipv4())?;
    for address in [first, second] {
        assert_eq!(ask(&client, address, b"both serve")?.0, b"both serve");
    }
    assert_eq!(other.stop()?.total().frames, 0);
    assert_eq!(running.stop()?.total().frames, 1);
    Ok(())
}

/// Answers one request without any capability. Runs in a process of its own.
pub(crate) fn without_privilege() -> ExitCode {
    let serve = || -> XdpTestResult {
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        rustix::thread::set_capabilities(None, sets)?;
        let running = xdp_server("127.0.0.1:0".parse()?, 1).start(|_| Echo)?;
        let fallbacks = format!("{:?}", running.fallbacks());
        if running.xdp().is_some()
            || !fallbacks.contains("CAP_NET_RAW") && !fallbacks.contains("CONFIG_XDP_SOCKETS")
        {
            return Err(fallbacks.into());
        }
        let client = std::net::UdpSocket::bind("127.0.0.1:0")?;
        client.set_read_timeout(Some(crate::scene::PATIENCE))?;
        ask(&client, running.local_addr(), b"served all the same")?;
        Ok(())
    };
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn unprivileged_server_falls_back_to_mmsg() -> XdpTestResult {
    let output = Command::new(std::env::current_exe()?).args(["role", "without-privilege"]).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

pub(crate) fn unusable_interfaces_are_reported_as_fallbacks() -> XdpTestResult {
    let scene = XdpTestLab::new()?;
    let start = |bind: SocketAddr, interfaces: &[&str]| {
        let builder = xdp_server(bind, 1).xdp_interfaces(interfaces.iter().copied());
        scene.lab.receiver().run(|| builder.start(|_| Echo))
    };
    let address = SocketAddr::new(scene.ipv4(), PORT);
    for (bind, interfaces, reason) in [
        (address, ["nosuch0"].as_slice(), "no such interface"),
        (address, &["lo"], "loopback"),
        ("127.0.0.1:5300".parse()?, &[], "not loopback"),
    ] {
        let running = start(bind, interfaces)??;
        assert!(running.xdp().is_none());
        assert!(format!("{:?}", running.fallbacks()).contains(reason), "{:?}", running.fallbacks());
    }
    let running = start(address, &["nosuch0", "eth0"])??;
    assert_eq!((running.xdp().map(|xdp| xdp.interfaces.len()), running.fallbacks().len()), (Some(1), 1));
    Ok(())
}
