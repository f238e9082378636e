//! UDP datagrams of a capture.

use std::fmt;

use etherparse::err::packet::SliceError;
use etherparse::{EtherType, SlicedPacket, TransportSlice};
use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};

use crate::workload::{EchoedTag, SourceError};

/// First bytes of a pcapng file, and of pcap files in both byte orders, of microseconds and of nanoseconds.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const PCAP: [[u8; 4]; 4] =
    [[0xa1, 0xb2, 0xc3, 0xd4], [0xd4, 0xc3, 0xb2, 0xa1], [0xa1, 0xb2, 0x3c, 0x4d], [0x4d, 0x3c, 0xb2, 0xa1]];

/// Bytes of a header of LINKTYPE_LINUX_SLL2; it begins with the ether type.
const SLL2_BYTES: usize = 20;

/// What of a capture was left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SkippedPackets {
    not_udp: usize,
    fragments: usize,
    cut_short: usize,
    malformed: usize,
    empty: usize,
    too_short_for_the_tag: usize,
}

/// What a packet holds.
enum PacketContent<'a> {
    Payload(&'a [u8]),
    NotUdp,
    Fragment,
    CutShort,
    Malformed,
}

pub(super) fn is_capture(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|first| *first == PCAPNG || PCAP.contains(first))
}

/// The payloads, and what was left out if anything was.
pub(super) fn payloads(
    bytes: &[u8],
    file: &str,
    tag: Option<EchoedTag>,
) -> Result<(Vec<Vec<u8>>, Option<SkippedPackets>), SourceError> {
    let failed = |problem: String| SourceError::File { file: file.to_owned(), problem };
    if !is_capture(bytes) {
        return Err(failed("neither a pcap nor a pcapng file".to_owned()));
    }
    let mut payloads = Vec::new();
    let mut skipped = SkippedPackets::default();
    let least = tag.map_or(1, |tag| tag.request_offset + tag.bytes);
    let mut take = |link: DataLink, packet: &[u8]| {
        match content(link, packet)? {
            PacketContent::Payload([]) => skipped.empty += 1,
            PacketContent::Payload(payload) if payload.len() < least => skipped.too_short_for_the_tag += 1,
            PacketContent::Payload(payload) => payloads.push(payload.to_vec()),
            PacketContent::NotUdp => skipped.not_udp += 1,
            PacketContent::Fragment => skipped.fragments += 1,
            PacketContent::CutShort => skipped.cut_short += 1,
            PacketContent::Malformed => skipped.malformed += 1,
        }
        Ok(())
    };
    let walked =
        if bytes.starts_with(&PCAPNG) { walk_pcapng(bytes, &mut take) } else { walk_pcap(bytes, &mut take) };
    walked.map_err(failed)?;
    let skipped = (skipped != SkippedPackets::default()).then_some(skipped);
    if payloads.is_empty() {
        let found = skipped.map_or_else(|| "it has no packets".to_owned(), |skipped| skipped.to_string());
        return Err(failed(format!("no UDP datagram to send: {found}")));
    }
    Ok((payloads, skipped))
}

/// Takes a packet of a link, or says why no packet of that link can be taken.
type Take<'a> = dyn FnMut(DataLink, &[u8]) -> Result<(), String> + 'a;

fn walk_pcap(bytes: &[u8], take: &mut Take<'_>) -> Result<(), String> {
    let mut reader = PcapReader::new(bytes).map_err(|error| format!("no pcap header: {error}"))?;
    let link = reader.header().datalink;
    let mut number = 0;
    while let Some(packet) = reader.next_raw_packet() {
        number += 1;
        let packet = packet.map_err(|error| format!("packet {number} cannot be read: {error}"))?;
        take(link, &packet.data)?;
    }
    Ok(())
}

fn walk_pcapng(bytes: &[u8], take: &mut Take<'_>) -> Result<(), String> {
    let mut reader = PcapNgReader::new(bytes).map_err(|error| format!("no pcapng header: {error}"))?;
    let mut links: Vec<DataLink> = Vec::new();
    let mut number = 0;
    while let Some(block) = reader.next_block() {
        number += 1;
        let of = |interface: usize, links: &[DataLink]| {
            links
                .get(interface)
                .copied()
                .ok_or_else(|| format!("block {number} is of an interface that is not described"))
        };
        match block.map_err(|error| format!("block {number} cannot be read: {error}"))? {
            Block::SectionHeader(_) => links.clear(),
            Block::InterfaceDescription(interface) => links.push(interface.linktype),
            Block::EnhancedPacket(packet) => take(of(packet.interface_id as usize, &links)?, &packet.data)?,
            Block::SimplePacket(packet) => take(of(0, &links)?, &packet.data)?,
            Block::Packet(packet) => take(of(usize::from(packet.interface_id), &links)?, &packet.data)?,
            _ => {}
        }
    }
    Ok(())
}

fn content(link: DataLink, packet: &[u8]) -> Result<PacketContent<'_>, String> {
    let sliced = match link {
        DataLink::ETHERNET => SlicedPacket::from_ethernet(packet),
        DataLink::LINUX_SLL => SlicedPacket::from_linux_sll(packet),
        DataLink::LINUX_SLL2 => match packet.split_at_checked(SLL2_BYTES) {
            Some((header, rest)) => {
                let kind = u16::from_be_bytes([header[0], header[1]]);
                SlicedPacket::from_ether_type(EtherType(kind), rest)
            }
            None => return Ok(PacketContent::CutShort),
        },
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => SlicedPacket::from_ip(packet),
        other => {
            return Err(format!("link type {other:?}: only Ethernet, Linux cooked and bare IP are known"));
        }
    };
    Ok(match sliced {
        Err(SliceError::Len(_)) => PacketContent::CutShort,
        Err(_) => PacketContent::Malformed,
        Ok(sliced) if sliced.is_ip_payload_fragmented() => PacketContent::Fragment,
        Ok(SlicedPacket { transport: Some(TransportSlice::Udp(datagram)), .. }) => {
            PacketContent::Payload(datagram.payload())
        }
        Ok(_) => PacketContent::NotUdp,
    })
}

impl fmt::Display for SkippedPackets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons = [
            (self.not_udp, "not UDP"),
            (self.fragments, "fragments"),
            (self.cut_short, "cut short"),
            (self.malformed, "malformed"),
            (self.empty, "without payload"),
            (self.too_short_for_the_tag, "too short for the tag"),
        ];
        let total: usize = reasons.iter().map(|(count, _)| count).sum();
        write!(f, "{total} packet{} left out:", if total == 1 { "" } else { "s" })?;
        let mut separator = " ";
        for (count, reason) in reasons.iter().filter(|(count, _)| *count > 0) {
            write!(f, "{separator}{count} {reason}")?;
            separator = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::raw::from_pcap;
    use etherparse::PacketBuilder;
    use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
    use pcap_file::pcapng::PcapNgWriter;
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
    use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
    use proptest::prelude::*;
    use std::time::Duration;

    const TAG: EchoedTag = EchoedTag { bytes: 2, request_offset: 0, reply_offset: 0 };

    fn pcap(link: DataLink, packets: &[Vec<u8>]) -> Vec<u8> {
        let header = PcapHeader { datalink: link, ..PcapHeader::default() };
        let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
        for data in packets {
            let packet = PcapPacket::new(Duration::ZERO, data.len() as u32, data);
            writer.write_packet(&packet).unwrap();
        }
        writer.into_writer()
    }

    fn built(builder: etherparse::PacketBuilderStep<etherparse::UdpHeader>, payload: &[u8]) -> Vec<u8> {
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
    fn datagrams_of_all_links_and_families_are_taken() {
        let plain = built(ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1, 53), b"plain");
        let vlan = etherparse::VlanId::try_new(7).unwrap();
        let tagged = built(ethernet().single_vlan(vlan).ipv6([1; 16], [2; 16], 64).udp(1, 2), b"tagged");
        let bare = built(v4().udp(9, 9), b"bare");
        let payloads = |link, packets: &[Vec<u8>]| from_pcap(&pcap(link, packets), "c", None).unwrap();
        let exchange = payloads(DataLink::ETHERNET, &[plain, tagged]);
        assert_eq!(exchange.requests, [b"plain".to_vec(), b"tagged".to_vec()]);
        assert!(exchange.notes.is_empty());
        assert_eq!(payloads(DataLink::RAW, std::slice::from_ref(&bare)).requests, [b"bare"]);
        let cooked = [&[0, 0, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0, 0x08, 0x00], &bare[..]].concat();
        assert_eq!(payloads(DataLink::LINUX_SLL, &[cooked]).requests, [b"bare"]);
        let cooked =
            [&[0x08, 0x00, 0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0], &bare[..]].concat();
        assert_eq!(payloads(DataLink::LINUX_SLL2, &[cooked]).requests, [b"bare"]);
    }

    #[test]
    fn pcapng_is_read_as_well() {
        let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
        let interface = InterfaceDescriptionBlock { linktype: DataLink::RAW, snaplen: 0, options: vec![] };
        writer.write_pcapng_block(interface).unwrap();
        let data = built(v4().udp(9, 9), b"next generation");
        let packet = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::ZERO,
            original_len: data.len() as u32,
            data: data.into(),
            options: vec![],
        };
        writer.write_pcapng_block(packet).unwrap();
        let bytes = writer.into_inner();
        assert!(is_capture(&bytes));
        assert_eq!(from_pcap(&bytes, "c", Some(TAG)).unwrap().requests, [b"next generation"]);
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let good = built(v4().udp(9, 9), b"good");
        let mut tcp = Vec::new();
        v4().tcp(1, 2, 3, 4).write(&mut tcp, b"tcp").unwrap();
        let mut fragment = good.clone();
        fragment[6] = 0x20;
        let packets = [
            good.clone(),
            tcp.clone(),
            fragment,
            good[..good.len() - 1].to_vec(),
            built(v4().udp(9, 9), b""),
            built(v4().udp(9, 9), b"x"),
            vec![0xff; 40],
        ];
        let exchange = from_pcap(&pcap(DataLink::RAW, &packets), "c", Some(TAG)).unwrap();
        assert_eq!(exchange.requests, [b"good"]);
        assert_eq!(
            exchange.notes,
            [
                "c: 6 packets left out: 1 not UDP, 1 fragments, 1 cut short, 1 malformed, 1 without payload, 1 too short for the tag"
            ]
        );
        let error = from_pcap(&pcap(DataLink::RAW, &[tcp]), "c", None).unwrap_err().to_string();
        assert_eq!(error, "c: no UDP datagram to send: 1 packet left out: 1 not UDP");
    }

    #[test]
    fn no_capture_and_other_links_are_refused() {
        let says = |bytes: &[u8]| from_pcap(bytes, "c", None).unwrap_err().to_string();
        assert_eq!(says(b"0001"), "c: neither a pcap nor a pcapng file");
        assert!(says(&PCAP[1]).starts_with("c: no pcap header: "));
        assert_eq!(says(&pcap(DataLink::RAW, &[])), "c: no UDP datagram to send: it has no packets");
        assert!(says(&pcap(DataLink::IEEE802_11, &[vec![0; 60]])).contains("link type IEEE802_11"));
        let whole = pcap(DataLink::RAW, &[built(v4().udp(9, 9), b"good")]);
        assert!(says(&whole[..whole.len() - 1]).starts_with("c: packet 1 cannot be read: "));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            magic in prop::sample::select(vec![PCAPNG, PCAP[0], PCAP[1], PCAP[3]]),
            rest in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = from_pcap(&[&magic[..], &rest].concat(), "c", None);
        }

        #[test]
        fn any_packet_is_taken_or_left_out(bytes in prop::collection::vec(any::<u8>(), 0..120), link in prop::sample::select(vec![
            DataLink::ETHERNET, DataLink::RAW, DataLink::LINUX_SLL, DataLink::LINUX_SLL2,
        ])) {
            prop_assert!(content(link, &bytes).is_ok());
        }
    }
}
