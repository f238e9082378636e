//! Findings of the rules, and hosts without findings.

use std::collections::BTreeMap;

use super::*;
use crate::Scope;
use crate::finding::{Rule, RuleMatch};
use crate::setting::SettingValue;
use crate::stage::irq::{InterfaceVectors, IrqVector};
use crate::stage::machine::NumaNode;
use crate::stage::socket::{ServiceSockets, SocketOptions, SocketProtocol, SocketState};
use crate::stage::softirq::{InterfaceRps, RpsQueue};
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
    path.softirq.rps = vec![rps(queues, &[])];
    path
}

fn rps(queues: u32, cpus: &[u32]) -> InterfaceRps {
    let queue = |queue| RpsQueue {
        queue,
        cpus: Known::Value(cpus.iter().copied().collect()),
        flow_count: Known::Value(0),
    };
    InterfaceRps {
        interface: "eth0".into(),
        queues: Known::Value((0..queues).map(queue).collect()),
        gro_flush_timeout_ns: Known::Value(None),
        napi_defer_hard_irqs: Known::Value(None),
        threaded: Known::Value(None),
    }
}

fn combined(now: u32, max: u32) -> Option<ChannelCounts> {
    Some(ChannelCounts { combined: now, combined_max: max, ..ChannelCounts::default() })
}

fn driver(name: &str) -> Known<Option<LinkDriver>> {
    let (version, firmware, bus) = Default::default();
    Known::Value(Some(LinkDriver { name: name.into(), version, firmware, bus }))
}

fn counts(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// Adds received packets, and statistics of this driver.
fn counted(mut path: PacketPath, name: &str, received: u64, statistics: &[(&str, u64)]) -> PacketPath {
    path.link[0].driver = driver(name);
    path.link[0].statistics = Known::Value(Some(counts(statistics)));
    path.link[0].totals = Known::Value(counts(&[("rx_packets", received), ("rx_missed_errors", 0)]));
    path
}

/// The same host ten seconds later, with these counts.
fn later(before: &PacketPath, received: u64, statistics: &[(&str, u64)]) -> PacketPath {
    let Known::Value(Some(driver)) = &before.link[0].driver else { unreachable!("it has one") };
    let mut path = counted(before.clone(), &driver.name.clone(), received, statistics);
    path.uptime_seconds = Known::Value(110.0);
    path
}

fn service(protocol: SocketProtocol, named: bool, gro: Known<bool>) -> ServiceSockets {
    let socket = SocketState {
        inode: 1,
        cookie: None,
        uid: 0,
        queued_bytes: 0,
        receive_buffer_bytes: None,
        drops: None,
        options: gro.map(|gro| Some(SocketOptions { gro, ..SocketOptions::default() })),
        descriptors: Vec::new(),
    };
    ServiceSockets {
        protocol,
        local: ([0, 0, 0, 0], 53).into(),
        processes: Known::Value(Vec::new()),
        sockets: vec![socket],
        ordered: false,
        steering: Known::Value(None),
        named,
        read_from: "sock_diag".into(),
    }
}

/// The only finding of a rule: severity, title and commands.
fn one(rule: &Rule, view: &HostView<'_>) -> (Severity, String, Vec<String>) {
    let mut findings = rule.findings(view);
    assert_eq!(findings.len(), 1, "{findings:?}");
    let finding = findings.remove(0);
    assert!(!finding.evidence.is_empty());
    (finding.severity, finding.title, finding.commands)
}

fn none(rule: &Rule, view: &HostView<'_>) -> bool {
    let found: Vec<RuleMatch> = (rule.check)(view);
    found.is_empty()
}

#[test]
fn one_queue_of_several_the_device_offers_is_found() {
    let mut path = path(8, 1, combined(1, 16));
    let (severity, title, commands) = one(&queues::SINGLE, &HostView::once(&path));
    assert_eq!(severity, Severity::Medium);
    assert_eq!(title, "eth0 has one receive queue for 8 CPUs, and its device offers 16");
    assert_eq!(commands, ["ethtool -L eth0 combined 8"]);
    path.socket.services = Known::Value(vec![service(SocketProtocol::Udp, true, Known::Value(false))]);
    assert_eq!(one(&queues::SINGLE, &HostView::once(&path)).0, Severity::High);
    assert!(none(&queues::BELOW_CPUS, &HostView::once(&path)), "said once");
}

#[test]
fn one_queue_of_a_quiet_small_machine_is_a_note() {
    let path = path(2, 1, combined(1, 1));
    let (severity, title, commands) = one(&queues::SINGLE, &HostView::once(&path));
    assert_eq!(severity, Severity::Note);
    assert_eq!(
        title,
        "eth0 has one receive queue for 2 CPUs, and its device offers no more: RPS can give the others work"
    );
    assert!(commands.is_empty());
}

#[test]
fn one_queue_that_takes_much_and_cannot_be_more_is_medium_until_rps_is_set() {
    let before = counted(path(8, 1, None), "e1000e", 0, &[]);
    let now = later(&before, 600_000, &[]);
    let (severity, title, _) = one(&queues::SINGLE, &HostView::twice(&before, &now));
    assert_eq!(severity, Severity::Medium);
    assert!(title.contains("and its driver does not let that be changed"), "{title}");
    let mut spread = now.clone();
    spread.softirq.rps = vec![rps(1, &[1, 2, 3])];
    assert!(none(&queues::SINGLE, &HostView::twice(&before, &spread)));
    let mut unknown = now.clone();
    unknown.softirq.rps[0].queues = Known::unknown("no privilege");
    assert!(none(&queues::SINGLE, &HostView::twice(&before, &unknown)));
    let mut unknown = now;
    unknown.link[0].channels = Known::unknown("no privilege");
    assert!(none(&queues::SINGLE, &HostView::twice(&before, &unknown)));
}

#[test]
fn one_queue_is_nothing_for_one_cpu_nor_for_software_nor_for_what_is_down() {
    assert!(none(&queues::SINGLE, &HostView::once(&path(1, 1, combined(1, 8)))));
    // Like igb with virtual functions: all channels that it offers are in use.
    assert!(none(&queues::SINGLE, &HostView::once(&path(8, 1, combined(2, 2)))));
    let mut veth = path(8, 1, combined(1, 8));
    veth.link[0].device = Known::Value(DeviceKind::Software);
    assert!(none(&queues::SINGLE, &HostView::once(&veth)));
    let mut down = path(8, 1, combined(1, 8));
    down.link[0].up = Known::Value(false);
    assert!(none(&queues::SINGLE, &HostView::once(&down)));
}

#[test]
fn fewer_queues_than_cpus_are_found_where_the_device_offers_more() {
    let view_of = path(20, 4, combined(4, 8));
    let (severity, title, commands) = one(&queues::BELOW_CPUS, &HostView::once(&view_of));
    assert_eq!(severity, Severity::Low, "nobody says that it takes much");
    assert_eq!(title, "eth0 has 4 receive queues for 20 CPUs, and its device offers 8");
    assert_eq!(commands, ["ethtool -L eth0 combined 8"]);
}

#[test]
fn receive_channels_are_raised_where_there_are_no_combined_ones() {
    let channels = ChannelCounts { rx: 2, tx: 2, rx_max: 8, tx_max: 8, ..ChannelCounts::default() };
    let view_of = path(4, 2, Some(channels));
    assert_eq!(one(&queues::BELOW_CPUS, &HostView::once(&view_of)).2, ["ethtool -L eth0 rx 4 tx 4"]);
}

#[test]
fn the_devices_limit_is_a_note_and_with_rps_nothing() {
    let mut path = path(20, 8, combined(8, 8));
    let (severity, title, commands) = one(&queues::BELOW_CPUS, &HostView::once(&path));
    assert_eq!(severity, Severity::Note);
    assert_eq!(
        title,
        "eth0 has 8 receive queues for 20 CPUs, and its device offers no more: RPS can give the others work"
    );
    assert!(commands.is_empty());
    path.softirq.rps = vec![rps(8, &[8, 9])];
    assert!(none(&queues::BELOW_CPUS, &HostView::once(&path)));
}

#[test]
fn a_queue_a_core_is_enough() {
    let mut path = path(16, 8, combined(8, 32));
    path.machine.cores = Known::Value((0..8).map(|core| CpuSet::from_iter([core, core + 8])).collect());
    assert!(none(&queues::BELOW_CPUS, &HostView::once(&path)));
}

#[test]
fn packets_that_found_no_descriptor_are_found_with_their_rate() {
    let before = counted(path(24, 11, None), "sfc", 1_000_000, &[("rx_nodesc_drop_cnt", 5)]);
    let now = later(&before, 4_552_000, &[("rx_nodesc_drop_cnt", 4_513_005)]);
    let view = HostView::twice(&before, &now);
    let (severity, title, _) = one(&loss_rules::HARDWARE_DROPS, &view);
    assert_eq!(severity, Severity::High);
    assert_eq!(
        title,
        "eth0 loses 451,300 packets/s, 56 % of what arrives: no descriptor was free in the ring (rx_nodesc_drop_cnt)"
    );
    assert!(none(&loss_rules::RING_SMALL, &view), "a longer ring would have as much to lose");
}

#[test]
fn a_counter_that_was_unknown_before_has_no_rate() {
    let mut before = counted(path(24, 11, None), "sfc", 1_000_000, &[]);
    before.link[0].statistics = Known::unknown("no privilege");
    let now = later(&before, 4_552_000, &[("rx_nodesc_drop_cnt", 4_513_005)]);
    let (severity, title, _) = one(&loss_rules::HARDWARE_DROPS, &HostView::twice(&before, &now));
    assert_eq!(severity, Severity::Low);
    assert!(title.starts_with("eth0 loses 4,513,005 packets since boot"), "{title}");
}

#[test]
fn losses_since_boot_are_said_to_be_and_weigh_less() {
    let statistics = [("rx_queue_0_drops", 40), ("rx_queue_11_drops", 60), ("rx_queue_all_drops", 9)];
    let path = counted(path(4, 4, None), "igb", 1_000_000, &statistics);
    let (severity, title, _) = one(&loss_rules::HARDWARE_DROPS, &HostView::once(&path));
    assert_eq!(severity, Severity::Low);
    assert!(
        title.starts_with(
            "eth0 loses 100 packets since boot, 1.0e-2 % of what arrived: no descriptor was free"
        ),
        "{title}"
    );
    assert!(title.ends_with("(rx_queue_*_drops)"), "{title}");
}

#[test]
fn a_few_losses_in_a_long_life_are_nothing() {
    let path = counted(path(4, 4, None), "igb", 10_000_000_000, &[("rx_missed_errors", 12)]);
    assert!(none(&loss_rules::HARDWARE_DROPS, &HostView::once(&path)));
    let unknown = PacketPath::observe(&Host::scripted::<String, String>([]), &Scope::default());
    assert!(none(&loss_rules::HARDWARE_DROPS, &HostView::once(&unknown)));
}

#[test]
fn an_unknown_driver_is_judged_by_what_the_kernel_counts() {
    let mut path = counted(path(4, 4, None), "fancynic", 900_000, &[("drops_of_ours", 7)]);
    path.link[0].totals = Known::Value(counts(&[("rx_packets", 900_000), ("rx_missed_errors", 100_000)]));
    let (severity, title, _) = one(&loss_rules::HARDWARE_DROPS, &HostView::once(&path));
    assert_eq!(severity, Severity::Medium);
    assert!(title.contains("10 % of what arrived") && title.contains("(rx_missed_errors)"), "{title}");
}

#[test]
fn rings_that_run_dry_at_peaks_can_be_longer() {
    let mut before = counted(path(4, 4, None), "mlx5_core", 0, &[("rx_out_of_buffer", 0)]);
    before.link[0].rings = Known::Value(Some(RingLengths { rx: 1024, tx: 1024, rx_max: 8192, tx_max: 8192 }));
    let now = later(&before, 10_000_000, &[("rx_out_of_buffer", 2_000)]);
    let (severity, title, commands) = one(&loss_rules::RING_SMALL, &HostView::twice(&before, &now));
    assert_eq!(severity, Severity::Medium);
    assert!(
        title.starts_with("Receive rings of eth0 have 1024 descriptors and could have 8192; 200 packets/s"),
        "{title}"
    );
    assert_eq!(commands, ["ethtool -G eth0 rx 4096 tx 1024"]);
    assert!(
        none(&loss_rules::RING_SMALL, &HostView::once(&before)),
        "short rings that lose nothing are fine"
    );
    let mut longest = now;
    longest.link[0].rings =
        Known::Value(Some(RingLengths { rx: 8192, tx: 1024, rx_max: 8192, tx_max: 8192 }));
    assert!(none(&loss_rules::RING_SMALL, &HostView::twice(&before, &longest)));
}

#[test]
fn what_the_cloud_holds_back_is_found_by_what_was_used_up() {
    let before = counted(path(4, 4, None), "ena", 0, &[("pps_allowance_exceeded", 3)]);
    let now = later(&before, 1_000_000, &[("pps_allowance_exceeded", 50_003)]);
    let view = HostView::twice(&before, &now);
    let (severity, title, _) = one(&loss_rules::ALLOWANCE_EXCEEDED, &view);
    assert_eq!(severity, Severity::High);
    assert!(title.starts_with("5,000 packets/s of eth0 were delayed or dropped outside this"), "{title}");
    assert!(title.contains("allowance of packets per second"), "{title}");
    assert!(none(&loss_rules::HARDWARE_DROPS, &view), "that is not the hardware's");
    assert!(none(&loss_rules::ALLOWANCE_EXCEEDED, &HostView::twice(&now, &later(&now, 2_000_000, &[]))));
}

fn with_gro(udp: u64, tcp: u64, services: Vec<ServiceSockets>) -> PacketPath {
    let mut path = path(4, 4, None);
    path.link[0].features = Known::Value(BTreeMap::from([("generic-receive-offload".to_owned(), true)]));
    path.route.snmp =
        Known::Value(counts(&[("Udp.InDatagrams", udp), ("Tcp.InSegs", tcp), ("Ip.ForwDatagrams", 0)]));
    path.socket.services = Known::Value(services);
    path
}

#[test]
fn gro_is_found_where_the_host_takes_in_udp_only() {
    let plain = || service(SocketProtocol::Udp, false, Known::Value(false));
    let mut path = with_gro(10_000_000, 5_000, vec![plain()]);
    let (severity, title, commands) = one(&gro::RULE, &HostView::once(&path));
    assert_eq!(severity, Severity::Low);
    assert_eq!(
        title,
        "GRO is on for eth0, and the UDP service on 0.0.0.0:53 does not accept merged datagrams"
    );
    assert_eq!(commands, ["ethtool -K eth0 generic-receive-offload off"]);
    path.link[0].bridge = Known::Value(Some(BridgePort::default()));
    assert!(none(&gro::RULE, &HostView::once(&path)), "a bridge's packets gain from it");
}

#[test]
fn gro_stays_where_tcp_matters_or_little_comes_or_merged_datagrams_are_asked_for() {
    let plain = || service(SocketProtocol::Udp, false, Known::Value(false));
    for (udp, tcp, services) in [
        (10_000_000, 9_000_000, vec![plain()]),
        (9_000, 10, vec![plain()]),
        (10_000_000, 10, vec![]),
        (10_000_000, 10, vec![service(SocketProtocol::Tcp, false, Known::Value(false))]),
        (10_000_000, 10, vec![service(SocketProtocol::Udp, false, Known::Value(true))]),
        (10_000_000, 10, vec![service(SocketProtocol::Udp, true, Known::unknown("no privilege")), plain()]),
        (10, 1_000, vec![service(SocketProtocol::Udp, true, Known::Value(false))]),
    ] {
        assert!(none(&gro::RULE, &HostView::once(&with_gro(udp, tcp, services))), "{udp} {tcp}");
    }
    let mut router = with_gro(10_000_000, 10, vec![plain()]);
    let Known::Value(snmp) = &mut router.route.snmp else { unreachable!("it was set") };
    snmp.insert("Ip.ForwDatagrams".into(), 5_000_000);
    assert!(none(&gro::RULE, &HostView::once(&router)));
}

#[test]
fn a_service_that_was_asked_for_needs_no_load() {
    let path = with_gro(100, 10, vec![service(SocketProtocol::Udp, true, Known::Value(false))]);
    assert_eq!(one(&gro::RULE, &HostView::once(&path)).0, Severity::Low);
    let mut old = with_gro(100, 10, vec![service(SocketProtocol::Udp, true, Known::unknown("not asked"))]);
    old.machine.kernel = Known::Value("4.6.3".into());
    assert_eq!(one(&gro::RULE, &HostView::once(&old)).0, Severity::Low, "there was no way to ask for it");
}

/// Two nodes of four CPUs, the NIC on node 0, and the CPUs of its queues' interrupts.
fn on_nodes(interrupted: &[u32]) -> PacketPath {
    let mut path = path(8, 2, None);
    let node = |node: u32| NumaNode { node, cpus: (4 * node..4 * node + 4).collect() };
    path.machine.nodes = Known::Value(vec![node(0), node(1)]);
    path.link[0].node = Known::Value(Some(0));
    let vector = |(queue, cpu): (u32, &u32)| IrqVector {
        irq: 30 + queue,
        name: format!("eth0-TxRx-{queue}"),
        receive_queue: Some(queue),
        transmit_queue: Some(queue),
        affinity: Known::Value(CpuSet::from_iter([*cpu])),
        effective: Known::Value(None),
        hint: Known::Value(None),
        handled: Vec::new(),
        managed: Known::Value(None),
    };
    let vectors = Known::Value((0..).zip(interrupted).map(vector).collect());
    path.irq.interfaces = vec![InterfaceVectors { interface: "eth0".into(), vectors }];
    path
}

#[test]
fn interrupts_on_the_other_node_only_are_found() {
    let path = on_nodes(&[4, 5]);
    let (severity, title, commands) = one(&far_node::RULE, &HostView::once(&path));
    assert_eq!(severity, Severity::Medium);
    assert_eq!(title, "eth0 is on NUMA node 0, and the interrupts of its queues go to CPUs of node 1 only");
    assert_eq!(
        commands,
        ["echo 00000001 > /proc/irq/30/smp_affinity", "echo 00000002 > /proc/irq/31/smp_affinity"]
    );
    let changes = far_node::RULE.findings(&HostView::once(&path)).remove(0).changes;
    assert_eq!(changes[0].from, Some(SettingValue::new("00000010")));
}

#[test]
fn interrupts_of_the_own_node_or_unknown_ones_are_not_judged() {
    assert!(none(&far_node::RULE, &HostView::once(&on_nodes(&[0, 5]))));
    assert!(none(&far_node::RULE, &HostView::once(&on_nodes(&[4]))), "of one queue nothing is known");
    let mut nowhere = on_nodes(&[4, 5]);
    nowhere.link[0].node = Known::Value(None);
    assert!(none(&far_node::RULE, &HostView::once(&nowhere)));
}

#[test]
fn virtual_functions_are_missed_where_machines_go_through_a_bridge() {
    let mut path = path(4, 4, None);
    let sriov =
        SriovState { is_virtual_function: false, total: Some(63), active: Some(0), interfaces: Vec::new() };
    path.link[0].sriov = Known::Value(Some(sriov.clone()));
    assert!(none(&virtual_functions::RULE, &HostView::once(&path)), "nobody would use them");
    path.link[0].bridge = Known::Value(Some(BridgePort { taps: vec!["vnet0".into(), "vnet1".into()] }));
    let (severity, title, commands) = one(&virtual_functions::RULE, &HostView::once(&path));
    assert_eq!(severity, Severity::Low);
    assert_eq!(
        title,
        "eth0 can have 63 virtual functions and has none, while 2 tap interfaces are on its bridge"
    );
    assert_eq!(
        commands,
        [
            "echo 0 > /sys/class/net/eth0/device/sriov_numvfs && echo 2 > /sys/class/net/eth0/device/sriov_numvfs"
        ]
    );
    path.link[0].sriov = Known::Value(Some(SriovState { active: Some(4), ..sriov }));
    assert!(none(&virtual_functions::RULE, &HostView::once(&path)));
}

#[test]
fn counters_name_what_was_lost_and_where_that_was_read() {
    let path = counted(path(4, 4, None), "ena", 10, &[("rx_drops", 3), ("pps_allowance_exceeded", 4)]);
    let counters = losses::counters(&path);
    let shown: Vec<String> = counters
        .iter()
        .map(|counter| {
            format!("{} {} {:?} {}", counter.name, counter.value, counter.counts, counter.read_from)
        })
        .collect();
    assert_eq!(
        shown,
        [
            "rx_packets 10 PacketsIn /sys/class/net/eth0/statistics/rx_packets",
            "rx_drops 3 PacketsLost ethtool -S eth0",
            "pps_allowance_exceeded 4 Events ethtool -S eth0",
        ]
    );
}
