//! What a service is given, and what it may decide.

use std::net::{IpAddr, SocketAddr};

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
    name: &'a Name,
    control: Option<Filled<'a>>,
    truncated: bool,
}

impl<'a> Request<'a> {
    #[inline]
    pub(crate) fn new(
        payload: &'a [u8],
        name: &'a Name,
        control: Option<Filled<'a>>,
        truncated: bool,
    ) -> Self {
        Self { payload, name, control, truncated }
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
        self.name.decode()
    }

    /// The address it was sent to, where the socket is bound to a wildcard address; `None` where it is bound to one
    /// address, which is then the destination. May be a multicast or broadcast address.
    #[inline]
    #[must_use]
    pub fn destination(&self) -> Option<IpAddr> {
        self.control.as_ref().and_then(Filled::destination)
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
