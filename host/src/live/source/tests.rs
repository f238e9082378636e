use super::*;
use crate::HostRecording;
use linerate_testkit::fixture::fixture;

fn snapshot_source(name: &str) -> SnapshotSource {
    capture(name).into()
}

fn capture(name: &str) -> OpenedCapture {
    let trees = fixture(name).expect("a fixture").trees();
    let mut hosts = trees.iter().map(|tree| {
        let tree = tree.followed();
        Host::recorded(HostRecording::from_files(tree.files()).with_links(tree.links()))
    });
    let first = hosts.next().expect("a reading");
    OpenedCapture { about: None, first, later: hosts.next() }
}

#[test]
fn snapshot_of_a_large_host_is_complete_and_has_rates() {
    let source = snapshot_source("many");
    let mut live = LiveHost::open(source, Scope::default());
    let snapshot = live.refresh();
    assert_eq!(snapshot.interval_seconds, Some(10.0));
    assert_eq!(snapshot.interfaces.len(), 4);
    let queues = snapshot.interfaces[0].receive.value().expect("queues");
    assert_eq!(queues.len(), 64);
    assert!(queues.iter().all(|queue| queue.irq.is_some() && queue.cpu.is_some()), "{:?}", queues[0]);
    let cpus = snapshot.cpus.value().expect("CPUs");
    assert_eq!(cpus.len(), 128);
    assert!(
        cpus.iter().all(|cpu| cpu.softirq_share == Some(0.3) && cpu.packets_per_second == Some(10_000.0))
    );
    assert_eq!(snapshot.host.nodes.len(), 2);
    let services = snapshot.services.value().expect("services");
    assert_eq!(services.iter().map(|service| service.sockets.len()).sum::<usize>(), 128);
    assert_eq!(snapshot.threads.value().expect("threads").len(), 128);
    assert_eq!(live.refresh().totals, snapshot.totals, "a capture has the same totals on every refresh");
}

#[test]
fn snapshot_from_one_reading_has_findings_but_no_rates() {
    let once = OpenedCapture { later: None, ..capture("small-vm") };
    let snapshot = LiveHost::open(once.into(), Scope::default()).refresh();
    assert_eq!(snapshot.interval_seconds, None);
    assert_eq!(snapshot.totals.rx_packets_per_second, None);
    assert!(!snapshot.findings.is_empty());
}

#[test]
fn snapshot_of_an_empty_host_has_unknown_values() {
    let none = Host::scripted::<String, String>([]);
    let mut live = LiveHost::open(SnapshotSource::Live(none), Scope::default());
    let snapshot = live.refresh();
    assert!(snapshot.cpus.why_contains("/proc/stat"));
    assert!(snapshot.services.why().is_some() && !snapshot.unknown.is_empty());
}

#[test]
fn a_requested_interface_that_is_missing_is_shown_as_gone() {
    let none = Host::scripted([("/sys/class/net/eth0/ifindex", "2\n")]);
    let scope = Scope { interfaces: vec!["eth1".into()], ..Scope::default() };
    let snapshot = LiveHost::open(SnapshotSource::Live(none), scope).refresh();
    assert_eq!(snapshot.interfaces.len(), 1);
    assert_eq!(snapshot.interfaces[0].gone_seconds, Some(0.0));
}

#[test]
fn a_named_port_without_a_service_is_unknown_with_the_reason() {
    let services = |scope: Scope| {
        let lists =
            ["udp4", "udp6", "tcp4", "tcp6"].map(|key| (format!("/calls/sock_diag/{key}.json"), "[]"));
        LiveHost::open(SnapshotSource::Live(Host::scripted(lists)), scope).refresh().services
    };
    assert_eq!(services(Scope::default()), Known::Value(Vec::new()));
    let named = services(Scope { port: Some(53), ..Scope::default() });
    assert!(named.why().is_some_and(|why| why.starts_with("nobody listens on port 53: ")), "{named:?}");
}
