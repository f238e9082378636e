//! Control data that tells when a request was received and which address it came to, rewritten so that the reply leaves from
//! there.
//!
//! The layout is the kernel's `cmsghdr`: a `size_t` length that includes the header, level and type as `int`, then
//! the data, each aligned to `size_t` (include/linux/socket.h).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which control data a socket was asked to deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) pktinfo: Pktinfo,
    /// Whether each message has its receive time (`SO_TIMESTAMPNS_NEW`), which comes before everything else
    /// (net/ipv4/udp.c, udp_recvmsg; net/ipv6/udp.c, udpv6_recvmsg: `sock_recv_cmsgs` is called first).
    pub(crate) times: bool,
}

impl Asked {
    pub(crate) const NOTHING: Self = Self { pktinfo: Pktinfo::Off, times: false };

    pub(crate) const fn is_nothing(self) -> bool {
        matches!(self.pktinfo, Pktinfo::Off) && !self.times
    }

    /// Bytes to offer the kernel on every receive.
    pub(crate) const fn capacity(self) -> usize {
        self.pktinfo.capacity() + if self.times { TIME_SPACE } else { 0 }
    }
}

/// Which address of a request a socket was asked to deliver.
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
    const fn capacity(self) -> usize {
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
const V4_SPACE: usize = space(IPV4.data);
const V6_SPACE: usize = space(IPV6.data);
const TIME_SPACE: usize = space(TIME.data);
const CAPACITY: usize = TIME_SPACE + V6_SPACE + V4_SPACE;

/// Room for the control data of one message.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Control {
    bytes: [u8; CAPACITY],
}

/// The control data of a received message: as much of a [`Control`] as the kernel filled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filled<'a> {
    pub(crate) control: &'a Control,
    pub(crate) length: usize,
}

impl Filled<'_> {
    /// The address the request came to, from its IP header.
    pub(crate) fn destination(&self) -> Option<IpAddr> {
        let Self { control, length } = *self;
        let at = if control.holds(0, length, TIME) { TIME_SPACE } else { 0 };
        if control.holds(at, length, IPV4) {
            return Some(Ipv4Addr::from(control.take::<4>(at + HEADER + 8)).into());
        }
        if control.holds(at, length, IPV6) {
            return Some(Ipv6Addr::from(control.take::<16>(at + HEADER)).to_canonical());
        }
        None
    }

    /// When the kernel received it, in nanoseconds of the real-time clock; none where that was not asked for.
    #[inline]
    pub(crate) fn received_ns(&self) -> Option<i64> {
        let Self { control, length } = *self;
        control.holds(0, length, TIME).then(|| {
            let seconds = i64::from_ne_bytes(control.take(HEADER));
            let nanoseconds = i64::from_ne_bytes(control.take(HEADER + 8));
            seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
        })
    }
}

/// What to look for: level, type, and bytes of data.
#[derive(Clone, Copy)]
struct Kind {
    level: i32,
    kind: i32,
    data: usize,
}

/// `struct in_pktinfo { int ipi_ifindex; struct in_addr ipi_spec_dst; struct in_addr ipi_addr; }`
const IPV4: Kind = Kind { level: libc::IPPROTO_IP, kind: libc::IP_PKTINFO, data: 12 };
/// `struct in6_pktinfo { struct in6_addr ipi6_addr; int ipi6_ifindex; }`
const IPV6: Kind = Kind { level: libc::IPPROTO_IPV6, kind: libc::IPV6_PKTINFO, data: 20 };

/// `struct __kernel_timespec { __kernel_time64_t tv_sec; long long tv_nsec; }`, of the real-time clock: two 64-bit numbers on
/// every target, under `SO_TIMESTAMPNS_NEW` (include/uapi/asm-generic/socket.h, Linux 5.1).
const TIME: Kind = Kind { level: libc::SOL_SOCKET, kind: SO_TIMESTAMPNS_NEW, data: 16 };
/// Has the kernel tell when it received each message. Its own message's type, too.
pub(crate) const SO_TIMESTAMPNS_NEW: i32 = 64;

impl Kind {
    /// Level and type as they lie side by side, to compare them at once.
    const fn both(self) -> u64 {
        let ([a, b, c, d], [e, f, g, h]) = (self.level.to_ne_bytes(), self.kind.to_ne_bytes());
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    }
}

impl Control {
    pub(crate) const EMPTY: Self = Self { bytes: [0; CAPACITY] };

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.bytes.as_mut_ptr().cast()
    }

    /// What has a message leave from `source`, an address of this host, and how many bytes of it to send. An interface is
    /// named for a link-local address only.
    pub(crate) fn leaving(pktinfo: Pktinfo, source: IpAddr, interface: u32) -> (Self, usize) {
        let mut control = Self::EMPTY;
        let mut begin = |kind: Kind| {
            control.put(0, (HEADER + kind.data).to_ne_bytes());
            control.put(WORD, kind.both().to_ne_bytes());
        };
        match (pktinfo, source) {
            (Pktinfo::V4, IpAddr::V4(v4)) => {
                begin(IPV4);
                control.put(HEADER + 4, v4.octets());
                (control, V4_SPACE)
            }
            (Pktinfo::V6, source) => {
                begin(IPV6);
                let v6 = match source {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                    IpAddr::V6(v6) => v6,
                };
                control.put(HEADER, v6.octets());
                if v6.is_unicast_link_local() {
                    control.put(HEADER + 16, interface.to_ne_bytes());
                }
                (control, V6_SPACE)
            }
            (Pktinfo::Off | Pktinfo::V4, _) => (control, 0),
        }
    }

    /// Turns what was received, `filled` bytes, into what the reply is sent with; returns how many bytes of it to send.
    ///
    /// The interface is left to routing, but for link-local addresses, which mean nothing without one: a host that
    /// answers by another link than it was asked on is legal and common. Where the request came to a multicast or
    /// broadcast address, that address is no source: IPv4 has the proper one in `ipi_spec_dst`, worked out by the
    /// kernel (net/ipv4/ip_sockglue.c, ipv4_pktinfo_prepare); in IPv6 the source is left to routing.
    #[inline]
    pub(crate) fn make_reply(&mut self, asked: Asked, filled: usize) -> usize {
        let filled = if asked.times { self.drop_time(filled) } else { filled };
        match asked.pktinfo {
            Pktinfo::Off => 0,
            Pktinfo::V4 => {
                if !self.holds(0, filled, IPV4) {
                    return 0;
                }
                self.put(HEADER, 0u32.to_ne_bytes());
                filled
            }
            Pktinfo::V6 => self.make_reply_v6(filled),
        }
    }

    /// Moves what follows the receive time to the front, since a message sent with one is refused (net/core/sock.c,
    /// `__sock_cmsg_send`); returns how many bytes that are.
    #[inline]
    fn drop_time(&mut self, filled: usize) -> usize {
        if !self.holds(0, filled, TIME) {
            return filled;
        }
        let filled = filled.min(CAPACITY);
        self.bytes.copy_within(TIME_SPACE..filled, 0);
        filled - TIME_SPACE
    }

    #[inline]
    fn make_reply_v6(&mut self, filled: usize) -> usize {
        if !self.holds(0, filled, IPV6) {
            return 0;
        }
        let address = self.take::<16>(HEADER);
        let multicast = address[0] == 0xff;
        let link_local = address[0] == 0xfe && address[1] & 0xc0 == 0x80;
        let mapped = address[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
        if mapped {
            // An IPv4 request on a dual-stack socket: the reply's source is the IPv4 one, in IPv6 clothes.
            if !self.holds(V6_SPACE, filled, IPV4) {
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

    /// Whether a message of this kind starts at `offset` of `filled` bytes. Its own length needs no look: on a socket
    /// that asks for these only, the kernel puts nothing else there, and cuts the whole when it cuts.
    #[inline]
    fn holds(&self, offset: usize, filled: usize, kind: Kind) -> bool {
        filled >= offset + HEADER + kind.data && u64::from_ne_bytes(self.take(offset + WORD)) == kind.both()
    }

    /// What is there; nothing but zeros past the end. As an array, since copying a slice is a call where programs are built
    /// without optimisation across crates.
    #[inline]
    fn take<const N: usize>(&self, offset: usize) -> [u8; N] {
        self.bytes[offset..].first_chunk().copied().unwrap_or([0; N])
    }

    /// Writes what is within.
    #[inline]
    fn put<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) {
        let place = self.bytes[offset..].first_chunk_mut();
        debug_assert!(place.is_some(), "{N} bytes at {offset}");
        if let Some(place) = place {
            *place = bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn v6(address: [u8; 16], interface: u32) -> Control {
        let mut control = Control::EMPTY;
        control.put(0, (HEADER + 20).to_ne_bytes());
        control.put(WORD, libc::IPPROTO_IPV6.to_ne_bytes());
        control.put(WORD + 4, libc::IPV6_PKTINFO.to_ne_bytes());
        control.put(HEADER, address);
        control.put(HEADER + 16, interface.to_ne_bytes());
        control
    }

    fn reply_v6(address: &str) -> Result<(Ipv6Addr, u32), std::net::AddrParseError> {
        let mut control = v6(address.parse::<Ipv6Addr>()?.octets(), 7);
        let asked = Asked { pktinfo: Pktinfo::V6, times: false };
        assert_eq!(control.make_reply(asked, V6_SPACE), V6_SPACE);
        Ok((control.take::<16>(HEADER).into(), u32::from_ne_bytes(control.take(HEADER + 16))))
    }

    #[test]
    fn only_link_local_and_multicast_keep_the_interface() -> Result<(), std::net::AddrParseError> {
        assert_eq!(reply_v6("2001:db8::1")?, ("2001:db8::1".parse()?, 0));
        assert_eq!(reply_v6("fe80::1")?, ("fe80::1".parse()?, 7));
        assert_eq!(reply_v6("ff02::1")?, ("::".parse()?, 7));
        Ok(())
    }

    fn all_kinds() -> impl Iterator<Item = (Pktinfo, bool)> {
        [Pktinfo::Off, Pktinfo::V4, Pktinfo::V6].into_iter().flat_map(|kind| [(kind, false), (kind, true)])
    }

    #[test]
    fn a_receive_time_is_told_and_not_sent_back() {
        let mut control = Control::EMPTY;
        control.put(0, TIME_SPACE.to_ne_bytes());
        control.put(WORD, TIME.both().to_ne_bytes());
        control.put(HEADER, 7i64.to_ne_bytes());
        control.put(HEADER + 8, 9i64.to_ne_bytes());
        control.put(TIME_SPACE, (HEADER + IPV4.data).to_ne_bytes());
        control.put(TIME_SPACE + WORD, IPV4.both().to_ne_bytes());
        control.put(TIME_SPACE + HEADER + 4, [192, 0, 2, 1, 192, 0, 2, 2]);
        let length = TIME_SPACE + V4_SPACE;
        let seen = Filled { control: &control, length };
        assert_eq!(seen.received_ns(), Some(7_000_000_009));
        assert_eq!(seen.destination(), Some(Ipv4Addr::new(192, 0, 2, 2).into()));
        let seen = Filled { control: &control, length: TIME_SPACE - 1 };
        assert_eq!((seen.received_ns(), seen.destination()), (None, None));
        assert_eq!(control.make_reply(Asked { pktinfo: Pktinfo::V4, times: true }, length), V4_SPACE);
        assert!(control.holds(0, V4_SPACE, IPV4));
        assert_eq!(control.take(HEADER + 4), [192, 0, 2, 1]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: [u8; CAPACITY], filled in 0..=CAPACITY) {
            for (pktinfo, times) in all_kinds() {
                let asked = Asked { pktinfo, times };
                let filled = filled.min(asked.capacity());
                let mut control = Control { bytes };
                let seen = Filled { control: &control, length: filled };
                let _ = (seen.destination(), seen.received_ns());
                prop_assert!(control.make_reply(asked, filled) <= asked.capacity());
            }
        }
    }
}
