//! What a service is given, and what it may decide.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::backend::Addresses;
use crate::sys::control::Filled;
use crate::sys::name::Name;

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
}

/// One request as it was received. Everything but the payload is decoded when asked for.
#[derive(Debug)]
pub struct Request<'a> {
    payload: &'a [u8],
    origin: Origin<'a>,
    truncated: bool,
}

/// Where a request came from, as it was received.
#[derive(Debug)]
enum Origin<'a> {
    Socket {
        name: &'a Name,
        control: Option<Filled<'a>>,
    },
    /// `wildcard`: whether the server is bound to a wildcard address.
    Frame {
        addresses: &'a Addresses,
        wildcard: bool,
        /// When it was taken, in nanoseconds of the real-time clock, where that is asked for.
        taken_ns: Option<i64>,
    },
}

impl<'a> Request<'a> {
    #[inline]
    pub(crate) fn new(
        payload: &'a [u8],
        name: &'a Name,
        control: Option<Filled<'a>>,
        truncated: bool,
    ) -> Self {
        Self { payload, origin: Origin::Socket { name, control }, truncated }
    }

    #[inline]
    pub(crate) fn framed(
        payload: &'a [u8],
        addresses: &'a Addresses,
        wildcard: bool,
        taken_ns: Option<i64>,
        truncated: bool,
    ) -> Self {
        Self { payload, origin: Origin::Frame { addresses, wildcard, taken_ns }, truncated }
    }

    /// The datagram's bytes. Empty is legal.
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
            Origin::Socket { name, .. } => name.decode(),
            Origin::Frame { addresses, .. } => addresses.source(),
        }
    }

    /// The address it was sent to, where the socket is bound to a wildcard address; `None` where it is bound to one
    /// address, which is then the destination. May be a multicast or broadcast address.
    #[inline]
    #[must_use]
    pub fn destination(&self) -> Option<IpAddr> {
        match &self.origin {
            Origin::Socket { control, .. } => control.as_ref().and_then(Filled::destination),
            Origin::Frame { addresses, wildcard, .. } => wildcard.then(|| addresses.destination()),
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
            Origin::Socket { control, .. } => control.as_ref().and_then(Filled::received_ns),
            Origin::Frame { taken_ns, .. } => *taken_ns,
        };
        let nanoseconds = u64::try_from(nanoseconds?).ok()?;
        Some(UNIX_EPOCH + Duration::from_nanos(nanoseconds))
    }

    /// Whether the datagram was longer than [`Builder::max_request`](crate::Builder::max_request), so that its end
    /// is missing. Never true unless [`Builder::deliver_truncated`](crate::Builder::deliver_truncated) was set:
    /// otherwise such requests are counted and not delivered.
    #[inline]
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.truncated
    }
}
