//! UDP hashed without its ports.

use super::balance::QueueBalance;
use super::{ScaledInterface, scaled};
use crate::finding::{Rule, RuleMatch, Severity};
use crate::netlink::sock_diag::SocketProtocol;
use crate::setting::{Setting, SettingValue};
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
    check,
};

fn check(view: &HostView<'_>) -> Vec<RuleMatch> {
    scaled(view).filter_map(|scaled| of_interface(view, &scaled)).collect()
}

fn of_interface(view: &HostView<'_>, scaled: &ScaledInterface<'_>) -> Option<RuleMatch> {
    let fields = scaled.rss.fields.value()?.as_ref()?;
    // With a single queue in the table the hash has no effect.
    if scaled.entries().is_some_and(|entries| entries.len() < 2) {
        return None;
    }
    let lacking: Vec<(&str, HashFields)> = ["udp4", "udp6"]
        .into_iter()
        .filter_map(|flow| fields.get(flow).map(|fields| (flow, *fields)))
        .filter(|(_, fields)| fields.has_addresses() && !fields.has_ports())
        .collect();
    let names = match lacking.as_slice() {
        [] => return None,
        [("udp4", _)] => "UDP over IPv4",
        [_] => "UDP over IPv6",
        _ => "UDP over IPv4 and IPv6",
    };
    let interface = scaled.interface();
    let balance = QueueBalance::of(view, scaled);
    let title = format!(
        "{interface} spreads {names} over its {} receive queues by address only, so that all packets between two hosts \
         share a queue",
        scaled.queues
    );
    let mut matched = RuleMatch::new(severity(view, scaled, balance.as_ref()), title);
    for (flow, now) in lacking {
        matched = matched.evidence(
            format!("hash fields of {flow}"),
            now.letters(),
            format!("ETHTOOL_GRXFH of {interface}, as ethtool -n {interface} rx-flow-hash {flow} shows it"),
        );
        let with_ports = HashFields { source_port: true, destination_port: true, ..now };
        let setting = Setting::FlowHash { interface: interface.to_owned(), flow: flow.to_owned() };
        matched = matched.change(
            setting,
            Some(SettingValue::new(now.letters())),
            SettingValue::new(with_ports.letters()),
        );
    }
    Some(match balance {
        Some(balance) => matched.evidence(balance.what(), balance.by_queue(), balance.read_from),
        None => matched,
    })
}

/// The severity depends on the imbalance of the queues. If that is unknown, the cost for a busy UDP
/// service is tens of percent.
fn severity(view: &HostView<'_>, scaled: &ScaledInterface<'_>, balance: Option<&QueueBalance>) -> Severity {
    let services = view.now.socket.services.value();
    if services.is_some_and(|services| services.iter().all(|service| service.protocol != SocketProtocol::Udp))
    {
        return Severity::Note;
    }
    match balance {
        Some(balance) if !super::imbalance::is_skewed(balance, scaled) => Severity::Low,
        Some(balance) if balance.rates => Severity::High,
        None if traffic::is_quiet_now(view, scaled.interface()) => Severity::Note,
        None if traffic::is_quiet(view, scaled.interface()) => Severity::Low,
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
    fn a_hash_of_addresses_is_found_and_ports_are_added() {
        let path = path("udp4", "sd");
        let matched = check(&HostView::once(&path)).remove(0);
        assert_eq!(
            matched.title,
            "eth0 spreads UDP over IPv4 over its 4 receive queues by address only, so that all packets between two \
             hosts share a queue"
        );
        assert_eq!(matched.severity, Severity::Medium);
        assert_eq!(
            (matched.evidence[0].what.as_str(), &matched.evidence[0].value),
            ("hash fields of udp4", &"sd".into())
        );
        let change = &matched.changes[0];
        assert_eq!(
            change.setting.command(&change.to).as_deref(),
            Some("ethtool -N eth0 rx-flow-hash udp4 sdfn")
        );
        assert_eq!(change.from, Some(SettingValue::new("sd")));
    }

    #[test]
    fn it_matters_as_much_as_the_queues_are_out_of_balance() {
        let mut before = path("udp6", "sd");
        before.rss[0].queues = sample::counts(&[1_000_000; 4]);
        let severity = |rates: &[u64]| {
            let now = sample::later(&before, rates);
            check(&HostView::twice(&before, &now)).remove(0).severity
        };
        assert_eq!(severity(&[350_000, 0, 0, 10]), Severity::High);
        assert_eq!(severity(&[90_000, 80_000, 95_000, 85_000]), Severity::Low);
        assert_eq!(severity(&[30, 0, 0, 0]), Severity::Medium);
        let received = |path: &PacketPath, packets: u64| {
            let mut path = path.clone();
            path.link[0].totals = Known::Value([("rx_packets".to_owned(), packets)].into());
            path
        };
        let idle = (received(&before, 0), received(&sample::later(&before, &[3, 0, 0, 0]), 30));
        assert_eq!(check(&HostView::twice(&idle.0, &idle.1))[0].severity, Severity::Note);
        let since_boot = |packets: &[u64], received: u64| {
            let mut path = path("udp4", "sd");
            path.rss[0].queues = sample::counts(packets);
            path.link[0].totals = Known::Value([("rx_packets".to_owned(), received)].into());
            check(&HostView::once(&path))[0].severity
        };
        assert_eq!(since_boot(&[9_000_000, 100, 100, 100], 9_000_300), Severity::Medium);
        assert_eq!(since_boot(&[900_000, 1_000_000, 800_000, 700_000], 3_400_000), Severity::Low);
        assert_eq!(since_boot(&[50, 0, 0, 0], 50), Severity::Low);
    }

    #[test]
    fn a_host_without_a_service_on_udp_is_told_by_the_way() {
        let mut path = path("udp4", "sd");
        path.socket.services = Known::Value(Vec::new());
        assert_eq!(check(&HostView::once(&path))[0].severity, Severity::Note);
    }

    #[test]
    fn ports_in_the_hash_one_queue_or_no_hash_at_all_are_no_finding() {
        let quiet = |path: &PacketPath| check(&HostView::once(path)).is_empty();
        assert!(quiet(&sample::path(8, 4)));
        assert!(quiet(&path("udp4", "sdn")));
        // A virtio_net without RSS reports that it hashes nothing.
        assert!(quiet(&path("udp4", "")));
        let mut one = path("udp4", "sd");
        one.link[0].receive_queues = Known::Value(1);
        assert!(quiet(&one));
        let mut one = path("udp4", "sd");
        one.rss[0].table = Known::Value(Some(vec![0; 128]));
        assert!(quiet(&one));
        let mut unknown = path("udp4", "sd");
        unknown.rss[0].fields = Known::unknown("no privilege");
        assert!(quiet(&unknown));
    }
}
