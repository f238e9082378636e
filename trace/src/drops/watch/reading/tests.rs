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
    DropsReading::observe(&host, &PortSubject::default(), &[])
}

#[test]
fn only_grown_counters_are_reported_and_32_bit_counters_wrap() {
    let (before, after) = (reading(10, u32::MAX), reading(13, 4));
    let evidence = after.since(&before, PortSubject::default(), PacketCounts::default());
    let counters: Vec<(&str, u64)> =
        evidence.grown.iter().map(|counter| (counter.name.as_str(), counter.packets)).collect();
    // /proc/net/softnet_stat counters are 32 bits wide.
    assert_eq!(counters, [("dropped", 5), ("Udp.RcvbufErrors", 3)]);
    assert_eq!(evidence.grown[1].read_from, SNMP);
    assert_eq!(evidence.unread, Vec::<String>::new());
}

#[test]
fn unreadable_counter_files_are_reported() {
    let empty = DropsReading::observe(&Host::scripted::<String, String>([]), &PortSubject::default(), &[]);
    let evidence = empty.since(&empty, PortSubject::default(), PacketCounts::default());
    assert!(evidence.unread.iter().any(|line| line.contains(SNMP)), "{:?}", evidence.unread);
    assert!(evidence.grown.is_empty());
}

#[test]
fn xdp_counter_names_map_to_their_use() {
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
        assert_eq!(xdp_use(name), kind, "{name}");
    }
}
