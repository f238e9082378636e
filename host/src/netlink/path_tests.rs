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
fn route_via_a_gateway_has_next_hop_source_and_mtu() {
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
    let entry = read_route(&message, ip("192.0.2.9"), None).expect("a plain route");
    assert_eq!(
        entry,
        RouteEntry { interface: 3, next_hop: ip("10.0.0.1"), source: ip("10.0.0.2"), mtu: Some(1400) }
    );
    let entry = read_route(&message, ip("192.0.2.9"), Some(ip("10.0.0.7"))).expect("a plain route");
    assert_eq!(entry.source, ip("10.0.0.7"));
}

#[test]
fn local_multicast_and_incomplete_routes_are_errors() {
    let error_of = |kind, attributes| {
        read_route(&route(kind, attributes), ip("192.0.2.9"), None).expect_err("no plain route").to_string()
    };
    assert!(error_of(RouteType::Local, vec![]).contains("address of this host"));
    assert!(error_of(RouteType::Multicast, vec![]).contains("is multicast"));
    assert!(
        error_of(RouteType::Unicast, vec![RouteAttribute::Oif(3)]).contains("without an interface or source")
    );
}

#[test]
fn vlan_link_has_its_parent_index_and_id() {
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
    let link = read_link(&message).expect("an 802.1Q VLAN");
    assert_eq!(
        (link.name.as_str(), link.mac, link.vlan),
        ("eth0.100", Some([2, 0, 0, 0, 0, 1]), Some((3, 100)))
    );
    let service_tag = InfoData::Vlan(vec![InfoVlan::Id(100), InfoVlan::Protocol(VlanProtocol::Ieee8021Ad)]);
    message.attributes.pop();
    // A veth names its peer in the same attribute.
    assert_eq!(read_link(&message).expect("a veth").vlan, None);
    message
        .attributes
        .push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Vlan), LinkInfo::Data(service_tag)]));
    assert!(
        matches!(read_link(&message), Err(PathError::Interface { interface }) if interface == "eth0.100")
    );
}

#[test]
fn neighbour_is_under_way_failed_or_known_with_its_mac() {
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
fn path_to_a_local_address_or_from_a_capture_is_an_error() {
    assert!(matches!(path_to(&Host::live(), ip("127.0.0.1"), None), Err(PathError::Local(_))));
    assert!(matches!(
        path_to(&Host::captured("/nowhere"), ip("127.0.0.1"), None),
        Err(PathError::NotLive(_))
    ));
}
