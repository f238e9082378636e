//! Requests in Ethernet frames, and their conversion into replies in the same frame.
//!
//! Pure functions of bytes. The BPF program has checked a frame before, but this code does not rely
//! on it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

const MACS: usize = 12;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
const PROTOCOL_UDP: u8 = 17;
/// `IPV6_MIN_MTU`, include/uapi/linux/ipv6.h.
const IPV6_MTU: usize = 1280;
// The kernel's default for replies (`net.ipv4.ip_default_ttl`, `net.ipv6.conf.*.hop_limit`).
const HOPS: u8 = 64;

/// Where the parts of a request are in its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameLayout {
    ip: usize,
    ipv6: bool,
    /// End of the datagram; Ethernet's padding may follow.
    end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestChecksum {
    // Correct, or absent, which IPv4 allows.
    Fine,
    // The sum of the pseudo header only: the sender left the rest to a device, but the packet never
    // passed a device because it stayed on this machine (`CHECKSUM_PARTIAL`,
    // include/linux/skbuff.h; drivers/net/veth.c passes such packets on unchanged).
    Unfinished,
    Wrong,
}

impl FrameLayout {
    // Offsets of the parts; `None` unless this is one unfragmented UDP datagram whose lengths
    // agree.
    #[inline]
    pub(super) fn parse(frame: &[u8]) -> Option<Self> {
        let mut ip = MACS + 2;
        let mut kind = read_u16(frame, MACS)?;
        // Up to two tags, of which the inner one is always 802.1Q (bpf/vlan.h, `skip_tags`).
        if kind == 0x88a8 || kind == 0x8100 {
            kind = read_u16(frame, ip + 2)?;
            ip += 4;
        }
        if kind == 0x8100 {
            kind = read_u16(frame, ip + 2)?;
            ip += 4;
        }
        let (ipv6, udp, end) = match kind {
            0x0800 => {
                let header = frame.get(ip..ip + IPV4)?;
                let is_unfragmented = u16::from_be_bytes([header[6], header[7]]) & 0x3fff == 0;
                if header[0] != 0x45 || !is_unfragmented || header[9] != PROTOCOL_UDP {
                    return None;
                }
                let total_length = u16::from_be_bytes([header[2], header[3]]);
                (false, ip + IPV4, ip + usize::from(total_length))
            }
            0x86dd => {
                let header = frame.get(ip..ip + IPV6)?;
                if header[0] >> 4 != 6 || header[6] != PROTOCOL_UDP {
                    return None;
                }
                let length = u16::from_be_bytes([header[4], header[5]]);
                (true, ip + IPV6, ip + IPV6 + usize::from(length))
            }
            _ => return None,
        };
        let length = usize::from(read_u16(frame, udp + 4)?);
        let fits = length >= UDP && udp + length == end && end <= frame.len();
        fits.then_some(Self { ip, ipv6, end })
    }

    #[inline]
    fn udp_offset(self) -> usize {
        self.ip + if self.ipv6 { IPV6 } else { IPV4 }
    }

    /// Where the payload begins.
    #[inline]
    pub(super) fn payload_offset(self) -> usize {
        self.udp_offset() + UDP
    }

    /// Where the payload ends.
    #[inline]
    pub(super) fn end(self) -> usize {
        self.end
    }

    // Bytes that the payload of a reply may have. Nothing fragments a frame, and the stack's MTUs of paths do not apply to
    // it, so its IP packet is no longer than `mtu`, the interface's, and than what the path most likely carries: 1280
    // bytes, or the bytes of the request.
    #[inline]
    pub(super) fn max_payload(self, mtu: usize) -> usize {
        mtu.min(IPV6_MTU.max(self.end - self.ip)).saturating_sub(self.payload_offset() - self.ip)
    }

    pub(super) fn verify(self, frame: &[u8]) -> RequestChecksum {
        let udp = self.udp_offset();
        if !self.ipv6 && fold(sum(&frame[self.ip..udp])) != 0xffff {
            return RequestChecksum::Wrong;
        }
        let checksum = [frame[udp + 6], frame[udp + 7]];
        if checksum == [0, 0] {
            return if self.ipv6 { RequestChecksum::Wrong } else { RequestChecksum::Fine };
        }
        let pseudo_sum = self.pseudo_header_sum(frame, self.end - udp);
        if fold(pseudo_sum + sum(&frame[udp..self.end])) == 0xffff {
            return RequestChecksum::Fine;
        }
        if fold(pseudo_sum).to_ne_bytes() == checksum {
            RequestChecksum::Unfinished
        } else {
            RequestChecksum::Wrong
        }
    }

    /// The sum over the pseudo header of a datagram of `length` bytes, the same in both directions.
    #[inline]
    fn pseudo_header_sum(self, frame: &[u8], length: usize) -> u64 {
        let addresses = if self.ipv6 {
            &frame[self.ip + 8..self.ip + IPV6]
        } else {
            &frame[self.ip + 12..self.ip + IPV4]
        };
        let protocol_and_length = u16::from(PROTOCOL_UDP).to_be() as u64 + (length as u16).to_be() as u64;
        sum(addresses) + protocol_and_length
    }

    /// Turns the headers into those of a reply with `length` bytes of payload, which is already in
    /// place. Returns the bytes of the frame to send. The caller ensures that the frame has room.
    #[inline]
    pub(super) fn make_reply(self, frame: &mut [u8], length: usize) -> usize {
        let (ip, udp) = (self.ip, self.udp_offset());
        let datagram = UDP + length;
        let end = udp + datagram;
        let (target, source) = frame[..MACS].split_at_mut(6);
        target.swap_with_slice(source);
        if self.ipv6 {
            let header = &mut frame[ip..ip + IPV6];
            // Version. Traffic class and flow label are zero, because those in the frame are the
            // client's.
            header[..4].copy_from_slice(&[0x60, 0, 0, 0]);
            header[4..6].copy_from_slice(&(datagram as u16).to_be_bytes());
            header[7] = HOPS;
            let (source, target) = header[8..IPV6].split_at_mut(16);
            source.swap_with_slice(target);
        } else {
            let header = &mut frame[ip..ip + IPV4];
            header[1] = 0;
            header[2..4].copy_from_slice(&((IPV4 + datagram) as u16).to_be_bytes());
            // Don't Fragment, so that the identification means nothing (RFC 6864).
            header[4..8].copy_from_slice(&[0, 0, 0x40, 0]);
            header[8] = HOPS;
            header[10..12].fill(0);
            let (source, target) = header[12..IPV4].split_at_mut(4);
            source.swap_with_slice(target);
            let checksum = !fold(sum(header));
            header[10..12].copy_from_slice(&checksum.to_ne_bytes());
        }
        let ports = &mut frame[udp..udp + 4];
        let (source, target) = ports.split_at_mut(2);
        source.swap_with_slice(target);
        frame[udp + 4..udp + 6].copy_from_slice(&(datagram as u16).to_be_bytes());
        // Computed over the whole datagram, because the request's checksum may be wrong, partial or
        // absent.
        frame[udp + 6..udp + 8].fill(0);
        let checksum = match !fold(self.pseudo_header_sum(frame, datagram) + sum(&frame[udp..end])) {
            0 => 0xffff,
            checksum => checksum,
        };
        frame[udp + 6..udp + 8].copy_from_slice(&checksum.to_ne_bytes());
        end
    }

    #[inline]
    pub(super) fn traffic_class(self, frame: &[u8]) -> u8 {
        match self.ipv6 {
            true => frame[self.ip] << 4 | frame[self.ip + 1] >> 4,
            false => frame[self.ip + 1],
        }
    }

    #[inline]
    pub(super) fn addresses(self, frame: &[u8], interface: u32) -> FrameAddresses {
        let mut addresses =
            FrameAddresses { source: [0; 16], destination: [0; 16], port: 0, ipv6: self.ipv6, interface };
        let (source_offset, address_bytes) = if self.ipv6 { (self.ip + 8, 16) } else { (self.ip + 12, 4) };
        addresses.source[..address_bytes]
            .copy_from_slice(&frame[source_offset..source_offset + address_bytes]);
        addresses.destination[..address_bytes]
            .copy_from_slice(&frame[source_offset + address_bytes..source_offset + 2 * address_bytes]);
        addresses.port = u16::from_be_bytes([frame[self.udp_offset()], frame[self.udp_offset() + 1]]);
        addresses
    }
}

/// The source and destination of a request in a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameAddresses {
    source: [u8; 16],
    destination: [u8; 16],
    port: u16,
    ipv6: bool,
    interface: u32,
}

impl FrameAddresses {
    /// The sender. A link-local address includes the interface, as with a socket.
    pub(crate) fn source(&self) -> SocketAddr {
        match address(self.source, self.ipv6) {
            IpAddr::V4(v4) => (v4, self.port).into(),
            IpAddr::V6(v6) => {
                let scope = if v6.is_unicast_link_local() { self.interface } else { 0 };
                SocketAddrV6::new(v6, self.port, 0, scope).into()
            }
        }
    }

    /// The address to which the request was sent.
    pub(crate) fn destination(&self) -> IpAddr {
        address(self.destination, self.ipv6)
    }

    /// Index of the interface on which the request arrived.
    pub(crate) fn interface(&self) -> u32 {
        self.interface
    }
}

fn address(bytes: [u8; 16], ipv6: bool) -> IpAddr {
    if ipv6 {
        Ipv6Addr::from(bytes).into()
    } else {
        Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()
    }
}

#[inline]
fn read_u16(frame: &[u8], offset: usize) -> Option<u16> {
    let bytes = frame.get(offset..offset + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

// The sum of 16-bit words in this machine's byte order; a folded one's complement sum does not
// depend on the order (RFC 1071).
#[inline]
fn sum(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<4>();
    let mut total: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let mut last_word = [0; 4];
    last_word[..tail.len()].copy_from_slice(tail);
    total += u64::from(u32::from_ne_bytes(last_word));
    total
}

#[inline]
fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
