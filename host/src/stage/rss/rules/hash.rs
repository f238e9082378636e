//! UDP hashed without its ports.

use super::balance::QueueBalance;
use super::{ScaledInterface, scaled_interfaces};
use crate::finding::{Rule, RuleMatch, Severity};
use crate::netlink::sock_diag::SocketProtocol;
use crate::setting::Setting;
use crate::stage::HostView;
use crate::stage::rss::HashFields;
use crate::stage::softirq::traffic;

pub(in crate::stage) const RULE: Rule = Rule {
    id: "rss.hash-without-ports",
    title: "The NIC's hash of UDP packets leaves out their ports",
    why: "With only addresses in the hash, all packets between two hosts come into one receive queue, and so \
          to one CPU, whatever their ports. Behind a proxy, a resolver or NAT there are few addresses, and \
          most queues stay empty. This is the default of many drivers (ixgbe, igb, sfc), because fragments \
          carry no ports.",
    effect: "One queue carried 350,000 packets/s and the NIC lost 451,000 packets/s; the same load over two \
             addresses filled two queues with 650,000 packets/s.",
    published_ratio: None,
    source: "M. Majkowski, How to receive a million packets per second, 2015",
    kernels: "all; the NIC must support it",
    remedy: "Add the ports to the hash. If the NIC refuses, let clients use several addresses of the \
             service, or spread the packets by RPS, whose hash includes the ports.",
    caveats: "Datagrams larger than the MTU matter: fragments are hashed without ports and come into another \
              queue than complete datagrams of their flow, which reorders them. With very many client \
              addresses it changes little.",
    check: |view| scaled_interfaces(view).filter_map(|nic| match_interface(view, &nic)).collect(),
};

fn match_interface(view: &HostView<'_>, nic: &ScaledInterface<'_>) -> Option<RuleMatch> {
    let fields = nic.rss.fields.value()?.as_ref()?;
    // With a single queue in the table the hash has no effect.
    if nic.entries().is_some_and(|entries| entries.len() < 2) {
        return None;
    }
    let flows_without_ports: Vec<(&str, HashFields)> = ["udp4", "udp6"]
        .into_iter()
        .filter_map(|flow| fields.get(flow).map(|fields| (flow, *fields)))
        .filter(|(_, fields)| fields.has_addresses() && !fields.has_ports())
        .collect();
    let flow_names = match flows_without_ports.as_slice() {
        [] => return None,
        [("udp4", _)] => "UDP over IPv4",
        [_] => "UDP over IPv6",
        _ => "UDP over IPv4 and IPv6",
    };
    let interface = nic.interface();
    let balance = QueueBalance::from_view(view, nic);
    let title = format!(
        "{interface} spreads {flow_names} over its {} receive queues by address only, so that all packets between two hosts \
         share a queue",
        nic.queues
    );
    let severity = severity(view, nic, balance.as_ref());
    let mut rule_match = RuleMatch::new(severity, title).costs_packets_of(interface);
    for (flow, current_fields) in flows_without_ports {
        rule_match = rule_match.evidence(
            format!("hash fields of {flow}"),
            current_fields.letters(),
            format!("ETHTOOL_GRXFH of {interface}, as ethtool -n {interface} rx-flow-hash {flow} shows it"),
        );
        let with_ports = HashFields { source_port: true, destination_port: true, ..current_fields };
        let setting = Setting::FlowHash { interface: interface.to_owned(), flow: flow.to_owned() };
        rule_match = rule_match.change(setting, Some(current_fields.letters()), with_ports.letters());
    }
    Some(match balance {
        Some(balance) => rule_match.evidence(balance.label(), balance.by_queue(), balance.read_from),
        None => rule_match,
    })
}

/// The severity depends on the imbalance of the queues. If that is unknown, the cost for a busy UDP
/// service is tens of percent.
fn severity(view: &HostView<'_>, nic: &ScaledInterface<'_>, balance: Option<&QueueBalance>) -> Severity {
    let services = view.now.socket.services.value();
    if services.is_some_and(|services| services.iter().all(|service| service.protocol != SocketProtocol::Udp))
    {
        return Severity::Note;
    }
    match balance {
        Some(balance) if !super::imbalance::is_skewed(balance, nic) => Severity::Low,
        Some(balance) if balance.rates => Severity::High,
        None if traffic::is_quiet_now(view, nic.interface()) => Severity::Note,
        None if traffic::is_quiet(view, nic.interface()) => Severity::Low,
        _ => Severity::Medium,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Known;
    use crate::stage::PacketPath;
    use crate::stage::rss::sample;

    fn path(flow: &str, letters: &str) -> PacketPath {
        let mut path = sample::path(8, 4);
        let mut fields = path.rss[0].fields.value().cloned().flatten().expect("fields");
        fields.insert(flow.to_owned(), HashFields::from_letters(letters).expect("letters"));
        path.rss[0].fields = Known::Value(Some(fields));
        path
    }

    #[test]
    fn hash_severity_grows_with_queue_imbalance() {
        let mut before = path("udp6", "sd");
        before.rss[0].queues = sample::counts(&[1_000_000; 4]);
        let severity = |rates: &[u64]| {
            let now = sample::later(&before, rates);
            RULE.twice(&before, &now).remove(0).severity
        };
        assert_eq!(severity(&[350_000, 0, 0, 10]), Severity::High);
        assert_eq!(severity(&[90_000, 80_000, 95_000, 85_000]), Severity::Low);
        assert_eq!(severity(&[30, 0, 0, 0]), Severity::Medium);
        let with_received = |path: &PacketPath, packets: u64| {
            let mut path = path.clone();
            path.link[0].totals = Known::Value([("rx_packets".to_owned(), packets)].into());
            path
        };
        let idle = (with_received(&before, 0), with_received(&sample::later(&before, &[3, 0, 0, 0]), 30));
        assert_eq!(RULE.twice(&idle.0, &idle.1)[0].severity, Severity::Note);
        let since_boot = |packets: &[u64], received: u64| {
            let mut path = path("udp4", "sd");
            path.rss[0].queues = sample::counts(packets);
            path.link[0].totals = Known::Value([("rx_packets".to_owned(), received)].into());
            RULE.once(&path)[0].severity
        };
        assert_eq!(since_boot(&[9_000_000, 100, 100, 100], 9_000_300), Severity::Medium);
        assert_eq!(since_boot(&[900_000, 1_000_000, 800_000, 700_000], 3_400_000), Severity::Low);
        assert_eq!(since_boot(&[50, 0, 0, 0], 50), Severity::Low);
    }

    #[test]
    fn no_udp_service_is_a_note() {
        let mut path = path("udp4", "sd");
        path.socket.services = Known::Value(Vec::new());
        assert_eq!(RULE.once(&path)[0].severity, Severity::Note);
    }

    #[test]
    fn port_hashing_a_single_queue_or_no_hash_is_not_reported() {
        let has_no_match = |path: &PacketPath| RULE.once(path).is_empty();
        assert!(has_no_match(&sample::path(8, 4)));
        assert!(has_no_match(&path("udp4", "sdn")));
        // A virtio_net without RSS reports that it hashes nothing.
        assert!(has_no_match(&path("udp4", "")));
        RULE.assert_no_match(
            &path("udp4", "sd"),
            &[
                |path| path.link[0].receive_queues = Known::Value(1),
                |path| path.rss[0].table = Known::Value(Some(vec![0; 128])),
                |path| path.rss[0].fields = Known::unknown("no privilege"),
            ],
        );
    }
}
