//! Options of replies.

use std::net::SocketAddr;

use crate::sys::control::SendExtras;

/// Options of a reply. The default is a plain reply.
///
/// With AF_XDP, a reply with options leaves by the worker's UDP socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplyOptions {
    /// Another destination than the sender, as for [`Action::ReplyTo`](crate::Action::ReplyTo).
    pub to: Option<SocketAddr>,
    /// The whole byte of the IPv4 header's TOS, or of the IPv6 header's traffic class (`IP_TOS`, `IPV6_TCLASS`): the DSCP in
    /// its upper six bits, ECN in its lower two. `None`: the socket's value, 0 by default.
    pub traffic_class: Option<u8>,
    /// The kernel or the device splits the reply into datagrams of this many bytes; the last may be shorter (`UDP_SEGMENT`,
    /// Linux 4.18; at most 128 datagrams, 64 before Linux 6.9). A datagram longer than the path's MTU fails with `EINVAL` or
    /// `EMSGSIZE`. [`Builder::max_reply`](crate::Builder::max_reply) limits their sum.
    pub segment_bytes: Option<u16>,
}

impl ReplyOptions {
    #[inline]
    pub(crate) fn extras(&self) -> SendExtras {
        SendExtras { traffic_class: self.traffic_class, segment: self.segment_bytes }
    }
}
