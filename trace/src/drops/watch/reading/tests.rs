use super::*;

const SNMP: &str = "/proc/net/snmp";

fn softnet(dropped: u32) -> String {
    format!(
        "00000010 {dropped:08x} 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
             00000003 00000000\n"
    )
}

fn reading(rcvbuf: u64, dropped: u32) -> DropsReading {
    let snmp = format!("Udp: InDatagrams NoPorts InErrors RcvbufErrors\nUdp: 5 0 {rcvbuf} {rcvbuf}\n");
    let host = Host::scripted([
        (SNMP.to_owned(), snmp),
        ("/proc/net/netstat".to_owned(), "TcpExt: IPReversePathFilter\nTcpExt: 7\n".to_owned()),
        ("/proc/net/softnet_stat".to_owned(), softnet(dropped)),
    ]);
    DropsReading::of(&host, &PortSubject::default(), &[])
}

#[test]
fn what_grew_is_told_and_what_did_not_is_not() {
    let (before, after) = (reading(10, u32::MAX), reading(13, 4));
    let evidence = after.since(&before, PortSubject::default(), PacketCounts::default());
    let grown: Vec<(&str, u64)> =
        evidence.grown.iter().map(|grown| (grown.name.as_str(), grown.packets)).collect();
    // /proc/net/softnet_stat counters are 32 bits wide.
    assert_eq!(grown, [("dropped", 5), ("Udp.RcvbufErrors", 3)]);
    assert_eq!(evidence.grown[1].read_from, SNMP);
    assert_eq!(evidence.unread, Vec::<String>::new());
}

#[test]
fn what_cannot_be_read_is_told() {
    let nothing = DropsReading::of(&Host::scripted::<String, String>([]), &PortSubject::default(), &[]);
    let evidence = nothing.since(&nothing, PortSubject::default(), PacketCounts::default());
    assert!(evidence.unread.iter().any(|line| line.contains(SNMP)), "{:?}", evidence.unread);
    assert!(evidence.grown.is_empty());
}

#[test]
fn counters_of_xdp_are_known_by_their_names() {
    for (name, kind) in [
        ("rx_queue_0_xdp_drops", Some(CounterUse::XdpDropped)),
        ("rx_xdp_drop", Some(CounterUse::XdpDropped)),
        ("rx_xdp_drop[3]", Some(CounterUse::XdpDropped)),
        ("rx_queue_1_xdp_redirect", Some(CounterUse::XdpTaken)),
        ("rx_queue_1_xdp_tx", Some(CounterUse::XdpTaken)),
        ("rx_queue_1_xdp_tx_errors", Some(CounterUse::XdpFailed)),
        ("rx_queue_1_xdp_packets", None),
        ("tx_queue_0_xdp_xmit", None),
        ("rx_queue_0_drops", None),
    ] {
        assert_eq!(of_xdp(name), kind, "{name}");
    }
}
