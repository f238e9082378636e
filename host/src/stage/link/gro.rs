//! GRO for services that do not benefit from it.

use super::{DeviceKind, LinkState};
use crate::finding::{CostUnit, Rule, RuleMatch};
use crate::setting::Offload;
use crate::stage::socket::load::UDP_DATAGRAMS;
use crate::stage::socket::{ServiceSockets, SocketProtocol};
use crate::stage::{HostView, PacketPath};
use crate::{Known, Setting, Severity};

pub(in crate::stage) const RULE: Rule = Rule {
    id: "link.gro-for-udp",
    title: "Packets of a UDP service are looked at for merging, which never happens",
    why: "Generic receive offload compares each packet with those held back, to merge packets of one stream. \
          Datagrams are merged only for sockets that request it (UDP_GRO), so for others this work is \
          wasted.",
    effect: "4.9 % of the CPU's time (dev_gro_receive); 5,050,000 to 5,180,000 transactions/s.",
    published_ratio: Some(1.026),
    source: "T. Makita, Boost UDP Transaction Performance (2016), step 'GRO off'",
    kernels: "2.6.29 and later; measured on 4.6",
    remedy: "Switch it off with ethtool -K.",
    caveats: "TCP matters on this interface, packets are forwarded or bridged from it, or virtual machines or containers \
             get theirs through it: they all gain far more from merging than UDP loses.",
    check,
};

fn check(view: &HostView<'_>) -> Vec<RuleMatch> {
    let Some(service) = find_service(view) else { return Vec::new() };
    view.now.link.iter().filter_map(|link| match_interface(link, service)).collect()
}

/// The UDP service to check on a host that does little else: a service that the user named and that
/// does not accept merged datagrams, or any such service on a host that receives almost only UDP.
fn find_service<'a>(view: &HostView<'a>) -> Option<&'a ServiceSockets> {
    let services = view.now.socket.services();
    // Sockets can request merged datagrams since Linux 5.0.
    let kernel_lacks_udp_gro = view.now.machine.kernel_is_at_least((5, 0)) == Some(false);
    let is_unmerged = |service: &&ServiceSockets| {
        let refuses_merged =
            service.sockets.iter().all(|socket| socket.known_options().is_some_and(|options| !options.gro));
        service.protocol == SocketProtocol::Udp && (refuses_merged || kernel_lacks_udp_gro)
    };
    let load = load(view)?;
    if load.forwarded > load.udp / 10.0 {
        return None;
    }
    let named_service = services.iter().filter(|service| service.named).find(is_unmerged);
    if services.iter().any(|service| service.named) {
        return named_service.filter(|_| load.udp > load.other);
    }
    /// Datagrams per second below which the saving is negligible.
    const LITTLE: f64 = 10_000.0;
    // If it is known which service receives the datagrams, a DHCP client's socket does not matter.
    let any_matters = services.iter().any(|service| view.matters(service));
    let mut candidates = services.iter().filter(|service| !any_matters || view.matters(service));
    (load.udp >= LITTLE && load.udp >= 10.0 * load.other).then(|| candidates.find(is_unmerged)).flatten()
}

/// IP packets as they arrived (ip_rcv_core in net/ipv4/ip_input.c, ip6_rcv_core in
/// net/ipv6/ip6_input.c, Linux 3.12). Other counters, such as Tcp.InSegs, count a merged packet as one.
const PACKETS_ON_WIRE: [&str; 8] = [
    "IpExt.InNoECTPkts",
    "IpExt.InECT0Pkts",
    "IpExt.InECT1Pkts",
    "IpExt.InCEPkts",
    "Ip6InNoECTPkts",
    "Ip6InECT0Pkts",
    "Ip6InECT1Pkts",
    "Ip6InCEPkts",
];

/// Packets per second.
struct PacketLoad {
    udp: f64,
    other: f64,
    forwarded: f64,
}

/// Received packets, between two readings or on average since boot.
fn load(view: &HostView<'_>) -> Option<PacketLoad> {
    // IPv6 may be absent, but an unknown number of packets may be merged or forwarded.
    let count = |path: &PacketPath, names: &[&str]| {
        let _ = (path.route.snmp6.value()?, path.route.netstat.value()?);
        path.route.snmp_sum(names)
    };
    let rate = |names: &[&str]| match view.before {
        Some(_) => view.rate(|path| count(path, names)),
        None => match view.now.uptime_seconds {
            Known::Value(seconds) if seconds > 0.0 => {
                count(view.now, names).map(|count| count as f64 / seconds)
            }
            _ => None,
        },
    };
    let udp = rate(&UDP_DATAGRAMS)?;
    Some(PacketLoad {
        udp,
        other: rate(&PACKETS_ON_WIRE)? - udp,
        forwarded: rate(&["Ip.ForwDatagrams", "Ip6OutForwDatagrams"])?,
    })
}

fn match_interface(link: &LinkState, service: &ServiceSockets) -> Option<RuleMatch> {
    const FEATURE: &str = "generic-receive-offload";
    let has_device = matches!(link.device.value(), Some(DeviceKind::Hardware | DeviceKind::Virtio));
    let is_unbridged = link.bridge == Known::Value(None);
    let is_on = *link.features.value()?.get(FEATURE)?;
    if !(has_device && link.is_up() && is_unbridged && is_on) {
        return None;
    }
    let interface = &link.interface;
    let title = format!(
        "GRO is on for {interface}, and the UDP service on {} does not accept merged datagrams",
        service.local
    );
    let setting = Setting::Offload { interface: interface.clone(), offload: Offload::GenericReceive };
    let rule_match = RuleMatch::new(Severity::Low, title)
        .costs_per(CostUnit::UdpDatagram)
        .evidence(FEATURE, "on", format!("ethtool -k {interface}"))
        .evidence("UDP service", service.local.to_string(), &service.read_from)
        .change(setting, Some("on"), "off");
    Some(rule_match)
}
