//! iptables for bridged packets.

use crate::finding::{Rule, RuleMatch, Severity};
use crate::stage::HostView;
use crate::stage::link::virtual_network::{PortKind, VirtualPort};

pub(in crate::stage) const RULE: Rule = Rule {
    id: "filter.bridge-netfilter",
    title: "Bridged packets pass iptables",
    why: "With br_netfilter, each packet that a bridge forwards passes the IPv4 chains of netfilter and connection \
          tracking, as if it were routed. A packet between two virtual machines pays for it, although a bridge needs \
          neither.",
    effect: "Each bridged packet saves the chains and a lookup in the connection tracking table.",
    published_ratio: None,
    source: "Documentation/networking/ip-sysctl.rst (bridge-nf-call-iptables) and libvirt's notes on it",
    kernels: "all with br_netfilter (a module of its own since 3.18)",
    remedy: "Switch it off for iptables and ip6tables, if no firewall of this host filters bridged packets.",
    caveats: "Docker, Kubernetes or libvirt's nwfilter filter or translate bridged packets by iptables: containers lose \
              their isolation or their service addresses without it.",
    check: |view| check(view).into_iter().collect(),
};

const FILE: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";
/// Bridged packets per second below which the cost does not matter.
const BUSY: f64 = 10_000.0;

fn check(view: &HostView<'_>) -> Option<RuleMatch> {
    let network = &view.now.virtual_network;
    if network.bridge_netfilter != Some(true) {
        return None;
    }
    let is_bridge = |name: &str| network.port(name).is_some_and(|port| port.kind == PortKind::Bridge);
    let is_bridged = |port: &&VirtualPort| port.master.as_deref().is_some_and(is_bridge);
    let ports: Vec<&VirtualPort> = network.ports.iter().filter(is_bridged).collect();
    // A port receives the packets that its machine sends, and sends the packets for its machine.
    let rate =
        |port: &&VirtualPort, name| view.rate(|path| path.virtual_network.port(&port.interface)?.total(name));
    let rates = ports.iter().flat_map(|port| ["rx_packets", "tx_packets"].map(|name| rate(port, name)));
    let per_second: f64 = rates.flatten().sum();
    if per_second < BUSY {
        return None;
    }
    // Programs that run containers switch it on because they need it.
    let has_containers = ports.iter().any(|port| port.kind == PortKind::Veth);
    let severity = if has_containers { Severity::Note } else { Severity::Low };
    let title = format!("{per_second:.0} packets per second of bridged interfaces pass iptables");
    let names: Vec<&str> = ports.iter().map(|port| port.interface.as_str()).collect();
    let rule_match = RuleMatch::new(severity, title).evidence("bridge-nf-call-iptables", 1, FILE).evidence(
        "ports of bridges",
        names,
        "/sys/class/net/*/master",
    );
    let commands =
        ["iptables", "ip6tables"].map(|table| format!("sysctl -w net.bridge.bridge-nf-call-{table}=0"));
    Some(if has_containers { rule_match } else { RuleMatch { commands: commands.into(), ..rule_match } })
}
