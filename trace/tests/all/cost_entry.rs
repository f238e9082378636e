//! Packets are counted once, where they enter the host, however many polls they pass.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use linerate_host::Host;
use linerate_lab::{Lab, LabHost};
use linerate_testkit::reflector::XdpService;
use linerate_testkit::skip;
use linerate_trace::TraceError;
use linerate_trace::cost::{COUNTING_POINT, CostReport, CostSession};
use quinn_udp::{Transmit, UdpSocketState};

use crate::{machine, skip_unless_permitted};

/// Largest relative difference between the counted packets and those sent or dropped.
const ALLOWED: f64 = 0.01;

/// Number of runs, because packets of other programs on this machine are counted, too.
const ATTEMPTS: usize = 4;

/// Least share of NET_RX time that is charged to paths. The rest are polls without packets, such as
/// those that only complete transmissions.
const CHARGED: f64 = 0.9;

const PACKETS: usize = 30_000;
const PORT: u16 = 9009;
const SEGMENT: usize = 100;
const SEGMENTS: usize = 10;

/// Two hosts of a lab with the network between them; the destination counts arrivals.
struct Path<'l> {
    from: &'l LabHost,
    to: &'l LabHost,
    address: Ipv4Addr,
}

fn shell(host: &LabHost, script: &str) -> Result<String, String> {
    let mut command = Command::new("sh");
    command.args(["-ec", script]);
    let output = host.run(move || command.output()).map_err(|error| error.to_string())?;
    let output = output.map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("{script}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Makes the destination count datagrams in `prerouting`, before its other hooks.
fn count_arrivals(to: &LabHost) -> Result<(), String> {
    let rule = format!(
        "nft 'table ip t {{ }}; delete table ip t; table ip t {{ counter arrived {{}}; chain c {{ type filter hook prerouting priority -400; \
         udp dport {PORT} counter name arrived; }}; }}'"
    );
    shell(to, &rule).map(drop)
}

fn arrivals(to: &LabHost) -> u64 {
    let text = shell(to, "nft list counter ip t arrived").expect("a counter");
    let mut words = text.split_whitespace().skip_while(|word| *word != "packets");
    words.nth(1).and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no count: {text}"))
}

/// Sends all packets at a rate without overflows, `in_one` datagrams per call.
fn send(path: &Path<'_>, in_one: usize) {
    let to = SocketAddr::from((path.address, PORT));
    // The socket is not read, but prevents ICMP errors.
    let _bound = path.to.run(|| {
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).map(|socket| {
            let state = UdpSocketState::new((&socket).into());
            (socket, state)
        })
    });
    let sender = path.from.run(|| UdpSocket::bind("0.0.0.0:0")).expect("the host").expect("a socket");
    let state = UdpSocketState::new((&sender).into()).expect("a socket");
    let contents = vec![0; SEGMENT * in_one];
    let transmit = Transmit {
        destination: to,
        ecn: None,
        contents: &contents,
        segment_size: (in_one > 1).then_some(SEGMENT),
        src_ip: None,
    };
    let begin = Instant::now();
    for sent in (0..PACKETS).step_by(in_one) {
        let due = begin + Duration::from_micros(20) * u32::try_from(sent).expect("few");
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        // The send buffer is full if the machine stops for a moment.
        while let Err(error) = state.send((&sender).into(), &transmit) {
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
            std::thread::yield_now();
        }
    }
}

/// The report for the time in which `work` runs.
fn observe(with_paths: bool, work: impl FnOnce()) -> Result<CostReport, TraceError> {
    let host = Host::live();
    let mut session = CostSession::start(&host, None, with_paths)?.exact();
    session.wait(Duration::from_millis(1), &|| false)?;
    work();
    session.finish(&host)
}

fn lab(test: &str, senders: usize) -> Option<Lab> {
    Lab::builder().senders(senders).queues(1).start().map_err(|why| skip(test, why)).ok()
}

fn is_exact(counted: u64, expected: usize) -> bool {
    (counted as f64 / expected as f64 - 1.0).abs() <= ALLOWED
}

/// Prepares the hosts of a lab, and returns the path between two of them.
type PreparePath = fn(&Lab) -> Result<Path<'_>, String>;

/// Each path with its number of senders and of datagrams per call.
const PATHS: [(&str, usize, usize, PreparePath); 7] = [
    // Without GRO a veth has no NAPI, and packets arrive through the backlog.
    ("received without GRO", 1, 1, |lab| direct_after(lab, "true", "ethtool -K eth0 gro off")),
    ("received with GRO", 1, 1, |lab| direct_after(lab, "true", "ethtool -K eth0 gro on")),
    ("steered by RPS", 1, 1, steered),
    ("bridged", 2, 1, bridged),
    ("routed", 2, 1, routed),
    // As one packet on the wire, then as segments that the sender's stack makes.
    ("GSO packet", 1, SEGMENTS, |lab| direct_after(lab, "ethtool -K eth0 tx-udp-segmentation on", "true")),
    ("GSO segments", 1, SEGMENTS, |lab| direct_after(lab, "ethtool -K eth0 tx-udp-segmentation off", "true")),
];

/// The path from the sender to the receiver.
fn direct(lab: &Lab) -> Path<'_> {
    Path { from: &lab.senders()[0], to: lab.receiver(), address: lab.links()[0].receiver.ipv4[0] }
}

/// The path from the sender to the receiver, after commands on both.
fn direct_after<'l>(lab: &'l Lab, on_sender: &str, on_receiver: &str) -> Result<Path<'l>, String> {
    let path = direct(lab);
    shell(path.from, on_sender)?;
    shell(path.to, on_receiver)?;
    Ok(path)
}

fn steered(lab: &Lab) -> Result<Path<'_>, String> {
    // Without TSO a veth also polls for single datagrams (`veth_skb_is_eligible_for_gro`,
    // drivers/net/veth.c, Linux 6.12).
    let path = direct_after(lab, "ethtool -K eth0 tso off", "ethtool -K eth0 tso off")?;
    let sys = path.to.sys_path().map_err(|error| error.to_string())?;
    fs::write(sys.join("class/net/eth0/queues/rx-0/rps_cpus"), "2").map_err(|error| error.to_string())?;
    Ok(path)
}

/// The path between the two senders of a lab, with the receiver as a bridge.
fn bridged(lab: &Lab) -> Result<Path<'_>, String> {
    let [from, to] = lab.senders() else { panic!("two senders") };
    shell(
        lab.receiver(),
        "ip link add br0 type bridge; ip link set eth0 master br0; ip link set eth1 master br0; \
         ip link set br0 up",
    )?;
    shell(from, "ip address add 192.0.2.1/24 dev eth0")?;
    shell(to, "ip address add 192.0.2.2/24 dev eth0")?;
    Ok(Path { from, to, address: Ipv4Addr::new(192, 0, 2, 2) })
}

/// The path between the two senders of a lab, with the receiver as a router.
fn routed(lab: &Lab) -> Result<Path<'_>, String> {
    let [from, to] = lab.senders() else { panic!("two senders") };
    let [near, far] = lab.links() else { panic!("two links") };
    let address = far.sender.ipv4[0];
    shell(lab.receiver(), "echo 1 >/proc/sys/net/ipv4/ip_forward")?;
    shell(from, &format!("ip route add {address} via {}", near.receiver.ipv4[0]))?;
    Ok(Path { from, to, address })
}

#[test]
fn a_packet_is_counted_once_on_every_path() {
    const NAME: &str = "a_packet_is_counted_once_on_every_path";
    let _machine = machine();
    let mut failures = Vec::new();
    for (name, senders, in_one, prepare) in PATHS {
        let Some(lab) = lab(NAME, senders) else { break };
        let path = prepare(&lab).and_then(|path| count_arrivals(path.to).map(|()| path));
        match path {
            Ok(path) => failures.extend(miscount(&format!("{NAME}: {name}"), &path, in_one)),
            Err(why) => skip(NAME, format!("{name}: {why}")),
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// The failure; `None` if each sent packet is counted once.
fn miscount(test: &str, path: &Path<'_>, in_one: usize) -> Option<String> {
    let mut counts = Vec::new();
    for _ in 0..ATTEMPTS {
        let before = arrivals(path.to);
        let cost = skip_unless_permitted(test, observe(false, || send(path, in_one)))?;
        let arrived = arrivals(path.to) - before;
        assert_eq!(cost.counting_point.value().map(String::as_str), Some(COUNTING_POINT));
        let all = cost.all_cpus();
        println!("{test}: {arrived} arrived, {} counted, {} polled", all.entered_packets, all.packets);
        // The filter counts each packet, unless packets have several segments or are merged.
        let is_complete = is_exact(all.entered_packets, PACKETS);
        if arrived == 0 || (is_complete && in_one == 1 && arrived as usize != PACKETS) {
            return Some(format!("{test}: {arrived} arrived"));
        }
        if is_complete {
            return None;
        }
        counts.push(all.entered_packets);
    }
    Some(format!("{test}: {counts:?} of {PACKETS} are counted"))
}

/// Nearly all NET_RX time has a path, and all packets of the bridge have the same one.
#[test]
fn a_bridged_packet_is_charged_to_its_path() {
    const NAME: &str = "a_bridged_packet_is_charged_to_its_path";
    let _machine = machine();
    let Some(lab) = lab(NAME, 2) else { return };
    let Ok(path) = bridged(&lab).map_err(|why| skip(NAME, why)) else { return };
    for attempt in 1..=ATTEMPTS {
        let Some(cost) = skip_unless_permitted(NAME, observe(true, || send(&path, 1))) else { return };
        let paths = cost.paths.as_deref().expect("paths");
        let through = paths.iter().max_by_key(|path| path.packets).expect("a path");
        // The interfaces have no names on this host, because they are in the lab's network
        // namespaces.
        assert!(through.egress.is_some(), "{paths:#?}");
        // The other end of the veth pair processes the same packets further, without counting them.
        assert!(paths.iter().any(|path| path.packets == 0 && path.egress.is_none()), "{paths:#?}");
        let charged_ns = paths.iter().map(|path| path.taken_ns + path.own_ns).sum::<u64>() as f64;
        let share = charged_ns / cost.all_cpus().net_rx_ns as f64;
        println!("{NAME}: {} of {PACKETS} packets, {share:.3} of NET_RX", through.packets);
        if is_exact(through.packets, PACKETS) && (CHARGED..=1.01).contains(&share) {
            return;
        }
        assert!(attempt < ATTEMPTS, "{paths:#?}");
    }
}

#[test]
fn a_frame_dropped_by_xdp_is_counted_once() {
    const NAME: &str = "a_frame_dropped_by_xdp_is_counted_once";
    let _machine = machine();
    let Some(lab) = lab(NAME, 1) else { return };
    let interface = lab.links()[0].receiver.interface.clone();
    let attach = || XdpService::sink().shortest_payload(1).attach(&interface);
    let sink = lab.receiver().run(attach).expect("the host");
    let Ok(sink) = sink.map_err(|why| skip(NAME, why)) else { return };
    let path = direct(&lab);
    for attempt in 1..=ATTEMPTS {
        let before = sink.account().expect("its account").received;
        let Some(cost) = skip_unless_permitted(NAME, observe(false, || send(&path, 1))) else { return };
        let drops = sink.account().expect("its account").received - before;
        let packets = cost.all_cpus().entered_packets;
        println!("{NAME}: {drops} dropped, {packets} counted");
        assert!(drops as usize >= PACKETS * 9 / 10, "{drops}");
        if is_exact(packets, drops as usize) {
            return;
        }
        assert!(attempt < ATTEMPTS, "{packets} of {drops} are counted");
    }
}
