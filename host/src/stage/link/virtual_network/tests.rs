use linerate_testkit::fixture::{Tree, fixture};

use super::*;
use crate::stage::{HostView, PacketPath};
use crate::{Diagnosis, Host, HostRecording, Scope, Severity};

fn observe(tree: &Tree) -> PacketPath {
    let tree = tree.followed();
    let recording = HostRecording::from_files(tree.files()).with_links(tree.links());
    PacketPath::observe(&Host::recorded(recording), &Scope::default())
}

/// Findings about virtual machines, with their severities.
fn findings(first: &Tree, later: Option<&Tree>) -> Vec<(&'static str, Severity)> {
    const RULE_IDS: [&str; 5] = [
        "link.vhost-saturated",
        "link.tap-drops",
        "link.tap-single-queue",
        "filter.bridge-netfilter",
        "link.vf-unused",
    ];
    let first = observe(first);
    let later = later.map(observe);
    let view = later.as_ref().map_or_else(|| HostView::once(&first), |later| HostView::twice(&first, later));
    let findings = Diagnosis::of(&view).findings.into_iter().filter(|finding| RULE_IDS.contains(&finding.id));
    findings.map(|finding| (finding.id, finding.severity)).collect()
}

#[test]
fn vms_are_identified_by_taps_and_vhost_threads() {
    let host = fixture("kvm-host").expect("a fixture");
    let network = observe(&host.first).virtual_network;
    let tap = network.port("tap0").expect("a tap");
    assert_eq!((tap.kind, tap.master.as_deref(), tap.multi_queue), (PortKind::Tap, Some("br0"), false));
    let owner = PortOwner {
        pid: 6001,
        name: "web1".into(),
        cgroup: Some("/machine.slice/machine-qemu-web1.scope".into()),
        network: None,
        virtual_cpus: Some(4),
    };
    assert_eq!(tap.owner.as_ref(), Some(&owner));
    let web2 = network.port("tap1").and_then(|tap| tap.owner.as_ref()).expect("an owner");
    assert_eq!((web2.name.as_str(), web2.virtual_cpus), ("web2", None));
    let threads: Vec<_> =
        network.vhost.iter().map(|thread| (thread.pid, thread.tid, thread.last_cpu, thread.node)).collect();
    assert_eq!(threads, [(6001, 6020, Some(7), Some(1)), (6101, 6120, Some(3), Some(0))]);
    assert_eq!((network.iommu, network.bridge_netfilter), (Some(true), Some(true)));
}

#[test]
fn idle_vms_have_only_notes() {
    let host = fixture("kvm-host").expect("a fixture");
    // The same host without load between the readings.
    let mut idle = host.first.clone();
    idle.file("/proc/uptime", "86410.00 1535600.00\n".to_owned());
    let idle_findings = findings(&host.first, Some(&idle));
    assert_eq!(
        idle_findings,
        [("link.tap-single-queue", Severity::Note), ("link.vf-unused", Severity::Note)]
    );
    // With one reading, 400 drops of 9 million packets may be a short peak in the past.
    assert!(!findings(&host.first, None).iter().any(|(id, _)| *id == "link.tap-drops"));
}

#[test]
fn virtual_functions_that_are_not_described_are_listed_with_the_reason() {
    let file = |name: &str, content| (format!("/sys/class/net/eth0/device/{name}"), content);
    let host = Host::scripted([file("sriov_totalvfs", "8"), file("sriov_numvfs", "2")]);
    let network = PacketPath::observe(&host, &Scope::default()).virtual_network;
    assert_eq!(network.functions.len(), 2);
    let why = network.described_functions["eth0"].why().expect("unknown");
    assert!(why.starts_with("reading the virtual functions of eth0: "), "{why}");
}

/// Two containers with their veth pairs, and one interface of another kind.
#[test]
fn veth_owner_is_the_container_at_the_peer_end() {
    let veth = r#"{"name": "veth"}"#;
    let mut files = vec![
        ("/sys/class/net/dummy0/ifindex".to_owned(), "3".to_owned()),
        ("/sys/class/net/dummy0/iflink".to_owned(), "3".to_owned()),
        ("/proc/77/comm".to_owned(), "named\n".to_owned()),
        ("/proc/77/cgroup".to_owned(), "0::/system.slice/docker-3f2a.scope\n".to_owned()),
    ];
    for (name, index, peer) in [("veth1", "8", "7"), ("veth2", "10", "9")] {
        let file = |file: &str| format!("/sys/class/net/{name}/{file}");
        files.push((file("ifindex"), index.to_owned()));
        files.push((file("iflink"), peer.to_owned()));
        files.push((format!("/calls/ethtool/{name}/driver.json"), veth.to_owned()));
    }
    files.push(("/proc/77/root/sys/class/net/eth0/ifindex".to_owned(), "7".to_owned()));
    files.push(("/proc/77/root/sys/class/net/eth0/iflink".to_owned(), "8".to_owned()));
    let links = [("self", "net:[1]"), ("1", "net:[1]"), ("77", "net:[2]")];
    let links = links.map(|(pid, namespace)| (format!("/proc/{pid}/ns/net"), namespace));
    let recording = HostRecording::from_files(files).with_links(links);
    let network = VirtualNetwork::observe(&Host::recorded(recording), &[], &[]);
    let names: Vec<_> = network
        .ports
        .iter()
        .map(|port| (port.interface.as_str(), port.owner.as_ref().map(|owner| owner.pid)))
        .collect();
    assert_eq!(names, [("veth1", Some(77)), ("veth2", None)]);
    let owner = network.ports[0].owner.as_ref().expect("an owner");
    assert_eq!(
        (owner.name.as_str(), owner.cgroup.as_deref()),
        ("named", Some("/system.slice/docker-3f2a.scope"))
    );
}

#[test]
fn tap_owner_is_the_process_in_the_same_network_namespace() {
    let mut recording = HostRecording::from_files([("/sys/class/net/tap0/tun_flags", "0x1002\n")]);
    for pid in [50, 77] {
        recording.insert_file(format!("/proc/{pid}/fdinfo/9"), "pos:\t0\niff:\ttap0\n");
        recording.insert_file(format!("/proc/{pid}/comm"), "qemu\n");
    }
    let links = [("self", "net:[1]"), ("50", "net:[1]"), ("77", "net:[2]")].map(|(pid, namespace)| {
        [(format!("/proc/{pid}/ns/net"), namespace), (format!("/proc/{pid}/fd/9"), "/dev/net/tun")]
    });
    let recording = recording.with_links(links.into_iter().flatten());
    let network = VirtualNetwork::observe(&Host::recorded(recording), &[], &[]);
    let owner = network.port("tap0").and_then(|tap| tap.owner.as_ref()).expect("an owner");
    assert_eq!(owner.pid, 50);
}
