//! The headers of frames, and their checksums.

use std::net::{IpAddr, SocketAddr};

use crate::header::{MAGIC, RequestCodec};
use crate::sys::xdp::HEAD_BYTES;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const UDP: u8 = 17;
const HOPS: u8 = 64;
const UDP_BYTES: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FlowRoute {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) from_mac: [u8; 6],
    pub(super) to_mac: [u8; 6],
    pub(super) vlan: Option<u16>,
}

// The headers of a flow's requests, final except for the fields that vary: lengths (if requests
// differ in length) and checksums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestHeaders {
    pub(super) bytes: [u8; HEAD_BYTES],
    pub(super) length: usize,
    /// Sum for the UDP checksum: pseudo header, ports and, if it is fixed, the length. In memory
    /// order, folded to 16 bits, not complemented.
    pub(super) sum: u32,
    /// The checksum of the IPv4 header, without the length.
    pub(super) ip_sum: u32,
}

// The headers of requests of `payload` bytes each; `None` if their lengths differ.
pub(super) fn request_headers(route: &FlowRoute, payload: Option<usize>) -> RequestHeaders {
    let udp_length = payload.map_or(0, |payload| (payload + UDP_BYTES) as u16);
    let mut bytes = Vec::with_capacity(HEAD_BYTES);
    bytes.extend_from_slice(&route.to_mac);
    bytes.extend_from_slice(&route.from_mac);
    if let Some(vlan) = route.vlan {
        bytes.extend_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
        bytes.extend_from_slice(&vlan.to_be_bytes());
    }
    let mut pseudo = Vec::new();
    let mut ip_sum = 0;
    match (route.from.ip(), route.to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            bytes.extend_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
            let start = bytes.len();
            // Version and header length, no service class, the length, no identification, "do not fragment".
            bytes.extend_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, HOPS, UDP, 0, 0]);
            pseudo.extend_from_slice(&from.octets());
            pseudo.extend_from_slice(&to.octets());
            bytes.extend_from_slice(&pseudo);
            ip_sum = u32::from(fold(sum(&bytes[start..])));
            if payload.is_some() {
                let total_length = (udp_length + 20).to_be_bytes();
                bytes[start + 2..start + 4].copy_from_slice(&total_length);
                let checksum = !fold(sum(&bytes[start..]));
                bytes[start + 10..start + 12].copy_from_slice(&checksum.to_ne_bytes());
            }
        }
        (from, to) => {
            bytes.extend_from_slice(&ETHERTYPE_IPV6.to_be_bytes());
            bytes.extend_from_slice(&[0x60, 0, 0, 0]);
            bytes.extend_from_slice(&udp_length.to_be_bytes());
            bytes.extend_from_slice(&[UDP, HOPS]);
            for address in [from, to] {
                pseudo.extend_from_slice(&match address {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                    IpAddr::V6(v6) => v6.octets(),
                });
            }
            bytes.extend_from_slice(&pseudo);
        }
    }
    let udp_offset = bytes.len();
    bytes.extend_from_slice(&route.from.port().to_be_bytes());
    bytes.extend_from_slice(&route.to.port().to_be_bytes());
    bytes.extend_from_slice(&udp_length.to_be_bytes());
    bytes.extend_from_slice(&[0, 0]);
    pseudo.extend_from_slice(&[0, UDP]);
    pseudo.extend_from_slice(&udp_length.to_be_bytes());
    let udp_sum = sum(&pseudo) + sum(&bytes[udp_offset..]);
    let mut padded_bytes = [0; HEAD_BYTES];
    padded_bytes[..bytes.len()].copy_from_slice(&bytes);
    RequestHeaders { bytes: padded_bytes, length: bytes.len(), sum: u32::from(fold(udp_sum)), ip_sum }
}

// The part of an echo request's checksum that all requests of a generator share.
pub(super) fn echo_sum(codec: &RequestCodec, run: u64) -> u32 {
    let mut payload = codec.blank();
    payload[..4].copy_from_slice(&MAGIC);
    payload[8..16].copy_from_slice(&run.to_be_bytes());
    u32::from(fold(sum(&payload)))
}

// The 16-bit words in memory order added up; a last odd byte is followed by a zero (RFC 1071).
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<2>();
    let sum: u64 = words.iter().map(|word| u64::from(u16::from_ne_bytes(*word))).sum();
    sum + tail.first().map_or(0, |byte| u64::from(u16::from_ne_bytes([*byte, 0])))
}

/// The one's complement sum, folded to 16 bits.
pub(super) fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(from: &str, to: &str, vlan: Option<u16>) -> FlowRoute {
        let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
        FlowRoute { from, to, from_mac: [2, 0, 0, 0, 0, 1], to_mac: [2, 0, 0, 0, 0, 2], vlan }
    }

    #[test]
    fn ipv4_header_checksum_and_length_are_correct() {
        for vlan in [None, Some(7)] {
            let head = request_headers(&route("198.18.0.100:4660", "198.18.0.1:7", vlan), Some(100));
            assert_eq!(head.length, if vlan.is_some() { 46 } else { 42 });
            let ip = head.length - 28;
            assert_eq!(fold(sum(&head.bytes[ip..ip + 20])), 0xffff);
            assert_eq!(head.bytes[ip + 2..ip + 4], 128u16.to_be_bytes());
            assert_eq!(head.bytes[ip - 2..ip], [8, 0]);
        }
    }

    #[test]
    fn checksums_of_a_header_without_length_can_be_completed() {
        let route = route("198.18.0.100:4660", "198.18.0.1:7", None);
        let (open, whole) = (request_headers(&route, None), request_headers(&route, Some(100)));
        let completed = !fold(u64::from(open.ip_sum) + u64::from(128u16.to_be()));
        assert_eq!(completed.to_ne_bytes(), whole.bytes[24..26]);
        let completed = fold(u64::from(open.sum) + 2 * u64::from(108u16.to_be()));
        assert_eq!(u32::from(completed), whole.sum);
    }

    #[test]
    fn an_ipv6_frame_has_vlan_ip_and_udp_headers_in_place() {
        let head = request_headers(&route("[2001:2::100]:4660", "[2001:2::1]:7", Some(5)), Some(40));
        assert_eq!(head.length, 66);
        assert_eq!(head.bytes[12..18], [0x81, 0, 0, 5, 0x86, 0xdd]);
        assert_eq!(head.bytes[18 + 4..18 + 8], [0, 48, 17, 64]);
        assert_eq!(head.bytes[58..66], [0x12, 0x34, 0, 7, 0, 48, 0, 0]);
    }
}
