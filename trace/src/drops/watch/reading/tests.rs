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

fn device_reading(statistics: &str) -> DropsReading {
    let host = Host::scripted([
        ("/sys/class/net/eth0/device/features", "0"),
        ("/sys/class/net/eth0/statistics/tx_dropped", "5"),
        ("/calls/ethtool/eth0/driver.json", r#"{ "name": "virtio_net", "bus": "0000:00:03.0" }"#),
        ("/calls/ethtool/eth0/statistics.json", statistics),
    ]);
    DropsReading::observe(&host, &PortSubject::default(), &[])
}

#[test]
fn device_counters_that_go_back_or_vanish_are_noted_and_keep_the_checks() {
    let before = device_reading(
        r#"{ "rx_queue_0_drops": 20, "rx_queue_0_xdp_drops": 8, "rx_queue_1_xdp_drops": 1, "rx_packets": 7 }"#,
    );
    let after = device_reading(r#"{ "rx_queue_0_drops": 15, "rx_queue_0_xdp_drops": 9, "rx_packets": 3 }"#);
    let evidence = after.since(&before, PortSubject::default(), PacketCounts::default());
    let note = "counters of eth0 went back or vanished (rx_queue_*_drops and 1 more): losses after that are not known";
    assert_eq!(evidence.resets, [note]);
    let unread = |evidence: &PacketEvidence| evidence.unread.clone();
    let same = before.since(&before, PortSubject::default(), PacketCounts::default());
    assert_eq!((same.resets.len(), unread(&same)), (0, unread(&evidence)));
    assert_eq!(evidence.clone().joined(&evidence).resets, [note]);
    let accounting = crate::drops::ledger::PacketAccounting::make(&evidence);
    assert!(accounting.notes.iter().any(|line| line == note), "{:?}", accounting.notes);
}

#[test]
fn xdp_counters_per_queue_are_left_out_next_to_their_total() {
    for (statistics, names) in [
        (
            r#"{ "rx_xdp_drops": 9, "rx0_xdp_drops": 4, "rx1_xdp_drops": 5, "rx0_xdp_tx": 1 }"#,
            &["rx0_xdp_tx", "rx_xdp_drops"][..],
        ),
        (r#"{ "rx0_xdp_drops": 4, "rx1_xdp_drops": 5 }"#, &["rx0_xdp_drops", "rx1_xdp_drops"]),
    ] {
        let counters = device_reading(statistics).counters;
        let counters = counters.iter().filter(|((_, name), _)| name.contains("xdp"));
        assert_eq!(counters.map(|((_, name), _)| name.as_str()).collect::<Vec<_>>(), names);
    }
}

#[test]
fn new_sockets_count_from_zero_and_keep_their_count_with_other_owners() {
    let drops = |sockets: &[(&str, u64)]| {
        let mut drops = DropsReading::default();
        drops.waiting.sockets_bytes = Some(0);
        for (place, value) in sockets {
            drops.put(place, "drops", CounterUse::Other, *value, "sock_diag");
        }
        drops.drops()
    };
    let old = "udp 0.0.0.0:53 (named) ino 81";
    let mut before = drops(&[(old, 5)]);
    for (socket, value, grown) in [
        (old, 5, None),
        (old, 7, Some(2)),
        ("udp 0.0.0.0:53 (named, worker) ino 81", 7, Some(2)),
        ("udp 0.0.0.0:53 (named) ino 812", 7, Some(7)),
    ] {
        let growth = drops(&[(socket, value)]).since(&before);
        assert_eq!(growth.first().map(|counter| counter.packets), grown, "{socket}");
    }
    before.0.waiting.sockets_bytes = None;
    assert_eq!(drops(&[("udp 0.0.0.0:53 (named) ino 812", 7)]).since(&before), [], "all are unknown");
}
