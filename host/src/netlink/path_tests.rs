use super::*;

fn route(kind: RouteType, attributes: Vec<RouteAttribute>) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.kind = kind;
    message.attributes = attributes;
    message
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn a_route_by_a_gateway_goes_there() {
    let message = route(
        RouteType::Unicast,
        vec![
            RouteAttribute::Destination(ip("192.0.2.9").into()),
            RouteAttribute::Oif(3),
            RouteAttribute::PrefSource(ip("10.0.0.2").into()),
            RouteAttribute::Gateway(ip("10.0.0.1").into()),
            RouteAttribute::Metrics(vec![RouteMetric::Mtu(1400)]),
        ],
    );
    let read = read_route(&message, ip("192.0.2.9"), None).expect("a plain route");
    assert_eq!(
        read,
        RouteEntry { interface: 3, next_hop: ip("10.0.0.1"), source: ip("10.0.0.2"), mtu: Some(1400) }
    );
    let read = read_route(&message, ip("192.0.2.9"), Some(ip("10.0.0.7"))).expect("a plain route");
    assert_eq!(read.source, ip("10.0.0.7"));
}

#[test]
fn other_routes_say_what_they_are() {
    let of = |kind, attributes| {
        read_route(&route(kind, attributes), ip("192.0.2.9"), None).expect_err("no plain route").to_string()
    };
    assert!(of(RouteType::Local, vec![]).contains("address of this host"));
    assert!(of(RouteType::Multicast, vec![]).contains("is multicast"));
    assert!(of(RouteType::Unicast, vec![RouteAttribute::Oif(3)]).contains("without an interface or source"));
}

#[test]
fn a_vlan_names_the_interface_below() {
    let mut message = LinkMessage::default();
    message.header.index = 7;
    message.attributes = vec![
        LinkAttribute::IfName("eth0.100".to_owned()),
        LinkAttribute::Mtu(1500),
        LinkAttribute::Address(vec![2, 0, 0, 0, 0, 1]),
        LinkAttribute::Link(3),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Vlan),
            LinkInfo::Data(InfoData::Vlan(vec![InfoVlan::Id(100)])),
        ]),
    ];
    let link = read_link(&message);
    assert_eq!(
        (link.name.as_str(), link.mac, link.vlan),
        ("eth0.100", Some([2, 0, 0, 0, 0, 1]), Some((3, 100)))
    );
    // A veth names its peer in the same attribute.
    message.attributes.pop();
    assert_eq!(read_link(&message).vlan, None);
}

#[test]
fn a_neighbour_is_known_once_it_has_an_address() {
    let mut message = NeighbourMessage::default();
    message.header.state = NeighbourState::Incomplete;
    assert_eq!(read_neighbour(&message), NeighborResolution::UnderWay);
    message.header.state = NeighbourState::Failed;
    assert_eq!(read_neighbour(&message), NeighborResolution::Failed);
    message.header.state = NeighbourState::Stale;
    message.attributes = vec![NeighbourAttribute::LinkLayerAddress(vec![2, 0, 0, 0, 0, 9])];
    assert_eq!(read_neighbour(&message), NeighborResolution::Known([2, 0, 0, 0, 0, 9]));
}

#[test]
fn this_host_is_no_way_out() {
    assert!(matches!(path_to(&Host::live(), ip("127.0.0.1"), None), Err(PathError::Local(_))));
    assert!(matches!(
        path_to(&Host::captured("/nowhere"), ip("127.0.0.1"), None),
        Err(PathError::NotLive(_))
    ));
}
