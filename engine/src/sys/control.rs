//! Control data: the properties of a request other than its payload. Rewritten so that the reply
//! leaves from the request's destination address, with the options of the service.
//!
//! The layout is the kernel's `cmsghdr`: a `size_t` length that includes the header, level and type as `int`, then
//! the data, each aligned to `size_t` (include/linux/socket.h).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Control data that a socket is set to deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ControlRequest {
    pub(crate) pktinfo: PktinfoMode,
    // Whether each message has its receive time (`SO_TIMESTAMPNS`).
    pub(crate) times: bool,
    /// Whether each message has its TOS or traffic class (`IP_RECVTOS`, `IPV6_RECVTCLASS`).
    pub(crate) traffic_class: bool,
    /// Whether a message may hold several datagrams (`UDP_GRO`).
    pub(crate) gro: bool,
}

impl ControlRequest {
    pub(crate) const NOTHING: Self = Self::only_pktinfo(PktinfoMode::Off);

    pub(crate) const fn only_pktinfo(pktinfo: PktinfoMode) -> Self {
        Self { pktinfo, times: false, traffic_class: false, gro: false }
    }

    /// Whether there is other data than addresses.
    pub(crate) const fn has_extra_fields(self) -> bool {
        self.times || self.traffic_class || self.gro
    }

    pub(crate) const fn is_nothing(self) -> bool {
        matches!(self.pktinfo, PktinfoMode::Off) && !self.has_extra_fields()
    }

    // Bytes to offer the kernel on every receive.
    pub(crate) const fn capacity(self) -> usize {
        self.pktinfo.capacity()
            + if self.times { TIME_SPACE } else { 0 }
            + if self.traffic_class { INT_SPACE } else { 0 }
            + if self.gro { INT_SPACE } else { 0 }
    }
}

/// Options of a message that differ from the socket's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SendExtras {
    /// `IP_TOS` or `IPV6_TCLASS`.
    pub(crate) traffic_class: Option<u8>,
    // `UDP_SEGMENT`: the size in bytes of each datagram that the kernel cuts from it.
    pub(crate) segment: Option<u16>,
}

impl SendExtras {
    pub(crate) const NONE: Self = Self { traffic_class: None, segment: None };

    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

/// The address of a request that a socket is set to deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PktinfoMode {
    /// None: the socket is bound to one address, which all replies have as source.
    Off,
    /// `IP_PKTINFO` on an IPv4 socket.
    V4,
    // `IPV6_PKTINFO` on an IPv6 socket; on a dual-stack one also `IP_PKTINFO`, in second place.
    V6,
}

impl PktinfoMode {
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
// Space of an `int`, and of anything shorter.
const INT_SPACE: usize = space(4);
const CAPACITY: usize = TIME_SPACE + V6_SPACE + V4_SPACE + 2 * INT_SPACE;

/// Room for the control data of one message.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct ControlBuffer {
    bytes: [u8; CAPACITY],
}

// The control data of a received message: the part of a [`ControlBuffer`] that the kernel filled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceivedControl<'a> {
    pub(crate) control: &'a ControlBuffer,
    pub(crate) length: usize,
}

impl ReceivedControl<'_> {
    /// The destination address of the request, from its IP header.
    pub(crate) fn destination(&self) -> Option<IpAddr> {
        let Self { control, length } = *self;
        if let Some(offset) = control.find(length, IPV4) {
            return Some(Ipv4Addr::from(control.take::<4>(offset + 8)).into());
        }
        let offset = control.find(length, IPV6)?;
        Some(Ipv6Addr::from(control.take::<16>(offset)).to_canonical())
    }

    // Whether it was sent to an IPv4 broadcast address: the source of its reply (`ipi_spec_dst`) is then another address. It
    // is zero if the kernel has no route at hand (net/ipv4/ip_sockglue.c, `ipv4_pktinfo_prepare`).
    #[inline]
    pub(crate) fn is_broadcast(&self) -> bool {
        let Self { control, length } = *self;
        let Some(offset) = control.find(length, IPV4) else { return false };
        let [source, destination] = [offset + 4, offset + 8].map(|at| Ipv4Addr::from(control.take::<4>(at)));
        source != destination && !source.is_unspecified() && !destination.is_multicast()
    }

    // When the kernel received it, in nanoseconds of the real-time clock. `None` if the socket does
    // not ask for it.
    #[inline]
    pub(crate) fn received_ns(&self) -> Option<i64> {
        let Self { control, length } = *self;
        let offset = control.find(length, TIME)?;
        let seconds = i64::from_ne_bytes(control.take(offset));
        let nanoseconds = i64::from_ne_bytes(control.take(offset + 8));
        Some(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds))
    }

    // TOS of IPv4, or traffic class of IPv6. `None` if the socket does not ask for it.
    pub(crate) fn traffic_class(&self) -> Option<u8> {
        let Self { control, length } = *self;
        if let Some(offset) = control.find(length, TOS) {
            return Some(u8::from_ne_bytes(control.take(offset)));
        }
        let class = i32::from_ne_bytes(control.take(control.find(length, TRAFFIC_CLASS)?));
        u8::try_from(class).ok()
    }

    // Size in bytes of each of its datagrams but the last, which may be shorter. `None` for a
    // single datagram.
    #[inline]
    pub(crate) fn segment(&self) -> Option<u16> {
        let Self { control, length } = *self;
        let bytes = i32::from_ne_bytes(control.take(control.find(length, GRO)?));
        u16::try_from(bytes).ok().filter(|bytes| *bytes > 0)
    }
}

#[derive(Clone, Copy)]
struct ControlField {
    level: i32,
    kind: i32,
    data: usize,
}

/// `struct in_pktinfo { int ipi_ifindex; struct in_addr ipi_spec_dst; struct in_addr ipi_addr; }`
const IPV4: ControlField = ControlField { level: libc::IPPROTO_IP, kind: libc::IP_PKTINFO, data: 12 };
// `struct in6_pktinfo { struct in6_addr ipi6_addr; int ipi6_ifindex; }`
const IPV6: ControlField = ControlField { level: libc::IPPROTO_IPV6, kind: libc::IPV6_PKTINFO, data: 20 };

// `struct timespec` of the real-time clock, as two 64-bit numbers.
const TIME: ControlField = ControlField { level: libc::SOL_SOCKET, kind: SO_TIMESTAMPNS, data: 16 };
// Makes the kernel report when it received each message. Also the type of its control message. On
// 64-bit targets the option that all kernels have; on others `SO_TIMESTAMPNS_NEW` (Linux 5.1,
// include/uapi/asm-generic/socket.h).
#[cfg(target_pointer_width = "64")]
pub(crate) const SO_TIMESTAMPNS: i32 = libc::SO_TIMESTAMPNS;
#[cfg(not(target_pointer_width = "64"))]
pub(crate) const SO_TIMESTAMPNS: i32 = 64;

// One byte when received (net/ipv4/ip_sockglue.c, `ip_cmsg_recv_tos`); for sending, an `int` is
// accepted.
const TOS: ControlField = ControlField { level: libc::IPPROTO_IP, kind: libc::IP_TOS, data: 1 };
const TRAFFIC_CLASS: ControlField =
    ControlField { level: libc::IPPROTO_IPV6, kind: libc::IPV6_TCLASS, data: 4 };
// An `int` (include/linux/udp.h, `udp_cmsg_recv`; Linux 5.0).
const GRO: ControlField = ControlField { level: libc::SOL_UDP, kind: libc::UDP_GRO, data: 4 };
// A `__u16` (net/ipv4/udp.c, `__udp_cmsg_send`; Linux 4.18).
const SEGMENT: ControlField = ControlField { level: libc::SOL_UDP, kind: libc::UDP_SEGMENT, data: 2 };

impl ControlField {
    // Level and type are adjacent in memory, so one comparison suffices.
    const fn level_and_type(self) -> u64 {
        let ([a, b, c, d], [e, f, g, h]) = (self.level.to_ne_bytes(), self.kind.to_ne_bytes());
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    }
}

impl ControlBuffer {
    pub(crate) const EMPTY: Self = Self { bytes: [0; CAPACITY] };

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.bytes.as_mut_ptr().cast()
    }

    // Appends `extras` at `offset`; returns the new length.
    pub(crate) fn append(&mut self, mut offset: usize, ipv4: bool, extras: SendExtras) -> usize {
        let mut append_header = |control: &mut Self, kind: ControlField| {
            control.put_header(offset, kind);
            let data = offset + HEADER;
            offset += space(kind.data);
            data
        };
        if let Some(class) = extras.traffic_class {
            let kind = if ipv4 { ControlField { data: 4, ..TOS } } else { TRAFFIC_CLASS };
            let data = append_header(self, kind);
            self.put(data, i32::from(class).to_ne_bytes());
        }
        if let Some(bytes) = extras.segment {
            let data = append_header(self, SEGMENT);
            self.put(data, bytes.to_ne_bytes());
        }
        offset
    }

    // Control data to send from `source`, an address of this host, and its length in bytes. An
    // interface is named for a link-local address only.
    pub(crate) fn from_source(pktinfo: PktinfoMode, source: IpAddr, interface: u32) -> (Self, usize) {
        let mut control = Self::EMPTY;
        match (pktinfo, source) {
            (PktinfoMode::V4, IpAddr::V4(v4)) => {
                control.put_header(0, IPV4);
                control.put(HEADER + 4, v4.octets());
                (control, V4_SPACE)
            }
            (PktinfoMode::V6, source) => {
                control.put_header(0, IPV6);
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
            (PktinfoMode::Off | PktinfoMode::V4, _) => (control, 0),
        }
    }

    // Turns the `filled` bytes of received control data into control data for the reply; returns
    // their length.
    //
    // Routing selects the interface, except for link-local addresses, which mean nothing without an
    // interface: a host may answer by another link than that of the request, which is legal and
    // common. A multicast or broadcast destination cannot be a source: for IPv4, `ipi_spec_dst`
    // contains the correct source, which the kernel determined (net/ipv4/ip_sockglue.c,
    // ipv4_pktinfo_prepare); for IPv6, routing selects the source.
    #[inline]
    pub(crate) fn make_reply(&mut self, control_request: ControlRequest, filled: usize) -> usize {
        let filled = if control_request.has_extra_fields() {
            self.keep_addresses(control_request, filled)
        } else {
            filled
        };
        match control_request.pktinfo {
            PktinfoMode::Off => 0,
            PktinfoMode::V4 => {
                if !self.holds(0, filled, IPV4) {
                    return 0;
                }
                self.put(HEADER, 0u32.to_ne_bytes());
                filled
            }
            PktinfoMode::V6 => self.make_reply_v6(filled),
        }
    }

    // Moves the addresses to the front and drops the rest, because the kernel refuses to send some
    // received types, for example a receive time (net/core/sock.c, `__sock_cmsg_send`). Returns the
    // length in bytes.
    fn keep_addresses(&mut self, control_request: ControlRequest, filled: usize) -> usize {
        let received_buffer = *self;
        let mut end = 0;
        let kept_fields = match control_request.pktinfo {
            PktinfoMode::Off => &[][..],
            PktinfoMode::V4 => &[IPV4],
            PktinfoMode::V6 => &[IPV6, IPV4],
        };
        for kind in kept_fields {
            let Some(data) = received_buffer.find(filled, *kind) else { continue };
            let (start, bytes) = (data - HEADER, HEADER + kind.data);
            self.bytes[end..end + bytes].copy_from_slice(&received_buffer.bytes[start..start + bytes]);
            end += space(kind.data);
        }
        end
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
            // An IPv4 request on a dual-stack socket: the reply's source is the IPv4 address,
            // mapped to IPv6.
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

    // The offset of the data of this kind in `filled` bytes. The kernel determines which kinds are
    // present, and their order.
    #[inline]
    fn find(&self, filled: usize, kind: ControlField) -> Option<usize> {
        let (mut offset, end) = (0usize, filled.min(CAPACITY));
        loop {
            if self.holds(offset, end, kind) {
                return Some(offset + HEADER);
            }
            if offset + HEADER > end {
                return None;
            }
            let length = usize::from_ne_bytes(self.take(offset));
            if !(HEADER..=CAPACITY).contains(&length) {
                return None;
            }
            offset += length.next_multiple_of(WORD);
        }
    }

    // Whether a message of this kind starts at `offset` of `filled` bytes. Its length need not be
    // checked: on a socket that requests only these kinds the kernel adds no others, and truncates
    // only at the end.
    #[inline]
    fn holds(&self, offset: usize, filled: usize, kind: ControlField) -> bool {
        filled >= offset + HEADER + kind.data
            && u64::from_ne_bytes(self.take(offset + WORD)) == kind.level_and_type()
    }

    // Reads `N` bytes; zeros past the end. As an array, because copying a slice is a call in
    // programs built without optimisation across crates.
    #[inline]
    fn take<const N: usize>(&self, offset: usize) -> [u8; N] {
        self.bytes.get(offset..).and_then(|tail| tail.first_chunk()).copied().unwrap_or([0; N])
    }

    fn put_header(&mut self, offset: usize, kind: ControlField) {
        self.put(offset, (HEADER + kind.data).to_ne_bytes());
        self.put(offset + WORD, kind.level_and_type().to_ne_bytes());
    }

    // Writes the bytes that fit.
    #[inline]
    fn put<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) {
        let target = self.bytes[offset..].first_chunk_mut();
        debug_assert!(target.is_some(), "{N} bytes at {offset}");
        if let Some(target) = target {
            *target = bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn v6(address: [u8; 16], interface: u32) -> ControlBuffer {
        let mut control = ControlBuffer::EMPTY;
        control.put_header(0, IPV6);
        control.put(HEADER, address);
        control.put(HEADER + 16, interface.to_ne_bytes());
        control
    }

    fn reply_v6(address: &str) -> Result<(Ipv6Addr, u32), std::net::AddrParseError> {
        let mut control = v6(address.parse::<Ipv6Addr>()?.octets(), 7);
        let request = ControlRequest::only_pktinfo(PktinfoMode::V6);
        assert_eq!(control.make_reply(request, V6_SPACE), V6_SPACE);
        Ok((control.take::<16>(HEADER).into(), u32::from_ne_bytes(control.take(HEADER + 16))))
    }

    #[test]
    fn only_link_local_and_multicast_replies_keep_the_interface() -> Result<(), std::net::AddrParseError> {
        assert_eq!(reply_v6("2001:db8::1")?, ("2001:db8::1".parse()?, 0));
        assert_eq!(reply_v6("fe80::1")?, ("fe80::1".parse()?, 7));
        assert_eq!(reply_v6("ff02::1")?, ("::".parse()?, 7));
        Ok(())
    }

    fn all_kinds() -> impl Iterator<Item = ControlRequest> {
        let kinds = [PktinfoMode::Off, PktinfoMode::V4, PktinfoMode::V6]
            .into_iter()
            .map(ControlRequest::only_pktinfo);
        kinds.flat_map(|kind| [kind, ControlRequest { times: true, traffic_class: true, gro: true, ..kind }])
    }

    #[test]
    fn receive_time_is_parsed_and_omitted_from_the_reply() {
        let mut control = ControlBuffer::EMPTY;
        control.put_header(0, TIME);
        control.put(HEADER, 7i64.to_ne_bytes());
        control.put(HEADER + 8, 9i64.to_ne_bytes());
        control.put_header(TIME_SPACE, IPV4);
        control.put(TIME_SPACE + HEADER + 4, [192, 0, 2, 1, 192, 0, 2, 2]);
        let length = TIME_SPACE + V4_SPACE;
        let received = ReceivedControl { control: &control, length };
        assert_eq!(received.received_ns(), Some(7_000_000_009));
        assert_eq!(received.destination(), Some(Ipv4Addr::new(192, 0, 2, 2).into()));
        let received = ReceivedControl { control: &control, length: TIME_SPACE - 1 };
        assert_eq!((received.received_ns(), received.destination()), (None, None));
        assert_eq!(
            control.make_reply(
                ControlRequest { times: true, ..ControlRequest::only_pktinfo(PktinfoMode::V4) },
                length
            ),
            V4_SPACE
        );
        assert!(control.holds(0, V4_SPACE, IPV4));
        assert_eq!(control.take(HEADER + 4), [192, 0, 2, 1]);
    }

    #[test]
    fn traffic_class_and_segment_size_follow_the_source_address() {
        let extras = SendExtras { traffic_class: Some(3), segment: Some(1200) };
        let (mut control, length) =
            ControlBuffer::from_source(PktinfoMode::V4, Ipv4Addr::LOCALHOST.into(), 0);
        let length = control.append(length, true, extras);
        assert_eq!(length, V4_SPACE + 2 * INT_SPACE);
        let received = ReceivedControl { control: &control, length };
        assert_eq!(received.traffic_class(), Some(3));
        assert_eq!(control.find(length, SEGMENT).map(|at| control.take(at)), Some(1200u16.to_ne_bytes()));
        let (mut control, length) =
            ControlBuffer::from_source(PktinfoMode::V6, Ipv6Addr::LOCALHOST.into(), 0);
        let length = control.append(length, false, extras);
        assert_eq!(ReceivedControl { control: &control, length }.traffic_class(), Some(3));
    }

    proptest! {
        #[test]
        fn arbitrary_control_bytes_never_panic_or_exceed_the_capacity(bytes: [u8; CAPACITY], filled in 0..=CAPACITY) {
            for request in all_kinds() {
                let filled = filled.min(request.capacity());
                let mut control = ControlBuffer { bytes };
                let received = ReceivedControl { control: &control, length: filled };
                let _ = (received.destination(), received.received_ns());
                let _ = (received.traffic_class(), received.segment());
                let length = control.make_reply(request, filled);
                prop_assert!(length <= request.capacity());
                let extras = SendExtras { traffic_class: Some(1), segment: Some(1200) };
                prop_assert!(control.append(length, true, extras) <= CAPACITY);
            }
        }
    }
}
