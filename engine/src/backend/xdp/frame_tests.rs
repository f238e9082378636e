use etherparse::{PacketBuilder, VlanId};
use proptest::prelude::*;

use super::*;

/// The addresses of a request: index 0 is the sender, index 1 the server.
#[derive(Debug, Clone, Copy)]
struct FrameEndpoints {
    ipv6: bool,
    vlans: u8,
    macs: [[u8; 6]; 2],
    addresses: [[u8; 16]; 2],
    ports: [u16; 2],
}

impl FrameEndpoints {
    fn back(self) -> Self {
        let swap = |[a, b]: [_; 2]| [b, a];
        Self {
            macs: [self.macs[1], self.macs[0]],
            addresses: [self.addresses[1], self.addresses[0]],
            ports: swap(self.ports),
            ..self
        }
    }

    /// A frame with checksums that etherparse builds, independent of linerate's code.
    fn frame(self, payload: &[u8], hops: u8) -> Vec<u8> {
        let ethernet = PacketBuilder::ethernet2(self.macs[0], self.macs[1]);
        let vlan = |id: u16| VlanId::try_new(id).unwrap();
        let four = |address: [u8; 16]| [address[0], address[1], address[2], address[3]];
        let [source, target] = self.addresses;
        let mut frame = Vec::new();
        macro_rules! finish {
            ($builder:expr) => {
                if self.ipv6 {
                    let packet = $builder.ipv6(source, target, hops).udp(self.ports[0], self.ports[1]);
                    packet.write(&mut frame, payload).unwrap();
                } else {
                    let packet =
                        $builder.ipv4(four(source), four(target), hops).udp(self.ports[0], self.ports[1]);
                    packet.write(&mut frame, payload).unwrap();
                }
            };
        }
        match self.vlans {
            0 => finish!(ethernet),
            1 => finish!(ethernet.single_vlan(vlan(77))),
            _ => finish!(ethernet.double_vlan(vlan(5), vlan(4095))),
        }
        if self.vlans == 3 {
            // Both tags are 802.1Q.
            frame[12..14].copy_from_slice(&[0x81, 0]);
        }
        frame
    }
}

fn ends() -> impl Strategy<Value = FrameEndpoints> {
    (any::<bool>(), 0..4u8, any::<[[u8; 6]; 2]>(), any::<[[u8; 16]; 2]>(), any::<[u16; 2]>()).prop_map(
        |(ipv6, vlans, macs, addresses, ports)| FrameEndpoints { ipv6, vlans, macs, addresses, ports },
    )
}

/// The reply that `FrameLayout` writes over the request in a UMEM frame; `None` for `payload`: an
/// echo.
fn reply(request: &[u8], payload: Option<&[u8]>) -> Option<Vec<u8>> {
    let layout = FrameLayout::parse(request)?;
    let mut room = request.to_vec();
    room.resize(2048, 0xee);
    let length = match payload {
        Some(payload) => {
            room[layout.payload_offset()..layout.payload_offset() + payload.len()].copy_from_slice(payload);
            payload.len()
        }
        None => layout.end() - layout.payload_offset(),
    };
    let end = layout.make_reply(&mut room, length);
    room.truncate(end);
    Some(room)
}

proptest! {
    #[test]
    fn reply_frames_match_frames_built_by_etherparse(
        ends in ends(),
        request in proptest::collection::vec(any::<u8>(), 0..1473),
        answer in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..1473)),
        padding in 0..20usize,
    ) {
        let mut frame = ends.frame(&request, 3);
        frame.resize(frame.len() + padding, 0);
        let layout = FrameLayout::parse(&frame).unwrap();
        prop_assert_eq!(&frame[layout.payload_offset()..layout.end()], request.as_slice());
        prop_assert_eq!(layout.verify(&frame), RequestChecksum::Fine);
        let expected = ends.back().frame(answer.as_ref().unwrap_or(&request), HOPS);
        let actual = reply(&frame, answer.as_deref()).unwrap();
        prop_assert_eq!(FrameLayout::parse(&actual).unwrap().verify(&actual), RequestChecksum::Fine);
        prop_assert_eq!(actual, expected);
    }

    #[test]
    fn payload_corruption_fails_checksum_verification(ends in ends(), request in proptest::collection::vec(any::<u8>(), 1..200), at: proptest::sample::Index, by in 1..=255u8) {
        let mut frame = ends.frame(&request, 64);
        let layout = FrameLayout::parse(&frame).unwrap();
        let position = layout.payload_offset() + at.index(request.len());
        frame[position] ^= by;
        prop_assert_eq!(layout.verify(&frame), RequestChecksum::Wrong);
    }

    #[test]
    fn unfinished_checksums_are_reported_and_replies_have_valid_checksums(ends in ends(), request in proptest::collection::vec(any::<u8>(), 1..200)) {
        let mut frame = ends.frame(&request, 64);
        let layout = FrameLayout::parse(&frame).unwrap();
        let udp = layout.udp_offset();
        let checksum = [frame[udp + 6], frame[udp + 7]];
        let pseudo = fold(layout.pseudo_header_sum(&frame, layout.end() - udp)).to_ne_bytes();
        prop_assume!(pseudo != checksum && pseudo != [0, 0]);
        frame[udp + 6..udp + 8].copy_from_slice(&pseudo);
        prop_assert_eq!(layout.verify(&frame), RequestChecksum::Unfinished);
        let expected = ends.back().frame(&request, HOPS);
        prop_assert_eq!(reply(&frame, None).unwrap(), expected);
    }

    #[test]
    fn parsing_arbitrary_frames_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), ends in ends(), cut in 0..100usize, at: proptest::sample::Index, by: u8) {
        let mut frame = ends.frame(&bytes, 9);
        let position = at.index(frame.len());
        frame[position] = by;
        frame.truncate(frame.len().saturating_sub(cut));
        for frame in [&bytes, &frame] {
            if let Some(layout) = FrameLayout::parse(frame) {
                prop_assert!(layout.payload_offset() <= layout.end() && layout.end() <= frame.len());
                let _ = (layout.verify(frame), layout.addresses(frame, 1).source());
                let _ = reply(frame, None);
            }
        }
    }
}

#[test]
fn parse_rejects_fragments_ip_options_tcp_and_wrong_udp_lengths() {
    let ends =
        FrameEndpoints { ipv6: false, vlans: 0, macs: [[2; 6]; 2], addresses: [[7; 16]; 2], ports: [1, 2] };
    let frame = ends.frame(b"hello", 64);
    assert!(FrameLayout::parse(&frame).is_some());
    for (at, value) in [(14, 0x46), (20, 0x20), (21, 0x01), (23, 6), (39, 7), (39, 14)] {
        let mut changed_frame = frame.clone();
        changed_frame[at] = value;
        assert_eq!(FrameLayout::parse(&changed_frame), None, "{at} {value}");
    }
}

#[test]
fn link_local_source_addresses_include_the_interface_index() {
    let mut address = [0; 16];
    address[..2].copy_from_slice(&[0xfe, 0x80]);
    address[15] = 9;
    let ends =
        FrameEndpoints { ipv6: true, vlans: 1, macs: [[2; 6]; 2], addresses: [address; 2], ports: [5, 53] };
    let frame = ends.frame(b"", 64);
    let addresses = FrameLayout::parse(&frame).unwrap().addresses(&frame, 7);
    assert_eq!(addresses.source().to_string(), "[fe80::9%7]:5");
    assert_eq!(addresses.destination().to_string(), "fe80::9");
}

#[test]
fn replies_in_frames_are_not_longer_than_their_request_or_1280_bytes() {
    let ends =
        FrameEndpoints { ipv6: false, vlans: 1, macs: [[2; 6]; 2], addresses: [[7; 16]; 2], ports: [5, 53] };
    for (request, mtu, longest) in
        [(40, 1500, 1252), (1372, 1500, 1372), (1472, 1500, 1472), (1472, 1400, 1372), (40, 1000, 972)]
    {
        let frame = ends.frame(&vec![0; request], 64);
        assert_eq!(FrameLayout::parse(&frame).unwrap().max_payload(mtu), longest, "{request} {mtu}");
    }
}
