//! Control data that tells which address a request came to, rewritten so that the reply leaves from there.
//!
//! The layout is the kernel's `cmsghdr`: a `size_t` length that includes the header, level and type as `int`, then
//! the data, each aligned to `size_t` (include/linux/socket.h).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which control data a socket was asked to deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pktinfo {
    /// None: the socket is bound to one address, from which every reply leaves anyway.
    Off,
    /// `IP_PKTINFO` on an IPv4 socket.
    V4,
    /// `IPV6_PKTINFO` on an IPv6 socket; on a dual-stack one `IP_PKTINFO` too, which comes second.
    V6,
}

impl Pktinfo {
    /// Bytes to offer the kernel on every receive.
    pub(crate) const fn capacity(self) -> usize {
        match self {
            Self::Off => 0,
            Self::V4 => V4_SPACE,
            Self::V6 => V6_SPACE + V4_SPACE,
        }
    }
}

const WORD: usize = size_of::<usize>();
const HEADER: usize = WORD + 8;
const fn space(data: usize) -> usize {
    (HEADER + data).next_multiple_of(WORD)
}
/// `struct in_pktinfo { int ipi_ifindex; struct in_addr ipi_spec_dst; struct in_addr ipi_addr; }`
const V4_SPACE: usize = space(12);
/// `struct in6_pktinfo { struct in6_addr ipi6_addr; int ipi6_ifindex; }`
const V6_SPACE: usize = space(20);
const CAPACITY: usize = V6_SPACE + V4_SPACE;

/// The control data of one message.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Control {
    bytes: [u8; CAPACITY],
    /// How much of it the kernel filled.
    filled: usize,
}

impl Control {
    pub(crate) const EMPTY: Self = Self { bytes: [0; CAPACITY], filled: 0 };

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.bytes.as_mut_ptr().cast()
    }

    /// Notes how much the kernel wrote. Anything over the capacity is cut.
    #[inline]
    pub(super) fn set_filled(&mut self, filled: usize) {
        self.filled = if filled > CAPACITY { CAPACITY } else { filled };
    }

    /// The address the request came to, from its IP header.
    pub(crate) fn destination(&self) -> Option<IpAddr> {
        if self.holds(0, libc::IPPROTO_IP, libc::IP_PKTINFO, 12) {
            return Some(Ipv4Addr::from(self.take::<4>(HEADER + 8)).into());
        }
        if self.holds(0, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, 20) {
            return Some(Ipv6Addr::from(self.take::<16>(HEADER)).to_canonical());
        }
        None
    }

    /// Turns what was received into what the reply is sent with; returns how many bytes of it to send.
    ///
    /// The interface is left to routing, but for link-local addresses, which mean nothing without one: a host that
    /// answers by another link than it was asked on is legal and common. Where the request came to a multicast or
    /// broadcast address, that address is no source: IPv4 has the proper one in `ipi_spec_dst`, worked out by the
    /// kernel (net/ipv4/ip_sockglue.c, ipv4_pktinfo_prepare); in IPv6 the source is left to routing.
    #[inline]
    pub(crate) fn make_reply(&mut self, pktinfo: Pktinfo) -> usize {
        match pktinfo {
            Pktinfo::Off => 0,
            Pktinfo::V4 => {
                if !self.holds(0, libc::IPPROTO_IP, libc::IP_PKTINFO, 12) {
                    return 0;
                }
                self.put(HEADER, 0u32.to_ne_bytes());
                V4_SPACE
            }
            Pktinfo::V6 => self.make_reply_v6(),
        }
    }

    #[inline]
    fn make_reply_v6(&mut self) -> usize {
        if !self.holds(0, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, 20) {
            return 0;
        }
        let address = self.take::<16>(HEADER);
        let multicast = address[0] == 0xff;
        let link_local = address[0] == 0xfe && address[1] & 0xc0 == 0x80;
        let mapped = address[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
        if mapped {
            // An IPv4 request on a dual-stack socket: the reply's source is the IPv4 one, in IPv6 clothes.
            if !self.holds(V6_SPACE, libc::IPPROTO_IP, libc::IP_PKTINFO, 12) {
                return 0;
            }
            let source = self.take::<4>(V6_SPACE + HEADER + 4);
            self.put(HEADER + 12, source);
        } else if multicast {
            self.put(HEADER, [0; 16]);
        }
        if !multicast && !link_local {
            self.put(HEADER + 16, 0u32.to_ne_bytes());
        }
        V6_SPACE
    }

    /// Whether a message of this level and type, with so much data, starts at `offset`.
    #[inline]
    fn holds(&self, offset: usize, level: i32, kind: i32, data: usize) -> bool {
        self.filled >= offset + HEADER + data
            && usize::from_ne_bytes(self.take(offset)) >= HEADER + data
            && i32::from_ne_bytes(self.take(offset + WORD)) == level
            && i32::from_ne_bytes(self.take(offset + WORD + 4)) == kind
    }

    #[inline]
    fn take<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.bytes[offset..offset + N]);
        bytes
    }

    #[inline]
    fn put<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) {
        self.bytes[offset..offset + N].copy_from_slice(&bytes);
    }
}
