//! Replies that are sent later, or from another thread.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use socket2::Socket;

use crate::counters::SharedCounters;
use crate::reply::ReplyOptions;
use crate::sys::control::{ControlBuffer, ControlRequest};
use crate::sys::name::{AddressFamily, SocketName};
use crate::sys::single_message::send_message;

/// The parts of a worker that deferred replies use.
#[derive(Debug)]
pub(crate) struct ReplyPath {
    // Weak, so that a late reply does not keep the port.
    pub(crate) socket: Weak<Socket>,
    pub(crate) counters: Arc<SharedCounters>,
    pub(crate) family: AddressFamily,
    pub(crate) asked: ControlRequest,
}

/// A handle to reply to a request later, or from another thread.
///
/// [`Request::defer`](crate::Request::defer) creates a handle, and the service returns
/// [`Action::Defer`](crate::Action::Defer). The reply leaves by the worker's UDP socket, from the
/// address to which the request was sent, also with AF_XDP. A handle that is dropped sends no
/// reply. Each handle uses about 250 bytes and no other resource. Limit their number yourself,
/// because neither the guard nor the receive buffer counts them.
///
/// [`RunningServer::stop`](crate::RunningServer::stop) does not wait for handles: finish your
/// replies first.
#[derive(Debug, Clone)]
pub struct DeferredReply {
    pub(crate) path: Arc<ReplyPath>,
    pub(crate) name: SocketName,
    /// Control data with the source address, and its length.
    pub(crate) control: ControlBuffer,
    pub(crate) length: usize,
}

impl DeferredReply {
    /// The sender of the request.
    #[must_use]
    pub fn destination(&self) -> SocketAddr {
        self.name.decode()
    }

    /// Sends one datagram, counted in [`Counts::deferred_sent`](crate::Counts::deferred_sent). You may call it several times.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotConnected`]: the worker has ended. [`io::ErrorKind::WouldBlock`]: the send buffer stayed full for
    /// 500 ms. Otherwise the error of `sendmsg(2)`.
    pub fn send(&self, payload: &[u8]) -> io::Result<()> {
        self.send_with(payload, ReplyOptions::default())
    }

    /// As [`send`](Self::send), with options.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), and [`io::ErrorKind::InvalidInput`] for an address of the other family than the
    /// socket's or a segment that does not fit the path.
    pub fn send_with(&self, payload: &[u8], options: ReplyOptions) -> io::Result<()> {
        let ended_error =
            || io::Error::new(io::ErrorKind::NotConnected, "the worker of this request has ended");
        let socket = self.path.socket.upgrade().ok_or_else(ended_error)?;
        loop {
            match self.send_by(&socket, payload, options) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(()) => break,
            }
        }
        self.path.counters.count_deferred_sent();
        Ok(())
    }

    /// Sends one datagram by `socket`, which is not counted.
    pub(crate) fn send_by(&self, socket: &Socket, payload: &[u8], options: ReplyOptions) -> io::Result<()> {
        let (mut name, mut control, mut length) = (self.name, self.control, self.length);
        if let Some(reply_address) = options.to {
            if reply_address.ip().to_canonical().is_ipv4() != name.is_ipv4() {
                length = 0;
            }
            let address_error = || io::Error::from_raw_os_error(libc::EINVAL);
            name = SocketName::encode(reply_address, self.path.family).ok_or_else(address_error)?;
        }
        let length = control.append(length, name.is_ipv4(), options.extras());
        send_message(socket, payload, &name, self.path.family, &mut control, length)
    }
}
