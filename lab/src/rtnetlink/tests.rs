use super::*;
use netlink_packet_core::{Emitable, NetlinkSerializable};
use netlink_packet_route::link::{InfoData, InfoVeth, LinkAttribute, LinkInfo};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn bytes_of(message: &RouteNetlinkMessage) -> Vec<u8> {
    let mut bytes = vec![0; NetlinkSerializable::buffer_len(message)];
    message.serialize(&mut bytes);
    bytes
}

#[test]
fn ipv4_address_messages_have_the_kernel_layout() {
    let bytes = bytes_of(&address(7, Ipv4Addr::new(198, 18, 0, 1).into(), 24));
    let mut expected = vec![2, 24, 0, 0];
    expected.extend(7u32.to_ne_bytes());
    for kind in [2u16, 1] {
        expected.extend(8u16.to_ne_bytes());
        expected.extend(kind.to_ne_bytes());
        expected.extend([198, 18, 0, 1]);
    }
    assert_eq!(bytes, expected);
}

#[test]
fn ipv6_addresses_skip_duplicate_address_detection() {
    let bytes = bytes_of(&address(7, Ipv6Addr::LOCALHOST.into(), 64));
    // family, prefix length, IFA_F_NODAD
    assert_eq!(bytes[..3], [10, 64, 0x02]);
}

#[test]
fn loopback_addresses_have_host_scope() {
    let bytes = bytes_of(&address(1, Ipv4Addr::LOCALHOST.into(), 32));
    assert_eq!(bytes[3], 254);
}

#[test]
fn neighbour_entries_are_permanent() {
    let mac = [2, 0x4c, 0x52, 0, 0, 1];
    let bytes = bytes_of(&neighbour(9, Ipv4Addr::new(198, 18, 0, 100).into(), mac));
    let mut expected = vec![2, 0, 0, 0];
    expected.extend(9u32.to_ne_bytes());
    expected.extend(0x80u16.to_ne_bytes());
    assert_eq!(bytes[..10], expected);
    let tail = &bytes[12..];
    assert_eq!(tail[4..8], [198, 18, 0, 100]);
    assert_eq!(tail[12..18], mac);
}

#[test]
fn both_veth_ends_request_their_number_of_queues() {
    let end = |name| NewEnd { name, index: 10, mac: [2, 0, 0, 0, 0, 1], queues: 5, mtu: 1500 };
    let file = std::fs::File::open("/dev/null").unwrap();
    let RouteNetlinkMessage::NewLink(message) = veth_pair(end("eth3"), end("eth0"), file.as_fd()) else {
        panic!("not a new link")
    };
    let has_five_queues = |attributes: &[LinkAttribute]| {
        attributes.contains(&LinkAttribute::NumTxQueues(5))
            && attributes.contains(&LinkAttribute::NumRxQueues(5))
    };
    assert!(has_five_queues(&message.attributes));
    let peer = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => infos.iter().find_map(|info| match info {
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))) => Some(peer),
            _ => None,
        }),
        _ => None,
    });
    let peer = peer.unwrap();
    assert!(has_five_queues(&peer.attributes));
    assert!(peer.attributes.contains(&LinkAttribute::NetNsFd(std::os::fd::AsRawFd::as_raw_fd(&file))));
    assert!(message.buffer_len() > peer.buffer_len());
}

fn ack(code: i32, flags: u16, message: Option<&str>) -> (u16, Vec<u8>) {
    let mut body = code.to_ne_bytes().to_vec();
    body.extend(16u32.to_ne_bytes());
    body.extend([0; 12]);
    if let Some(message) = message {
        let length = u16::try_from(message.len() + 5).unwrap();
        body.extend(length.to_ne_bytes());
        body.extend(ERROR_ATTRIBUTE_MESSAGE.to_ne_bytes());
        body.extend(message.as_bytes());
        body.push(0);
    }
    (flags, body)
}

#[test]
fn an_acknowledgement_with_code_zero_is_success() {
    let (flags, body) = ack(0, 0, None);
    assert!(acknowledgement(flags, &body).is_ok());
}

#[test]
fn errors_have_the_message_of_the_extended_ack() {
    for flags in [ANSWER_HAS_ATTRIBUTES, ANSWER_HAS_ATTRIBUTES | ANSWER_IS_CAPPED] {
        let (flags, body) = ack(-libc::EINVAL, flags, Some("Invalid MTU"));
        let error = acknowledgement(flags, &body).unwrap_err();
        assert_eq!(error.source.raw_os_error(), Some(libc::EINVAL));
        assert_eq!(error.detail.as_deref(), Some("Invalid MTU"));
    }
}

#[test]
fn errors_without_extended_ack_have_the_errno() {
    let (flags, body) = ack(-libc::EPERM, 0, None);
    let error = acknowledgement(flags, &body).unwrap_err();
    assert_eq!(error.source.raw_os_error(), Some(libc::EPERM));
    assert_eq!(error.detail, None);
}

proptest! {
    #[test]
    fn parsing_arbitrary_bytes_never_panics(
        flags: u16,
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = acknowledgement(flags, &bytes);
        let _ = parts(&bytes).count();
    }
}
