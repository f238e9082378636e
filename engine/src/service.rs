//! Requests, and the decisions of a service about them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::backend::xdp::frame::FrameAddresses;
use crate::deferred_reply::{DeferredReply, ReplyPath};
use crate::reply::ReplyOptions;
use crate::sys::control::{ControlBuffer, PktinfoMode, ReceivedControl};
use crate::sys::name::SocketName;

/// Answers requests. Every worker thread has its own instance, so its state needs no locks.
///
/// Closures of the same shape implement it too: `FnMut(&Request<'_>, &mut [u8]) -> Action`.
pub trait Service: Send {
    /// Decides about `request`.
    ///
    /// `reply` is the buffer for the reply, [`Builder::max_reply`](crate::Builder::max_reply) bytes long. It contains bytes of
    /// earlier replies, so write every byte that is sent.
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

/// The decision about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Action {
    /// Send no reply. Counted as dropped.
    Drop,
    /// Send the request back to its sender, unchanged and without a copy.
    Echo,
    /// Send this many bytes of the reply buffer to the sender. A length beyond the buffer is counted as too long, and nothing
    /// is sent.
    Reply(usize),
    /// Send the first `length` bytes of the reply buffer to another address, from the address to which the request was sent.
    /// An address of another family than the socket's is counted as invalid; a dual-stack socket can send to IPv4.
    ReplyTo {
        /// Bytes of the reply buffer to send.
        length: usize,
        /// The destination.
        to: SocketAddr,
    },
    /// Send the first `length` bytes of the reply buffer with `options`.
    ReplyWith {
        /// Bytes of the reply buffer to send.
        length: usize,
        /// Differences from a plain reply.
        options: ReplyOptions,
    },
    /// Reply later, by the [`DeferredReply`] of [`Request::defer`]. Counted in
    /// [`Counts::deferred`](crate::Counts::deferred).
    Defer,
}

/// A received request. Fields other than the payload are decoded on access.
#[derive(Debug)]
pub struct Request<'a> {
    payload: &'a [u8],
    origin: RequestOrigin<'a>,
    truncated: bool,
    path: &'a Arc<ReplyPath>,
}

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
        // When the worker took the frame, in nanoseconds of the real-time clock, with `receive_times`.
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

    /// The bytes of the datagram, perhaps none. With [`Builder::gro`](crate::Builder::gro), perhaps several datagrams of one
    /// sender, see [`datagrams`](Self::datagrams).
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The sender. An IPv4 sender on a dual-stack socket is an IPv4 address.
    #[inline]
    #[must_use]
    pub fn source(&self) -> SocketAddr {
        match &self.origin {
            RequestOrigin::Socket { name, .. } => name.decode(),
            RequestOrigin::Frame { addresses, .. } => addresses.source(),
        }
    }

    /// The destination of the datagram if the socket is bound to a wildcard address, else `None`. It may be a multicast or
    /// broadcast address.
    #[inline]
    #[must_use]
    pub fn destination(&self) -> Option<IpAddr> {
        match &self.origin {
            RequestOrigin::Socket { control, .. } => control.as_ref().and_then(ReceivedControl::destination),
            RequestOrigin::Frame { addresses, wildcard, .. } => wildcard.then(|| addresses.destination()),
        }
    }

    /// Receive time by the real-time clock; `None` without [`Builder::receive_times`](crate::Builder::receive_times).
    ///
    /// With sockets, this is when the kernel took the packet from the device, before it waited in the socket's queue
    /// (`SO_TIMESTAMPNS`, net/core/timestamping.c; on loopback, when it was sent). With AF_XDP, it is when the worker took the
    /// batch of frames; the time in the device's queue is unknown.
    #[must_use]
    pub fn receive_time(&self) -> Option<SystemTime> {
        let nanoseconds = match &self.origin {
            RequestOrigin::Socket { control, .. } => control.as_ref().and_then(ReceivedControl::received_ns),
            RequestOrigin::Frame { taken_ns, .. } => *taken_ns,
        };
        let nanoseconds = u64::try_from(nanoseconds?).ok()?;
        Some(UNIX_EPOCH + Duration::from_nanos(nanoseconds))
    }

    /// The IPv4 TOS or IPv6 traffic class; ECN is in the lower two bits (RFC 3168). `None` without
    /// [`Builder::receive_traffic_class`](crate::Builder::receive_traffic_class).
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

    /// Bytes of each datagram in the payload; the last may be shorter. `None` if the payload is one datagram, as always
    /// without [`Builder::gro`](crate::Builder::gro).
    #[must_use]
    pub fn segment_bytes(&self) -> Option<u16> {
        match &self.origin {
            RequestOrigin::Socket { control, .. } => control.as_ref().and_then(ReceivedControl::segment),
            RequestOrigin::Frame { .. } => None,
        }
    }

    /// The datagrams in the payload: one, or perhaps several with [`Builder::gro`](crate::Builder::gro).
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.segment_bytes().map_or(self.payload.len(), usize::from).max(1);
        let empty = self.payload.is_empty().then_some(self.payload);
        empty.into_iter().chain(self.payload.chunks(bytes))
    }

    /// A handle to reply later, or from another thread, see [`Action::Defer`].
    #[must_use]
    pub fn defer(&self) -> DeferredReply {
        let ReplyPath { asked: control_request, family, .. } = **self.path;
        let (name, (control, length)) = match &self.origin {
            RequestOrigin::Socket { name, control } => {
                let reply = control.as_ref().map(|received_control| {
                    let mut control = *received_control.control;
                    let length = control.make_reply(control_request, received_control.length);
                    (control, length)
                });
                (**name, reply.unwrap_or((ControlBuffer::EMPTY, 0)))
            }
            RequestOrigin::Frame { addresses, .. } => (
                SocketName::encode(addresses.source(), family).unwrap_or(SocketName::ZERO),
                ControlBuffer::from_source(
                    control_request.pktinfo,
                    addresses.destination(),
                    addresses.interface(),
                ),
            ),
        };
        DeferredReply { path: Arc::clone(self.path), name, control, length }
    }

    /// Whether the datagram was longer than [`Builder::max_request`](crate::Builder::max_request) and its end is missing. Only
    /// with [`Builder::deliver_truncated`](crate::Builder::deliver_truncated); otherwise such requests are not delivered.
    #[inline]
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }
}
