//! Findings of the rules, and hosts without findings.

use std::collections::BTreeMap;

use super::*;
use crate::Scope;
use crate::finding::Rule;
use crate::stage::irq::sample::vectors;
use crate::stage::machine::NumaNode;
use crate::stage::rss::sample::{driver, rps};
use crate::stage::socket::{ServiceSockets, SocketOptions, SocketProtocol, sample};
use crate::stage::{HostView, PacketPath};
use crate::{CpuSet, Host, Severity};

/// A host with only these CPUs and one interface that is up.
fn path(cpus: u32, queues: u32, channels: Option<ChannelCounts>) -> PacketPath {
    let empty = Host::scripted::<String, String>([]);
    let scope = Scope { interfaces: vec!["eth0".into()], ..Scope::default() };
    let mut path = PacketPath::observe(&empty, &scope);
    path.uptime_seconds = Known::Value(100.0);
    path.machine.online = Known::Value((0..cpus).collect());
    path.machine.cores = Known::Value((0..cpus).map(|cpu| CpuSet::from_iter([cpu])).collect());
    path.machine.kernel = Known::Value("6.12.0".into());
    let link = &mut path.link[0];
    link.up = Known::Value(true);
    link.device = Known::Value(DeviceKind::Hardware);
    link.receive_queues = Known::Value(queues);
    link.channels = Known::Value(channels);
    link.bridge = Known::Value(None);
    path.softirq.rps = rps((0..queues).map(|_| CpuSet::default()));
    path
}

fn combined(now: u32, max: u32) -> Option<ChannelCounts> {
    Some(ChannelCounts { combined: now, combined_max: max, ..ChannelCounts::default() })
}

fn counts(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// Adds received packets, and statistics of this driver.
fn with_counters(mut path: PacketPath, name: &str, received: u64, statistics: &[(&str, u64)]) -> PacketPath {
    path.link[0].driver = driver(name);
    path.link[0].statistics = Known::Value(Some(counts(statistics)));
    path.link[0].totals = Known::Value(counts(&[("rx_packets", received), ("rx_missed_errors", 0)]));
    path
}

/// The same host ten seconds later, with these counts.
fn later(before: &PacketPath, received: u64, statistics: &[(&str, u64)]) -> PacketPath {
    let Known::Value(Some(driver)) = &before.link[0].driver else { unreachable!("the driver is set") };
    let mut path = with_counters(before.clone(), &driver.name.clone(), received, statistics);
    path.uptime_seconds = Known::Value(110.0);
    path
}

fn service(protocol: SocketProtocol, named: bool, gro: Known<bool>) -> ServiceSockets {
    let mut service = ServiceSockets { protocol, named, ..sample::service(1) };
    service.sockets[0].options = gro.map(|gro| Some(SocketOptions { gro, ..SocketOptions::default() }));
    service
}

/// Severity and commands of the only finding of a rule.
fn only_finding(rule: &Rule, view: &HostView<'_>) -> (Severity, Vec<String>) {
    let mut findings = rule.findings(view);
    assert_eq!(findings.len(), 1, "{findings:?}");
    let finding = findings.remove(0);
    assert!(!finding.evidence.is_empty());
    (finding.severity, finding.commands)
}

#[test]
fn few_queues_have_a_remedy_if_the_device_offers_more() {
    let rx_tx = Some(ChannelCounts { rx: 2, tx: 2, rx_max: 8, tx_max: 8, ..ChannelCounts::default() });
    let (single, below) = (queues::SINGLE, queues::BELOW_CPUS);
    for (rule, cpus, queues, channels, severity, command) in [
        (&single, 8, 1, combined(1, 16), Severity::Medium, Some("ethtool -L eth0 combined 8")),
        (&single, 2, 1, combined(1, 1), Severity::Note, None),
        (&below, 20, 4, combined(4, 8), Severity::Low, Some("ethtool -L eth0 combined 8")),
        (&below, 4, 2, rx_tx, Severity::Low, Some("ethtool -L eth0 rx 4 tx 4")),
        (&below, 20, 8, combined(8, 8), Severity::Note, None),
    ] {
        let found = only_finding(rule, &HostView::once(&path(cpus, queues, channels)));
        assert_eq!(found, (severity, command.map(str::to_owned).into_iter().collect()), "{cpus} {queues}");
    }
    let mut named = path(8, 1, combined(1, 16));
    named.socket.services = Known::Value(vec![service(SocketProtocol::Udp, true, Known::Value(false))]);
    assert_eq!(only_finding(&single, &HostView::once(&named)).0, Severity::High);
    assert!(below.once(&named).is_empty(), "reported by the other rule");
}

#[test]
fn a_busy_fixed_single_queue_is_medium_unless_rps_is_set() {
    let before = with_counters(path(8, 1, None), "e1000e", 0, &[]);
    let now = later(&before, 600_000, &[]);
    assert_eq!(only_finding(&queues::SINGLE, &HostView::twice(&before, &now)).0, Severity::Medium);
    let mut with_rps = now.clone();
    with_rps.softirq.rps = rps([CpuSet::from_iter([1, 2, 3])]);
    assert!(queues::SINGLE.twice(&before, &with_rps).is_empty());
    let mut unknown = now.clone();
    unknown.softirq.rps[0].queues = Known::unknown("no privilege");
    assert!(queues::SINGLE.twice(&before, &unknown).is_empty());
    let mut unknown = now;
    unknown.link[0].channels = Known::unknown("no privilege");
    assert!(queues::SINGLE.twice(&before, &unknown).is_empty());
}

#[test]
fn a_single_queue_is_fine_for_one_cpu_virtual_or_down_interfaces() {
    assert!(queues::SINGLE.once(&path(1, 1, combined(1, 8))).is_empty());
    // Like igb with virtual functions: all channels that it offers are in use.
    assert!(queues::SINGLE.once(&path(8, 1, combined(2, 2))).is_empty());
    let mut veth = path(8, 1, combined(1, 8));
    veth.link[0].device = Known::Value(DeviceKind::Software);
    assert!(queues::SINGLE.once(&veth).is_empty());
    let mut down = path(8, 1, combined(1, 8));
    down.link[0].up = Known::Value(false);
    assert!(queues::SINGLE.once(&down).is_empty());
    let by_vf = |packets| {
        let netvsc = path(8, 1, combined(1, 64));
        with_counters(netvsc, "hv_netvsc", 1_000, &[("vf_rx_packets", packets)])
    };
    assert_eq!(queues::SINGLE.once(&by_vf(10)).len(), 1);
    assert!(queues::SINGLE.once(&by_vf(990)).is_empty(), "packets come by the virtual function");
}

#[test]
fn one_queue_per_core_or_rps_is_enough() {
    let mut path = path(16, 8, combined(8, 32));
    path.machine.cores = Known::Value((0..8).map(|core| CpuSet::from_iter([core, core + 8])).collect());
    assert!(queues::BELOW_CPUS.once(&path).is_empty());
    let mut isolated = self::path(16, 4, combined(4, 16));
    isolated.irq.isolated = Known::Value(Some((4..16).collect()));
    assert!(queues::BELOW_CPUS.once(&isolated).is_empty(), "packets would go to isolated CPUs");
    let mut with_rps = self::path(20, 8, combined(8, 8));
    with_rps.softirq.rps = rps((0..8).map(|_| CpuSet::from_iter([8, 9])));
    assert!(queues::BELOW_CPUS.once(&with_rps).is_empty());
}

#[test]
fn a_few_lost_packets_are_a_note_whatever_their_share() {
    let before = with_counters(path(24, 11, None), "sfc", 500, &[("rx_nodesc_drop_cnt", 1)]);
    for (lost, severity) in [(9, Severity::Note), (10, Severity::High)] {
        let now = later(&before, 1_000, &[("rx_nodesc_drop_cnt", 1 + lost)]);
        let view = HostView::twice(&before, &now);
        assert_eq!(only_finding(&loss_rules::HARDWARE_DROPS, &view).0, severity, "{lost}");
    }
    let once = only_finding(&loss_rules::HARDWARE_DROPS, &HostView::once(&before));
    assert_eq!(once.0, Severity::Note);
    for (lost, severity) in [(9, Severity::Note), (10, Severity::Low)] {
        let mut before = with_counters(path(24, 11, None), "sfc", 10_000, &[("rx_nodesc_drop_cnt", lost)]);
        before.link[0].rings =
            Known::Value(Some(RingLengths { rx: 512, tx: 512, rx_max: 4096, tx_max: 4096 }));
        let now = later(&before, 20_000, &[("rx_nodesc_drop_cnt", lost)]);
        let view = HostView::twice(&before, &now);
        let found = only_finding(&loss_rules::HARDWARE_DROPS, &view);
        assert_eq!(found.0, severity, "{lost} since boot, and none between two readings");
        assert_eq!(
            loss_rules::RING_SMALL.twice(&before, &now).is_empty(),
            severity == Severity::Note,
            "{lost}"
        );
    }
}

#[test]
fn a_counter_unknown_in_the_first_reading_counts_since_boot() {
    let mut before = with_counters(path(24, 11, None), "sfc", 1_000_000, &[]);
    before.link[0].statistics = Known::unknown("no privilege");
    let now = later(&before, 4_552_000, &[("rx_nodesc_drop_cnt", 4_513_005)]);
    let found = only_finding(&loss_rules::HARDWARE_DROPS, &HostView::twice(&before, &now));
    assert_eq!(found.0, Severity::Low);
}

#[test]
fn packets_that_xdp_drops_on_virtio_are_no_losses_of_the_driver() {
    for prefix in ["rx", "rx0", "rx_queue_0"] {
        let statistics = |drops: u64, xdp_drops: u64| {
            let names = [format!("{prefix}_drops"), format!("{prefix}_xdp_drops")];
            let before =
                with_counters(path(4, 1, None), "virtio_net", 1000, &[(&names[0], 7), (&names[1], 7)]);
            let now = later(&before, 500_000, &[(&names[0], 7 + drops), (&names[1], 7 + xdp_drops)]);
            (before, now)
        };
        let (before, now) = statistics(400_000, 400_000);
        assert!(loss_rules::HARDWARE_DROPS.twice(&before, &now).is_empty(), "{prefix}");
        let (before, now) = statistics(400_000, 300_000);
        let matches = loss_rules::HARDWARE_DROPS.twice(&before, &now);
        assert!(matches[0].title.contains("10,000 packets/s"), "{prefix}: {matches:?}");
    }
}

#[test]
fn hardware_drops_since_boot_are_low_severity() {
    let statistics = [("rx_queue_0_drops", 40), ("rx_queue_11_drops", 60), ("rx_queue_all_drops", 9)];
    let path = with_counters(path(4, 4, None), "igb", 1_000_000, &statistics);
    let title = "eth0 loses 100 packets since boot, 1.0e-2 % of what arrived: no descriptor was free in the ring \
                 (rx_queue_*_drops)";
    assert_eq!(loss_rules::HARDWARE_DROPS.once(&path)[0].summary(), (Severity::Low, title));
}

#[test]
fn few_hardware_drops_in_billions_of_packets_are_not_reported() {
    let path = with_counters(path(4, 4, None), "igb", 10_000_000_000, &[("rx_missed_errors", 12)]);
    assert!(loss_rules::HARDWARE_DROPS.once(&path).is_empty());
    let unknown = PacketPath::scripted::<String, String>([]);
    assert!(loss_rules::HARDWARE_DROPS.once(&unknown).is_empty());
}

#[test]
fn drops_of_unknown_drivers_come_from_kernel_counters() {
    let mut path = with_counters(path(4, 4, None), "fancynic", 900_000, &[("drops_of_ours", 7)]);
    path.link[0].totals = Known::Value(counts(&[("rx_packets", 900_000), ("rx_missed_errors", 100_000)]));
    let matches = loss_rules::HARDWARE_DROPS.once(&path);
    assert_eq!(matches[0].severity, Severity::Medium);
    assert!(matches[0].title.contains("(rx_missed_errors)"), "{matches:?}");
}

#[test]
fn receive_rings_that_overflow_at_peaks_can_be_lengthened() {
    let mut before = with_counters(path(4, 4, None), "mlx5_core", 0, &[("rx_out_of_buffer", 0)]);
    before.link[0].rings = Known::Value(Some(RingLengths { rx: 1024, tx: 1024, rx_max: 8192, tx_max: 8192 }));
    let now = later(&before, 10_000_000, &[("rx_out_of_buffer", 2_000)]);
    let found = only_finding(&loss_rules::RING_SMALL, &HostView::twice(&before, &now));
    assert_eq!(found, (Severity::Medium, vec!["ethtool -G eth0 rx 4096 tx 1024".to_owned()]));
    assert!(loss_rules::RING_SMALL.once(&before).is_empty(), "short rings that lose nothing are fine");
    let mut longest = now;
    longest.link[0].rings =
        Known::Value(Some(RingLengths { rx: 8192, tx: 1024, rx_max: 8192, tx_max: 8192 }));
    assert!(loss_rules::RING_SMALL.twice(&before, &longest).is_empty());
}

#[test]
fn ena_allowance_exceeded_counters_are_reported_as_a_cloud_limit() {
    let before = with_counters(path(4, 4, None), "ena", 0, &[("pps_allowance_exceeded", 3)]);
    let now = later(&before, 1_000_000, &[("pps_allowance_exceeded", 50_003)]);
    let view = HostView::twice(&before, &now);
    assert_eq!(only_finding(&loss_rules::ALLOWANCE_EXCEEDED, &view).0, Severity::High);
    assert!(loss_rules::HARDWARE_DROPS.twice(&before, &now).is_empty(), "a cloud limit is no hardware drop");
    assert!(loss_rules::ALLOWANCE_EXCEEDED.twice(&now, &later(&now, 2_000_000, &[])).is_empty());
}

/// `other` are packets that are not UDP, before GRO merges them to a few.
fn with_gro(udp: u64, other: u64, services: Vec<ServiceSockets>) -> PacketPath {
    let mut path = path(4, 4, None);
    path.link[0].features = Known::Value(BTreeMap::from([("generic-receive-offload".to_owned(), true)]));
    path.route.snmp = Known::Value(counts(&[
        ("Udp.InDatagrams", udp),
        ("Tcp.InSegs", other / 40),
        ("Ip.ForwDatagrams", 0),
    ]));
    path.route.netstat = Known::Value(counts(&[("IpExt.InNoECTPkts", udp), ("IpExt.InECT0Pkts", other)]));
    path.socket.services = Known::Value(services);
    path
}

#[test]
fn gro_is_reported_on_udp_only_hosts_except_for_bridge_ports() {
    let plain = || service(SocketProtocol::Udp, false, Known::Value(false));
    let mut path = with_gro(10_000_000, 5_000, vec![plain()]);
    assert_eq!(only_finding(&gro::RULE, &HostView::once(&path)).0, Severity::Low);
    path.link[0].bridge = Known::Value(Some(BridgePort::default()));
    assert!(gro::RULE.once(&path).is_empty(), "bridged packets gain from GRO");
}

#[test]
fn gro_stays_on_for_tcp_low_traffic_udp_gro_sockets_and_routers() {
    let plain = || service(SocketProtocol::Udp, false, Known::Value(false));
    for (udp, other, services) in [
        (10_000_000, 9_000_000, vec![plain()]),
        (9_000, 10, vec![plain()]),
        (10_000_000, 10, vec![]),
        (10_000_000, 10, vec![service(SocketProtocol::Tcp, false, Known::Value(false))]),
        (10_000_000, 10, vec![service(SocketProtocol::Udp, false, Known::Value(true))]),
        (10_000_000, 10, vec![service(SocketProtocol::Udp, true, Known::unknown("no privilege")), plain()]),
        (10, 1_000, vec![service(SocketProtocol::Udp, true, Known::Value(false))]),
    ] {
        assert!(gro::RULE.once(&with_gro(udp, other, services)).is_empty(), "{udp} {other}");
    }
    let mut router = with_gro(10_000_000, 10, vec![plain()]);
    router.route.snmp.expect_mut().insert("Ip.ForwDatagrams".into(), 5_000_000);
    assert!(gro::RULE.once(&router).is_empty());
}

#[test]
fn gro_follows_datagrams_and_forwarded_packets_of_both_families() {
    let mut path = with_gro(0, 10, vec![service(SocketProtocol::Udp, true, Known::Value(false))]);
    assert!(gro::RULE.once(&path).is_empty());
    path.route.snmp6 = Known::Value(Some(counts(&[("Udp6InDatagrams", 10_000_000)])));
    assert_eq!(only_finding(&gro::RULE, &HostView::once(&path)).0, Severity::Low);
    path.route.snmp6 =
        Known::Value(Some(counts(&[("Udp6InDatagrams", 10_000_000), ("Ip6OutForwDatagrams", 5_000_000)])));
    assert!(gro::RULE.once(&path).is_empty(), "an IPv6 router");
    path.route.snmp6 = Known::unknown("no privilege");
    assert!(gro::RULE.once(&path).is_empty(), "it may be an IPv6 router");
    path.route.snmp6 = Known::Value(None);
    path.route.netstat = Known::unknown("no privilege");
    assert!(gro::RULE.once(&path).is_empty(), "it may receive mostly TCP");
}

#[test]
fn gro_of_a_named_service_is_reported_without_load() {
    let path = with_gro(100, 10, vec![service(SocketProtocol::Udp, true, Known::Value(false))]);
    assert_eq!(only_finding(&gro::RULE, &HostView::once(&path)).0, Severity::Low);
    let mut old = with_gro(100, 10, vec![service(SocketProtocol::Udp, true, Known::unknown("not asked"))]);
    old.machine.kernel = Known::Value("4.6.3".into());
    assert_eq!(only_finding(&gro::RULE, &HostView::once(&old)).0, Severity::Low, "the kernel has no UDP_GRO");
}

/// Two nodes of four CPUs, the NIC on node 0, and the CPUs of its queues' interrupts.
fn on_nodes(queue_cpus: &[u32]) -> PacketPath {
    let mut path = path(8, 2, None);
    let node = |node: u32| NumaNode { node, cpus: (4 * node..4 * node + 4).collect() };
    path.machine.nodes = Known::Value(vec![node(0), node(1)]);
    path.link[0].node = Known::Value(Some(0));
    path.irq.interfaces = vectors(30, queue_cpus);
    path
}

#[test]
fn isolated_cpus_get_no_interrupts_of_their_node() {
    let mut path = on_nodes(&[4, 5]);
    path.machine.cores =
        Known::Value((0..4).map(|core| CpuSet::from_iter([2 * core, 2 * core + 1])).collect());
    let isolate = |cpus: &[u32]| Known::Value(Some(cpus.iter().copied().collect()));
    for (isolated, masks) in [(&[][..], ["00000001", "00000004"]), (&[0], ["00000002", "00000004"])] {
        path.irq.isolated = isolate(isolated);
        let (.., commands) = only_finding(&far_node::RULE, &HostView::once(&path));
        for (irq, mask) in (30..).zip(masks) {
            let command = format!("echo {mask} > /proc/irq/{irq}/smp_affinity");
            assert!(commands.contains(&command), "{isolated:?}: {commands:?}");
        }
    }
    path.irq.isolated = isolate(&[0, 1, 2, 3]);
    assert!(far_node::RULE.once(&path).is_empty(), "no CPU of the node is left");
}

#[test]
fn interrupts_on_the_node_of_all_serving_threads_are_not_reported() {
    let mut path = on_nodes(&[4, 5]);
    path.socket.services = Known::Value(vec![service(SocketProtocol::Udp, true, Known::Value(false))]);
    for (allowed, count) in [("4-7", 0), ("4-8", 1), ("0-7", 1)] {
        path.thread.serving =
            Known::Value(vec![sample::thread(51, 700, "5"), sample::thread(52, 700, allowed)]);
        assert_eq!(far_node::RULE.once(&path).len(), count, "{allowed}");
    }
}

#[test]
fn local_or_unknown_interrupt_nodes_are_not_reported() {
    assert!(far_node::RULE.once(&on_nodes(&[0, 5])).is_empty());
    assert!(far_node::RULE.once(&on_nodes(&[4])).is_empty(), "the vector of one queue is unknown");
    let mut unknown_node = on_nodes(&[4, 5]);
    unknown_node.link[0].node = Known::Value(None);
    assert!(far_node::RULE.once(&unknown_node).is_empty());
}

#[test]
fn missing_virtual_functions_are_reported_for_bridged_vms() {
    let mut path = path(4, 4, None);
    let sriov =
        SriovState { is_virtual_function: false, total: Some(63), active: Some(0), interfaces: Vec::new() };
    path.link[0].sriov = Known::Value(Some(sriov.clone()));
    assert!(virtual_functions::RULE.once(&path).is_empty(), "no virtual machine would use them");
    let taps = vec!["vnet0".into(), "vnet1".into()];
    path.link[0].bridge = Known::Value(Some(BridgePort { taps, ..BridgePort::default() }));
    assert_eq!(only_finding(&virtual_functions::RULE, &HostView::once(&path)).0, Severity::Low);
    path.link[0].sriov = Known::Value(Some(SriovState { active: Some(4), ..sriov }));
    assert!(virtual_functions::RULE.once(&path).is_empty());
}

#[test]
fn link_counters_have_a_unit_and_a_source() {
    let path = with_counters(path(4, 4, None), "ena", 10, &[("rx_drops", 3), ("pps_allowance_exceeded", 4)]);
    let counters = path.link[0].counters();
    let row = |item: &Counter| format!("{} {} {:?} {}", item.name, item.value, item.counts, item.read_from);
    let rows: Vec<String> = counters.iter().map(row).collect();
    assert_eq!(
        rows,
        [
            "rx_packets 10 PacketsIn /sys/class/net/eth0/statistics/rx_packets",
            "rx_drops 3 PacketsLost ethtool -S eth0",
            "pps_allowance_exceeded 4 Events ethtool -S eth0",
        ]
    );
}
