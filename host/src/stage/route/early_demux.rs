//! Early demux: a lookup of a connected socket before the route lookup.

use crate::Setting;
use crate::finding::{CostUnit, Rule, RuleMatch, Severity};
use crate::stage::HostView;
use crate::stage::socket::HostSockets;

const UDP: &str = "net.ipv4.udp_early_demux";
pub(super) const UDP_PATH: &str = "/proc/sys/net/ipv4/udp_early_demux";

pub(in crate::stage) const RULE: Rule = Rule {
    id: "route.early-demux",
    title: "Early demux looks for connected sockets where there are none",
    why: "For each UDP packet the kernel first looks for a socket connected to its sender, to take the route \
          from it. A service with sockets that are bound and not connected never has one: the lookup is \
          wasted, and the socket is looked up again after the route.",
    effect: "0.8 % for one flow and 3 % for packets from many sources (633 to 654 Mbit/s), on an ARM64 system.",
    published_ratio: Some(1.03),
    source: "Linux commit dddb64bcb346 (4.12); Documentation/networking/ip-sysctl.rst, udp_early_demux",
    kernels: "4.12 and later",
    remedy: "Switch it off for UDP. It is a setting of the whole network namespace.",
    caveats: "Much of the host's UDP goes to connected sockets, for example of a resolver that queries other \
              servers, or of a QUIC or DTLS server that connects a socket for each client. It is not reported \
              if most UDP sockets are connected.",
    check: |view| check(view).into_iter().collect(),
};

fn check(view: &HostView<'_>) -> Option<RuleMatch> {
    let route = &view.now.route;
    let is_on =
        (route.ip_early_demux.value(), route.udp_early_demux.value()) == (Some(&true), Some(&Some(true)));
    if most_sockets_are_connected(&view.now.socket)? {
        return None;
    }
    // A socket alone is not enough: a DHCP client has one, too.
    let services: Vec<_> = view.udp_services().filter(|service| is_on && view.matters(service)).collect();
    let service = services.first()?;
    let title = format!(
        "Each UDP packet is looked up among connected sockets first, and {} answers from sockets that are not connected",
        service.name()
    );
    Some(
        RuleMatch::new(Severity::Low, title)
            .costs_per(CostUnit::UdpDatagram)
            .evidence(UDP, 1, UDP_PATH)
            .evidence("unconnected UDP services", services.len(), service.read_from.clone())
            .change(Setting::sysctl(UDP), Some(1), 0),
    )
}

fn most_sockets_are_connected(sockets: &HostSockets) -> Option<bool> {
    let Some(in_use) = *sockets.udp_in_use.value()? else { return Some(false) };
    let list_size = |name: &str| Some(u64::from(*sockets.lists.get(name)?.value()?));
    let unconnected = list_size("udp4")?.saturating_add(list_size("udp6")?);
    Some(in_use.saturating_sub(unconnected) > unconnected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::socket::sample::service;
    use crate::stage::socket::{ServiceSockets, SocketProtocol};
    use crate::{Known, PacketPath};

    fn path(protocol: SocketProtocol, named: bool, files: &[(&str, &str)]) -> PacketPath {
        let mut path = PacketPath::scripted(files.iter().copied());
        path.socket.services = Known::Value(vec![ServiceSockets { protocol, named, ..service(0) }]);
        path
    }

    const ON: [(&str, &str); 2] = [("/proc/sys/net/ipv4/ip_early_demux", "1\n"), (UDP_PATH, "1\n")];

    #[test]
    fn early_demux_is_not_reported_if_off_unknown_or_without_udp_service() {
        let is_reported =
            |protocol, files: &[(&str, &str)]| !RULE.once(&path(protocol, true, files)).is_empty();
        assert!(is_reported(SocketProtocol::Udp, &ON) && !is_reported(SocketProtocol::Tcp, &ON));
        // Nobody named the service, and no traffic is known.
        assert!(RULE.once(&path(SocketProtocol::Udp, false, &ON)).is_empty());
        assert!(!is_reported(SocketProtocol::Udp, &[ON[0], (UDP_PATH, "0\n")]));
        assert!(!is_reported(SocketProtocol::Udp, &[("/proc/sys/net/ipv4/ip_early_demux", "0\n"), ON[1]]));
        // Linux before 4.12 has one switch that includes TCP, which should stay on.
        assert!(!is_reported(SocketProtocol::Udp, &ON[..1]));
        assert!(!is_reported(SocketProtocol::Udp, &[ON[0], (UDP_PATH, "")]));
    }

    #[test]
    fn early_demux_is_not_reported_if_most_sockets_are_connected() {
        let mut path = path(SocketProtocol::Udp, true, &ON);
        for (in_use, is_reported) in [(9, false), (8, true), (4, true), (3, true)] {
            let sizes = [("udp4".to_owned(), Known::Value(3)), ("udp6".to_owned(), Known::Value(1))];
            path.socket.lists = sizes.into();
            path.socket.udp_in_use = Known::Value(Some(in_use));
            assert_eq!(!RULE.once(&path).is_empty(), is_reported, "{in_use}");
        }
    }
}
