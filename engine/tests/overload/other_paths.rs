//! The guard on other paths of requests: IPv6, a wildcard address, a device without native XDP,
//! several workers.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use etherparse::{PacketBuilder, VlanId};
use linerate_engine::{Action, Echo, Request, RunningServer, Server, Service, XdpMode};
use linerate_lab::Lab;

use crate::guard::{FIRST, FOREVER, counts, guarded, lab, serve_at};
use crate::packets::packet_socket;
use crate::support::{EngineTestResult, PATIENCE, ask, client, skip};
use crate::{PausedServer, ServiceHold, until};

/// Blocks the worker with one request, then sends more requests than the guard admits. The guard
/// must refuse the rest. The first request counts among the admitted requests, although the worker
/// has taken it.
pub(crate) fn check_excess_is_refused(
    running: &RunningServer,
    hold: &ServiceHold,
    client: &UdpSocket,
    to: SocketAddr,
) -> EngineTestResult {
    client.send_to(b"first", to)?;
    hold.until_held()?;
    for _ in 0..100 {
        client.send_to(b"more", to)?;
    }
    until("all requests are counted", || counts(running).admitted + counts(running).refused == 101)?;
    assert_eq!(counts(running).admitted, u64::from(FIRST), "{:?}", counts(running));
    Ok(())
}

/// After the worker is released, all admitted requests and a new request are answered.
fn check_admitted_requests_are_answered(client: &UdpSocket, to: SocketAddr) -> EngineTestResult {
    for _ in 0..FIRST {
        client.recv(&mut [0; 16])?;
    }
    assert_eq!(ask(client, to, b"fresh")?.0, b"fresh");
    Ok(())
}

/// Runs both checks against a server that is bound to `bind`, with requests to `to`.
fn check_guard(lab: &Lab, bind: SocketAddr, to: SocketAddr) -> EngineTestResult {
    let (hold, service) = PausedServer::new();
    let running = serve_at(lab, bind, 1, &guarded(FOREVER), service)?;
    let to = SocketAddr::new(to.ip(), running.local_addr().port());
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let client = lab.senders()[0].run(|| client(any))??;
    check_excess_is_refused(&running, &hold, &client, to)?;
    drop(hold.release);
    check_admitted_requests_are_answered(&client, to)
}

#[test]
fn guard_limits_ipv6_requests() -> EngineTestResult {
    let test = "guard_limits_ipv6_requests";
    let Some(lab) = lab(test, 1) else { return Ok(()) };
    if let Some(why) = lab.no_ipv6() {
        skip(test, why);
        return Ok(());
    }
    let address = SocketAddr::from((lab.links()[0].receiver.ipv6[0], 0));
    check_guard(&lab, address, address)
}

#[test]
fn guard_limits_all_addresses_of_a_wildcard_bind() -> EngineTestResult {
    let test = "guard_limits_all_addresses_of_a_wildcard_bind";
    let Some(lab) = lab(test, 1) else { return Ok(()) };
    let end = &lab.links()[0].receiver;
    let v4 = SocketAddr::from((end.ipv4[0], 0));
    check_guard(&lab, (Ipv4Addr::UNSPECIFIED, 0).into(), v4)?;
    if let Some(v6) = end.ipv6.first() {
        let any = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0));
        // IPv4 requests to a dual-stack socket.
        check_guard(&lab, any, v4)?;
        check_guard(&lab, any, (*v6, 0).into())?;
    }
    Ok(())
}

#[test]
fn guard_counts_requests_with_vlan_tags_in_the_frame() -> EngineTestResult {
    let Some(lab) = lab("guard_counts_requests_with_vlan_tags_in_the_frame", 1) else { return Ok(()) };
    let (sender, receiver) = (&lab.links()[0].sender, &lab.links()[0].receiver);
    let running = serve_at(&lab, (Ipv4Addr::UNSPECIFIED, 0).into(), 1, &guarded(FOREVER), Echo)?;
    let wire = lab.senders()[0].run(|| packet_socket(sender.index, PATIENCE))??;
    let (from, to) = (sender.ipv4[0].octets(), receiver.ipv4[0].octets());
    let (inner, outer) = (VlanId::try_new(42)?, VlanId::try_new(7)?);
    let ethernet = || PacketBuilder::ethernet2(sender.mac, receiver.mac);
    let untagged = ethernet().ipv4(from, to, 9);
    let tagged = ethernet().single_vlan(inner).ipv4(from, to, 9);
    let twice_tagged = ethernet().double_vlan(outer, inner).ipv4(from, to, 9);
    for (admitted, packet) in (1..).zip([untagged, tagged, twice_tagged]) {
        let mut frame = Vec::new();
        packet.udp(4321, running.local_addr().port()).write(&mut frame, b"request")?;
        wire.send(&frame)?;
        until(&format!("{admitted} requests are counted"), || counts(&running).admitted == admitted)?;
    }
    Ok(())
}

/// Not a test: the process that `wildcard_guard_attaches_to_a_tunnel_and_not_to_a_macvlan` starts in
/// the receiver, whose /sys it sees.
#[test]
#[ignore = "requires the interfaces of another test"]
fn check_guarded_interfaces() -> EngineTestResult {
    let builder = Server::builder().bind("0.0.0.0:0".parse()?).workers(1).overload(guarded(FOREVER));
    let running = builder.start(|_| Echo)?;
    assert_eq!(running.fallbacks(), []);
    let report = running.guard().ok_or("no guard")?;
    let names: Vec<&str> = report.interfaces.iter().map(|interface| interface.name.as_str()).collect();
    assert_eq!(names.join(" "), std::env::var("LINERATE_TEST_INTERFACES")?);
    Ok(())
}

#[test]
fn wildcard_guard_attaches_to_a_tunnel_and_not_to_a_macvlan() -> EngineTestResult {
    let test = "wildcard_guard_attaches_to_a_tunnel_and_not_to_a_macvlan";
    let Some(lab) = lab(test, 1) else { return Ok(()) };
    let ip = |words: &str| lab.receiver().run(|| Command::new("ip").args(words.split(' ')).output());
    // The name is the first by letters, but the program of eth0 has to be attached first.
    for (link, expected) in [
        ("link add a0 link eth0 type macvlan", "eth0"),
        ("link add a0 type vxlan id 5 dev eth0 dstport 4789", "eth0 a0"),
    ] {
        for words in [link, "address add 10.99.0.1/24 dev a0", "link set a0 up"] {
            let output = ip(words)??;
            if !output.status.success() {
                skip(test, format!("ip {words}: {}", String::from_utf8_lossy(&output.stderr)));
                return Ok(());
            }
        }
        let output = tempfile::NamedTempFile::new()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", "other_paths::check_guarded_interfaces", "--ignored", "--nocapture"]);
        command.env("LINERATE_TEST_INTERFACES", expected).stdout(output.reopen()?);
        assert!(lab.receiver().spawn(command)?.wait()?.success(), "{link}");
        assert!(
            std::fs::read_to_string(output.path())?.contains("1 passed"),
            "{link}: the check did not run"
        );
        assert!(ip("link delete a0")??.status.success());
    }
    Ok(())
}

#[test]
fn guard_uses_generic_xdp_on_a_device_without_native_xdp() -> EngineTestResult {
    let test = "guard_uses_generic_xdp_on_a_device_without_native_xdp";
    let Some(lab) = lab(test, 1) else { return Ok(()) };
    let mut overload = guarded(FOREVER);
    overload.guard.iter_mut().for_each(|guard| guard.interfaces = vec!["lo".to_owned()]);
    let (hold, service) = PausedServer::new();
    let running = serve_at(&lab, "127.0.0.1:0".parse()?, 1, &overload, service)?;
    let report = running.guard().ok_or("no guard")?;
    assert_eq!((report.interfaces.len(), report.interfaces[0].mode), (1, XdpMode::Generic), "{report:?}");
    let client = lab.receiver().run(|| client("127.0.0.1:0"))??;
    let result = check_excess_is_refused(&running, &hold, &client, running.local_addr());
    drop(hold.release);
    result?;
    check_admitted_requests_are_answered(&client, running.local_addr())
}

/// Returns a client whose requests reach worker 0 and a client whose requests reach worker 1.
/// Neither worker may be blocked.
fn client_per_worker(
    lab: &Lab,
    running: &RunningServer,
) -> Result<[UdpSocket; 2], Box<dyn std::error::Error>> {
    let mut clients = [None, None];
    for _ in 0..100 {
        let client = lab.senders()[0].run(|| client("0.0.0.0:0"))??;
        let (before, total) = (running.counters()[0].received, running.total().received);
        ask(&client, running.local_addr(), b"whose")?;
        until("the request is counted", || running.total().received > total)?;
        let worker = usize::from(running.counters()[0].received == before);
        clients[worker].get_or_insert(client);
        if let [Some(_), Some(_)] = &clients {
            break;
        }
    }
    let [Some(first), Some(second)] = clients else { return Err("all clients reached one worker".into()) };
    Ok([first, second])
}

/// Blocks on the request `hold` and echoes all other requests.
#[derive(Clone)]
struct PartlyHeldService(PausedServer);

impl Service for PartlyHeldService {
    fn answer(&mut self, request: &Request<'_>, reply: &mut [u8]) -> Action {
        if request.payload() == b"hold" { self.0.answer(request, reply) } else { Action::Echo }
    }
}

#[test]
fn stuck_worker_does_not_block_requests_of_other_workers() -> EngineTestResult {
    let test = "stuck_worker_does_not_block_requests_of_other_workers";
    let Some(lab) = lab(test, 1) else { return Ok(()) };
    let (hold, service) = PausedServer::new();
    let bind = (lab.links()[0].receiver.ipv4[0], 0).into();
    let overload = guarded(Duration::from_millis(50));
    let running = serve_at(&lab, bind, 2, &overload, PartlyHeldService(service))?;
    let to = running.local_addr();
    assert_eq!(running.guard().ok_or("no guard")?.outstanding, 2 * FIRST);
    let [stuck, free] = client_per_worker(&lab, &running)?;
    stuck.send_to(b"hold", to)?;
    hold.until_held()?;
    // 4 requests, a small part of the 128 that may wait.
    let flood = || (0..4).all(|_| stuck.send_to(b"more", to).is_ok());
    until("waiting requests reach the limit", || flood() && counts(&running).refused > 0)?;
    // The guard opens after 50 ms in which no worker took a request, and passes requests of the
    // other client. By then the first worker counts as stuck (20 ms), so its waiting requests no
    // longer limit the other worker.
    free.set_read_timeout(Some(Duration::from_millis(20)))?;
    until("the other worker answers again", || flood() && ask(&free, to, b"mine").is_ok())?;
    free.set_read_timeout(Some(PATIENCE))?;
    drain(&free)?;
    free.set_read_timeout(Some(Duration::from_millis(500)))?;
    let mut answered = 0;
    for turn in 0..100u8 {
        flood();
        answered += usize::from(ask(&free, to, &[turn]).is_ok());
    }
    assert!(answered >= 80, "{answered} {:?}", counts(&running));
    drop(hold.release);
    Ok(())
}

/// Discards replies to earlier requests.
fn drain(client: &UdpSocket) -> EngineTestResult {
    client.set_nonblocking(true)?;
    while client.recv(&mut [0; 16]).is_ok() {}
    client.set_nonblocking(false)?;
    Ok(())
}
