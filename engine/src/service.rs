//! What a service is given, and what it may decide.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::backend::FrameAddresses;
use crate::deferred::{DeferredReply, ReplyPath};
use crate::sys::control::{ControlBuffer, PktinfoMode, ReceivedControl, SendExtras};
use crate::sys::name::SocketName;

/// Answers requests. Every worker thread has an instance of its own, so no locking is needed for its state.
///
/// Closures of the same shape implement it too: `FnMut(&Request<'_>, &mut [u8]) -> Action`.
pub trait Service: Send {
    /// Decides what becomes of `request`.
    ///
    /// `reply` is the buffer for the answer, [`Builder::max_reply`](crate::Builder::max_reply) bytes long. It
    /// keeps what earlier answers left in it: write every byte that is sent.
    fn answer(&mut self, request: &Request<'_>, reply: &mut [u8]) -> Action;
}

impl<F> Service for F
where
    F: FnMut(&Request<'_>, &mut [u8]) -> Action + Send,
{
    #[inline]
    fn answer(&mut self, request: &Request<'_>, reply: &mut [u8]) -> Action {
        self(request, reply)
    }
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Action {
    /// No answer. Counted as dropped.
    Drop,
    /// The request itself goes back to where it came from, unchanged and without a copy.
    Echo,
    /// The first so many bytes of the reply buffer go back to where the request came from. More than the buffer
    /// holds is not sent and counted as too long.
    Reply(usize),
    /// The first `length` bytes of the reply buffer go to another address. It leaves from the address the request
    /// came to, as an answer would. An address of the other family than the socket's cannot be sent to and is
    /// counted as invalid; IPv4 is fine on a dual-stack socket.
    ReplyTo {
        /// Bytes of the reply buffer to send.
        length: usize,
        /// Where to.
        to: SocketAddr,
    },
    /// The first `length` bytes of the reply buffer leave as `options` say.
    ReplyWith {
        /// Bytes of the reply buffer to send.
        length: usize,
        /// What is not as in a plain reply.
        options: ReplyOptions,
    },
    /// Someone else replies, by the [`DeferredReply`] that [`Request::defer`] made. Counted in
    /// [`Counts::deferred`](crate::Counts::deferred).
    Defer,
}

/// How a reply leaves, where not as a plain one. The default is a plain one.
///
/// By AF_XDP one with options leaves by the worker's UDP socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplyOptions {
    /// Another address than the request's sender, as for [`Action::ReplyTo`].
    pub to: Option<SocketAddr>,
    /// The whole byte of the IPv4 header's TOS, or of the IPv6 header's traffic class (`IP_TOS`, `IPV6_TCLASS`): the DSCP in
    /// its upper six bits, ECN in its lower two. `None`: as the socket has it, 0 unless changed.
    pub traffic_class: Option<u8>,
    /// The kernel or the device cuts the reply into datagrams of this many bytes, the last may be shorter (`UDP_SEGMENT`,
    /// Linux 4.18; at most 128 datagrams, 64 before Linux 6.9). Each has to fit the path's MTU, or sending fails with
    /// `EINVAL` or `EMSGSIZE`. [`Builder::max_reply`](crate::Builder::max_reply) limits all of them together.
    pub segment_bytes: Option<u16>,
}

impl ReplyOptions {
    #[inline]
    pub(crate) fn extras(&self) -> SendExtras {
        SendExtras { traffic_class: self.traffic_class, segment: self.segment_bytes }
    }
}

/// One request as it was received. Everything but the payload is decoded when asked for.
#[derive(Debug)]
pub struct Request<'a> {
    payload: &'a [u8],
    origin: RequestOrigin<'a>,
    truncated: bool,
    path: &'a Arc<ReplyPath>,
}

/// Where a request came from, as it was received.
#[derive(Debug)]
enum RequestOrigin<'a> {
    Socket {
        name: &'a SocketName,
        control: Option<ReceivedControl<'a>>,
    },
    /// `wildcard`: whether the server is bound to a wildcard address.
    Frame {
        addresses: &'a FrameAddresses,
        wildcard: bool,
        traffic_class: u8,
        /// When it was taken, in nanoseconds of the real-time clock, where that is asked for.
        taken_ns: Option<i64>,
    },
}

impl<'a> Request<'a> {
    #[inline]
    pub(crate) fn new(
        payload: &'a [u8],
        name: &'a SocketName,
        control: Option<ReceivedControl<'a>>,
        truncated: bool,
        path: &'a Arc<ReplyPath>,
    ) -> Self {
        Self { payload, origin: RequestOrigin::Socket { name, control }, truncated, path }
    }

    #[inline]
    pub(crate) fn from_frame(
        payload: &'a [u8],
        addresses: &'a FrameAddresses,
        traffic_class: u8,
        taken_ns: Option<i64>,
        truncated: bool,
        path: &'a Arc<ReplyPath>,
    ) -> Self {
        let wildcard = path.asked.pktinfo != PktinfoMode::Off;
        Self {
            payload,
            origin: RequestOrigin::Frame { addresses, wildcard, traffic_class, taken_ns },
            truncated,
            path,
        }
    }

    /// The datagram's bytes. Empty is legal. With [`Builder::gro`](crate::Builder::gro) it can be several datagrams of one
    /// sender, see [`datagrams`](Self::datagrams).
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Who sent it. An IPv4 sender on a dual-stack socket is shown as IPv4.
    #[inline]
    #[must_use]
    pub fn source(&self) -> SocketAddr {
        match &self.origin {
            RequestOrigin::Socket { name, .. } => name.decode(),
            RequestOrigin::Frame { addresses, .. } => addresses.source(),
        }
    }

    /// The address it was sent to, where the socket is bound to a wildcard address; `None` where it is bound to one
    /// address, which is then the destination. May be a multicast or broadcast address.
    #[inline]
    #[must_use]
    pub fn destination(&self) -> Option<IpAddr> {
        match &self.origin {
            RequestOrigin::Socket { control, .. } => control.as_ref().and_then(ReceivedControl::destination),
            RequestOrigin::Frame { addresses, wildcard, .. } => wildcard.then(|| addresses.destination()),
        }
    }

    /// When it was received, by the real-time clock; `None` unless [`Builder::receive_times`](crate::Builder::receive_times)
    /// was set.
    ///
    /// From a socket it is when the kernel took the packet from its device, before any wait in the socket's queue
    /// (`SO_TIMESTAMPNS`, net/core/timestamping.c; on loopback when it was sent). By AF_XDP it is when the worker took its frame,
    /// with others of the same batch: the wait in the device's queue before that is not known.
    #[must_use]
    pub fn receive_time(&self) -> Option<SystemTime> {
        let nanoseconds = match &self.origin {
            RequestOrigin::Socket { control, .. } => control.as_ref().and_then(ReceivedControl::received_ns),
            RequestOrigin::Frame { taken_ns, .. } => *taken_ns,
        };
        let nanoseconds = u64::try_from(nanoseconds?).ok()?;
        Some(UNIX_EPOCH + Duration::from_nanos(nanoseconds))
    }

    /// The byte of the IPv4 header's TOS, or of the IPv6 header's traffic class; ECN is in its lower two bits (RFC 3168).
    /// `None` unless [`Builder::receive_traffic_class`](crate::Builder::receive_traffic_class) was set.
    #[must_use]
    pub fn traffic_class(&self) -> Option<u8> {
        match &self.origin {
            RequestOrigin::Socket { control, .. } => {
                control.as_ref().and_then(ReceivedControl::traffic_class)
            }
            RequestOrigin::Frame { traffic_class, .. } => {
                self.path.asked.traffic_class.then_some(*traffic_class)
            }
        }
    }

    /// Bytes of each datagram in the payload, of which the last may be shorter; `None` if the payload is one datagram, as it
    /// always is without [`Builder::gro`](crate::Builder::gro).
    #[must_use]
    pub fn segment_bytes(&self) -> Option<u16> {
        match &self.origin {
            RequestOrigin::Socket { control, .. } => control.as_ref().and_then(ReceivedControl::segment),
            RequestOrigin::Frame { .. } => None,
        }
    }

    /// The datagrams in the payload: one, or with [`Builder::gro`](crate::Builder::gro) perhaps several.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.segment_bytes().map_or(self.payload.len(), usize::from).max(1);
        let empty = self.payload.is_empty().then_some(self.payload);
        empty.into_iter().chain(self.payload.chunks(bytes))
    }

    /// The way to reply later, or from another thread, see [`Action::Defer`].
    #[must_use]
    pub fn defer(&self) -> DeferredReply {
        let ReplyPath { asked, family, .. } = **self.path;
        let (name, (control, length)) = match &self.origin {
            RequestOrigin::Socket { name, control } => {
                let reply = control.as_ref().map(|filled| {
                    let mut control = *filled.control;
                    let length = control.make_reply(asked, filled.length);
                    (control, length)
                });
                (**name, reply.unwrap_or((ControlBuffer::EMPTY, 0)))
            }
            RequestOrigin::Frame { addresses, .. } => (
                SocketName::encode(addresses.source(), family).unwrap_or(SocketName::ZERO),
                ControlBuffer::from_source(asked.pktinfo, addresses.destination(), addresses.interface()),
            ),
        };
        DeferredReply { path: Arc::clone(self.path), name, control, length }
    }

    /// Whether the datagram was longer than [`Builder::max_request`](crate::Builder::max_request), so that its end
    /// is missing. Never true unless [`Builder::deliver_truncated`](crate::Builder::deliver_truncated) was set:
    /// otherwise such requests are counted and not delivered.
    #[inline]
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }
}
