//! UDP datagrams of a capture.

use std::collections::BTreeMap;

use etherparse::err::packet::SliceError;
use etherparse::{EtherType, SlicedPacket, TransportSlice};

use crate::workload::EchoedTag;
use crate::workload::error::SourceError;

// First bytes of a pcapng file, and of pcap files in both byte orders, of microseconds and of nanoseconds.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const PCAP: [[u8; 4]; 4] =
    [[0xa1, 0xb2, 0xc3, 0xd4], [0xd4, 0xc3, 0xb2, 0xa1], [0xa1, 0xb2, 0x3c, 0x4d], [0x4d, 0x3c, 0xb2, 0xa1]];

// Blocks of a pcapng file (draft-ietf-opsawg-pcapng, section 4). Its first bytes are the type of a section header.
const SECTION_HEADER: u32 = u32::from_le_bytes(PCAPNG);
const INTERFACE_DESCRIPTION: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// Link types (https://www.tcpdump.org/linktypes.html).
const ETHERNET: u32 = 1;
const RAW: u32 = 101;
const LINUX_SLL: u32 = 113;
const IPV4: u32 = 228;
const IPV6: u32 = 229;
const LINUX_SLL2: u32 = 276;

// Bytes of a header of LINKTYPE_LINUX_SLL2; it begins with the ether type.
const SLL2_BYTES: usize = 20;

/// Why a packet of a capture is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
enum SkipReason {
    #[strum(serialize = "not UDP")]
    NotUdp,
    #[strum(serialize = "fragments")]
    Fragment,
    #[strum(serialize = "cut short")]
    CutShort,
    #[strum(serialize = "malformed")]
    Malformed,
    #[strum(serialize = "without payload")]
    Empty,
    #[strum(serialize = "too short for the tag")]
    TooShortForTheTag,
}

pub(super) fn is_capture(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|first| *first == PCAPNG || PCAP.contains(first))
}

// The payloads, and a note if any packets were left out.
pub(super) fn payloads(
    bytes: &[u8],
    file: &str,
    tag: Option<EchoedTag>,
) -> Result<(Vec<Vec<u8>>, Option<String>), SourceError> {
    let file_error = |problem: String| SourceError::file(file, problem);
    if !is_capture(bytes) {
        return Err(file_error("neither a pcap nor a pcapng file".to_owned()));
    }
    let mut payloads = Vec::new();
    let mut skipped: BTreeMap<SkipReason, usize> = BTreeMap::new();
    let min_length = tag.map_or(1, |tag| tag.request_offset + tag.bytes);
    let mut add_packet = |link: u32, packet: &[u8]| {
        let reason = match udp_payload(link, packet)? {
            Ok([]) => SkipReason::Empty,
            Ok(payload) if payload.len() < min_length => SkipReason::TooShortForTheTag,
            Ok(payload) => {
                payloads.push(payload.to_vec());
                return Ok(());
            }
            Err(reason) => reason,
        };
        *skipped.entry(reason).or_default() += 1;
        Ok(())
    };
    let walk_result = if bytes.starts_with(&PCAPNG) {
        walk_pcapng(bytes, &mut add_packet)
    } else {
        walk_pcap(bytes, &mut add_packet)
    };
    walk_result.map_err(file_error)?;
    let note = (!skipped.is_empty()).then(|| skip_note(&skipped));
    if payloads.is_empty() {
        let note = note.unwrap_or_else(|| "it has no packets".to_owned());
        return Err(file_error(format!("no UDP datagram to send: {note}")));
    }
    Ok((payloads, note))
}

/// Accepts a packet of a link, or returns why no packet of that link can be accepted.
type Take<'a> = dyn FnMut(u32, &[u8]) -> Result<(), String> + 'a;

/// Numbers and bytes of a capture, in the byte order of the host that wrote it.
struct CaptureFields<'a> {
    rest: &'a [u8],
    is_big_endian: bool,
}

impl<'a> CaptureFields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        let bytes = self.bytes(2)?.try_into().ok()?;
        Some(if self.is_big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.bytes(4)?.try_into().ok()?;
        Some(if self.is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    /// A packet after its time stamp: its length here, its length on the wire, its bytes.
    fn packet(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.u32()?;
        self.bytes(length as usize)
    }

    /// The type and the body of a pcapng block.
    fn block(&mut self) -> Option<(u32, CaptureFields<'a>)> {
        let kind = self.u32()?;
        if kind == SECTION_HEADER {
            self.is_big_endian = match self.rest.get(4..8)? {
                [0x1a, 0x2b, 0x3c, 0x4d] => true,
                [0x4d, 0x3c, 0x2b, 0x1a] => false,
                _ => return None,
            };
        }
        let length = self.u32()?;
        // The type, the length, and the length once more after the body.
        let rest = self.bytes((length as usize).checked_sub(12)?)?;
        (self.u32()? == length).then_some((kind, CaptureFields { rest, ..*self }))
    }
}

struct CapturedInterface {
    link: u32,
    // The most bytes of a packet that are in the file; 0: all.
    most_bytes: u32,
}

fn walk_pcap(bytes: &[u8], add_packet: &mut Take<'_>) -> Result<(), String> {
    let mut fields = CaptureFields { rest: bytes, is_big_endian: bytes.starts_with(&[0xa1]) };
    let link = fields.bytes(20).and_then(|_| fields.u32()).ok_or("no pcap header: the file is too short")?;
    let mut number = 0;
    while !fields.rest.is_empty() {
        number += 1;
        let packet = fields.bytes(8).and_then(|_| fields.packet());
        // The upper bits are flags.
        add_packet(
            link & 0x0fff_ffff,
            packet.ok_or_else(|| format!("packet {number} cannot be read: it is cut short"))?,
        )?;
    }
    Ok(())
}

fn walk_pcapng(bytes: &[u8], add_packet: &mut Take<'_>) -> Result<(), String> {
    let mut fields = CaptureFields { rest: bytes, is_big_endian: false };
    let mut interfaces: Vec<CapturedInterface> = Vec::new();
    let mut number = 0;
    while !fields.rest.is_empty() {
        number += 1;
        let unreadable = || format!("block {number} cannot be read: it is cut short or garbled");
        let (kind, mut body) = fields.block().ok_or_else(unreadable)?;
        let interface = match kind {
            SECTION_HEADER => {
                interfaces.clear();
                continue;
            }
            INTERFACE_DESCRIPTION => {
                let link = body.u16().zip(body.u16()).zip(body.u32());
                let ((link, _), most_bytes) = link.ok_or_else(unreadable)?;
                interfaces.push(CapturedInterface { link: u32::from(link), most_bytes });
                continue;
            }
            PACKET => body.u16().zip(body.u16()).map(|(interface, _)| u32::from(interface)),
            SIMPLE_PACKET => Some(0),
            ENHANCED_PACKET => body.u32(),
            _ => continue,
        };
        let interface = interfaces
            .get(interface.ok_or_else(unreadable)? as usize)
            .ok_or_else(|| format!("block {number} is of an interface that is not described"))?;
        let packet = if kind == SIMPLE_PACKET {
            let max_bytes = if interface.most_bytes == 0 { u32::MAX } else { interface.most_bytes };
            body.u32().and_then(|length| body.bytes(length.min(max_bytes) as usize))
        } else {
            body.bytes(8).and_then(|_| body.packet())
        };
        add_packet(interface.link, packet.ok_or_else(unreadable)?)?;
    }
    Ok(())
}

/// The payload of a packet, or why it is left out; an error if no packet of that link can be read.
fn udp_payload(link: u32, packet: &[u8]) -> Result<Result<&[u8], SkipReason>, String> {
    let sliced = match link {
        ETHERNET => SlicedPacket::from_ethernet(packet),
        LINUX_SLL => SlicedPacket::from_linux_sll(packet),
        LINUX_SLL2 => match packet.split_at_checked(SLL2_BYTES) {
            Some((header, payload)) => {
                let kind = u16::from_be_bytes([header[0], header[1]]);
                SlicedPacket::from_ether_type(EtherType(kind), payload)
            }
            None => return Ok(Err(SkipReason::CutShort)),
        },
        RAW | IPV4 | IPV6 => SlicedPacket::from_ip(packet),
        other => {
            return Err(format!("link type {other}: only Ethernet, Linux cooked and bare IP are known"));
        }
    };
    Ok(match sliced {
        Err(SliceError::Len(_)) => Err(SkipReason::CutShort),
        Err(_) => Err(SkipReason::Malformed),
        Ok(sliced) if sliced.is_ip_payload_fragmented() => Err(SkipReason::Fragment),
        Ok(SlicedPacket { transport: Some(TransportSlice::Udp(datagram)), .. }) => Ok(datagram.payload()),
        Ok(_) => Err(SkipReason::NotUdp),
    })
}

fn skip_note(skipped: &BTreeMap<SkipReason, usize>) -> String {
    let total: usize = skipped.values().sum();
    let counts: Vec<String> = skipped.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    format!("{total} packet{} left out: {}", if total == 1 { "" } else { "s" }, counts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::raw::from_pcap;
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    const TAG: EchoedTag = EchoedTag { bytes: 2, request_offset: 0, reply_offset: 0 };

    fn pcap(link: u32, packets: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes =
            [&PCAP[1][..], &[2, 0, 4, 0], &[0; 8], &65_535_u32.to_le_bytes(), &link.to_le_bytes()].concat();
        for packet in packets {
            let length = (packet.len() as u32).to_le_bytes();
            bytes.extend([&[0; 8], &length[..], &length, packet].concat());
        }
        bytes
    }

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let body = [body, &[0; 3][..body.len().next_multiple_of(4) - body.len()]].concat();
        let length = (12 + body.len() as u32).to_be_bytes();
        [&kind.to_be_bytes()[..], &length, &body, &length].concat()
    }

    fn udp_packet(builder: etherparse::PacketBuilderStep<etherparse::UdpHeader>, payload: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        builder.write(&mut packet, payload).unwrap();
        packet
    }

    fn v4() -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
    }

    fn ethernet() -> etherparse::PacketBuilderStep<etherparse::Ethernet2Header> {
        PacketBuilder::ethernet2([2; 6], [4; 6])
    }

    #[test]
    fn udp_payloads_are_read_from_all_link_types_and_ip_versions() {
        let plain = udp_packet(ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1, 53), b"plain");
        let vlan = etherparse::VlanId::try_new(7).unwrap();
        let tagged = udp_packet(ethernet().single_vlan(vlan).ipv6([1; 16], [2; 16], 64).udp(1, 2), b"tagged");
        let bare = udp_packet(v4().udp(9, 9), b"bare");
        let payloads = |link, packets: &[Vec<u8>]| from_pcap(&pcap(link, packets), "c", None).unwrap();
        let exchange = payloads(ETHERNET, &[plain, tagged]);
        assert_eq!(exchange.requests, [b"plain".to_vec(), b"tagged".to_vec()]);
        assert!(exchange.notes.is_empty());
        assert_eq!(payloads(RAW, std::slice::from_ref(&bare)).requests, [b"bare"]);
        let cooked = [&[0, 0, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0, 0x08, 0x00], &bare[..]].concat();
        assert_eq!(payloads(LINUX_SLL, &[cooked]).requests, [b"bare"]);
        let cooked =
            [&[0x08, 0x00, 0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0], &bare[..]].concat();
        assert_eq!(payloads(LINUX_SLL2, &[cooked]).requests, [b"bare"]);
    }

    #[test]
    fn pcapng_packet_blocks_are_read_and_damage_is_refused() {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
        let data = udp_packet(v4().udp(9, 9), b"next generation");
        let length = data.len() as u32;
        let bytes = [
            block(SECTION_HEADER, &words(&[0x1a2b_3c4d, 1 << 16, u32::MAX, u32::MAX])),
            block(INTERFACE_DESCRIPTION, &words(&[RAW << 16, 0])),
            block(4, &[0; 8]),
            block(ENHANCED_PACKET, &[words(&[0, 0, 0, length, length]), data.clone()].concat()),
            block(SIMPLE_PACKET, &[words(&[length]), data.clone()].concat()),
            block(PACKET, &[words(&[0, 0, 0, length, length]), data].concat()),
        ]
        .concat();
        assert!(is_capture(&bytes));
        assert_eq!(from_pcap(&bytes, "c", Some(TAG)).unwrap().requests, [b"next generation"; 3]);
        let error_text = |bytes: &[u8]| from_pcap(bytes, "c", None).unwrap_err().to_string();
        assert!(error_text(&bytes[..bytes.len() - 1]).starts_with("c: block 6 cannot be read: "));
        let undescribed = [&bytes[..28], &bytes[48..]].concat();
        assert_eq!(error_text(&undescribed), "c: block 3 is of an interface that is not described");
    }

    #[test]
    fn skipped_packets_are_counted_by_reason() {
        let good = udp_packet(v4().udp(9, 9), b"good");
        let mut tcp = Vec::new();
        v4().tcp(1, 2, 3, 4).write(&mut tcp, b"tcp").unwrap();
        let mut fragment = good.clone();
        fragment[6] = 0x20;
        let packets = [
            good.clone(),
            tcp.clone(),
            fragment,
            good[..good.len() - 1].to_vec(),
            udp_packet(v4().udp(9, 9), b""),
            udp_packet(v4().udp(9, 9), b"x"),
            vec![0xff; 40],
        ];
        let exchange = from_pcap(&pcap(RAW, &packets), "c", Some(TAG)).unwrap();
        assert_eq!(exchange.requests, [b"good"]);
        assert_eq!(
            exchange.notes,
            [
                "c: 6 packets left out: 1 not UDP, 1 fragments, 1 cut short, 1 malformed, 1 without payload, 1 too short for the tag"
            ]
        );
        let error = from_pcap(&pcap(RAW, &[tcp]), "c", None).unwrap_err().to_string();
        assert_eq!(error, "c: no UDP datagram to send: 1 packet left out: 1 not UDP");
    }

    #[test]
    fn broken_captures_and_other_link_types_are_refused() {
        let error_text = |bytes: &[u8]| from_pcap(bytes, "c", None).unwrap_err().to_string();
        assert_eq!(error_text(b"0001"), "c: neither a pcap nor a pcapng file");
        assert!(error_text(&PCAP[1]).starts_with("c: no pcap header: "));
        assert_eq!(error_text(&pcap(RAW, &[])), "c: no UDP datagram to send: it has no packets");
        assert!(error_text(&pcap(105, &[vec![0; 60]])).contains("link type 105"));
        let whole = pcap(RAW, &[udp_packet(v4().udp(9, 9), b"good")]);
        assert!(error_text(&whole[..whole.len() - 1]).starts_with("c: packet 1 cannot be read: "));
    }

    proptest! {
        #[test]
        fn parsing_arbitrary_capture_bytes_never_panics(
            magic in prop::sample::select(vec![PCAPNG, PCAP[0], PCAP[1], PCAP[3]]),
            rest in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = from_pcap(&[&magic[..], &rest].concat(), "c", None);
        }

        #[test]
        fn arbitrary_packets_of_known_link_types_are_no_error(
            bytes in prop::collection::vec(any::<u8>(), 0..120),
            link in prop::sample::select(vec![ETHERNET, RAW, LINUX_SLL, LINUX_SLL2]),
        ) {
            prop_assert!(udp_payload(link, &bytes).is_ok());
        }
    }
}
