//! The parts of a worker that every backend uses.

use std::io;
use std::sync::Arc;

use rustix::net::RecvFlags;
use socket2::Socket;

use crate::counters::{Counts, SharedCounters};
use crate::deferred_reply::ReplyPath;
use crate::overload::AdmissionControl;
use crate::reply::ReplyOptions;
use crate::service::{Action, Request, Service};
use crate::shutdown::Shutdown;
use crate::sys::batch::{BatchShape, IncomingMessage, OutgoingMessage};
use crate::sys::control::ReceivedControl;

/// The parts of a worker that its loop uses.
pub(crate) struct WorkerJob<'a, S> {
    pub(crate) socket: &'a Socket,
    pub(crate) shape: BatchShape,
    // Whether the service gets truncated requests, too.
    pub(crate) deliver_truncated: bool,
    // Whether another worker answers broadcasts.
    pub(crate) skips_broadcasts: bool,
    pub(crate) service: &'a mut S,
    /// For deferred replies.
    pub(crate) path: Arc<ReplyPath>,
    pub(crate) counters: &'a SharedCounters,
    pub(crate) shutdown: Shutdown<'a>,
    pub(crate) admission: Option<AdmissionControl>,
}

/// A worker's own counts, published after each batch.
pub(super) struct LocalCounters<'a> {
    pub(super) counts: Counts,
    shared: &'a SharedCounters,
    /// Whether counters changed that not every batch changes.
    pub(super) rest: bool,
}

impl<'a> LocalCounters<'a> {
    pub(super) fn new(shared: &'a SharedCounters) -> Self {
        // A restarted worker continues its counts.
        Self { counts: shared.snapshot(), shared, rest: false }
    }

    #[inline]
    pub(super) fn publish(&mut self) {
        self.shared.publish(&self.counts);
        if std::mem::take(&mut self.rest) {
            self.shared.publish_rest(&self.counts);
        }
    }

    /// Takes back the count of a broadcast that another worker counts, too.
    #[cold]
    #[inline(never)]
    fn uncount_copy(&mut self) {
        self.counts.received -= 1;
    }

    // Counts a truncated request; returns `deliver`. Not inlined, so that the loop keeps neither the counter nor the
    // setting in a register.
    #[cold]
    #[inline(never)]
    pub(super) fn count_truncated(&mut self, deliver: bool) -> bool {
        self.counts.truncated += 1;
        self.rest = true;
        deliver
    }

    /// Counts a request that the admission policy refused.
    #[cold]
    #[inline(never)]
    pub(super) fn count_shed(&mut self) {
        self.counts.shed += 1;
        self.rest = true;
    }

    // Apart from the loop, because errors are rare and the loop must stay small.
    #[cold]
    pub(super) fn count_send_failure(&mut self, error: &io::Error) {
        self.counts.send_failed.count(error);
        self.rest = true;
    }

    /// Counts the decision of the service, except for messages that are to be sent.
    #[inline(always)]
    pub(super) fn record_action(&mut self, action: Action, reply_space: usize) -> OutgoingMessage {
        match action {
            Action::Echo => OutgoingMessage::Same,
            Action::Reply(length) if length <= reply_space => OutgoingMessage::Reply(length),
            Action::ReplyTo { length, to } if length <= reply_space => {
                self.reply_with_options(length, ReplyOptions { to: Some(to), ..ReplyOptions::default() })
            }
            Action::ReplyWith { length, options } if length <= reply_space => {
                self.reply_with_options(length, options)
            }
            Action::Reply(_) | Action::ReplyTo { .. } | Action::ReplyWith { .. } => {
                self.count_send_failure(&io::Error::from_raw_os_error(libc::EMSGSIZE));
                OutgoingMessage::Nothing
            }
            Action::Drop => {
                self.counts.dropped += 1;
                self.rest = true;
                OutgoingMessage::Nothing
            }
            Action::Defer => {
                self.counts.deferred += 1;
                self.rest = true;
                OutgoingMessage::Nothing
            }
        }
    }

    pub(super) fn reply_with_options(&mut self, length: usize, options: ReplyOptions) -> OutgoingMessage {
        self.counts.redirected += u64::from(options.to.is_some());
        self.rest = true;
        OutgoingMessage::With(length, options)
    }

    /// Handles a failed receive call. Returns whether the socket was empty.
    ///
    /// # Errors
    /// The call will never succeed: a closed or wrong descriptor, a call that a sandbox forbids.
    #[cold]
    pub(super) fn on_receive_error(&mut self, error: io::Error, socket: &Socket) -> io::Result<bool> {
        match error.raw_os_error() {
            // A signal does not show whether the queue is empty.
            Some(libc::EINTR) => Ok(false),
            Some(libc::EAGAIN) => Ok(true),
            Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT | libc::EINVAL | libc::ENOSYS | libc::EPERM) => {
                Err(error)
            }
            Some(number @ (libc::EOPNOTSUPP | libc::EACCES)) if still_fails(socket, number) => Err(error),
            _ => {
                self.counts.receive_errors += 1;
                self.rest = true;
                self.publish();
                Ok(false)
            }
        }
    }

    /// Sends one message, and again if a signal interrupts the call.
    #[inline]
    pub(super) fn send_single(&mut self, mut send: impl FnMut() -> io::Result<()>) {
        loop {
            self.counts.syscalls += 1;
            match send() {
                Ok(()) => self.counts.answered += 1,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => self.count_send_failure(&error),
            }
            return;
        }
    }
}

// Whether receiving fails with `number` each time. An ICMP error has the same number, which the kernel reports once
// (net/ipv6/icmp.c, `tab_unreach`; net/ipv4/icmp.c, `icmp_err_convert`). Other ICMP errors may come between calls, but not
// between all of them.
#[cold]
fn still_fails(socket: &Socket, number: i32) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    (0..16).all(|_| {
        let received = rustix::net::recv(socket, &mut [0; 0][..], flags);
        received.is_err_and(|error| error.raw_os_error() == number)
    })
}

/// Passes a request to the service, and counts its decision, except for messages that are to be sent.
#[inline(always)]
pub(super) fn decide<S: Service>(
    service: &mut S,
    path: &Arc<ReplyPath>,
    (skips_broadcasts, deliver_truncated): (bool, bool),
    counters: &mut LocalCounters<'_>,
    incoming: IncomingMessage<'_>,
) -> OutgoingMessage {
    let IncomingMessage { payload, name, control, truncated, reply } = incoming;
    if skips_broadcasts && control.as_ref().is_some_and(ReceivedControl::is_broadcast) {
        counters.uncount_copy();
        return OutgoingMessage::Nothing;
    }
    if truncated && !counters.count_truncated(deliver_truncated) {
        return OutgoingMessage::Nothing;
    }
    let reply_space = reply.len();
    let action = service.answer(&Request::new(payload, name, control, truncated, path), reply);
    counters.record_action(action, reply_space)
}

impl Drop for LocalCounters<'_> {
    // Publishes after a panic too, so that the requests lost with it can be counted.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.publish(&self.counts);
            self.shared.publish_rest(&self.counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Type};

    use super::*;

    #[test]
    fn icmp_errors_are_counted_and_lasting_errors_end_the_worker() -> io::Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        let shared = SharedCounters::default();
        let mut counters = LocalCounters::new(&shared);
        for number in [libc::EACCES, libc::EOPNOTSUPP, libc::ECONNREFUSED] {
            assert!(!counters.on_receive_error(io::Error::from_raw_os_error(number), &socket)?, "{number}");
        }
        assert_eq!(shared.snapshot().receive_errors, 3);
        let denied = io::Error::from_raw_os_error(libc::EPERM);
        assert!(counters.on_receive_error(denied, &socket).is_err());
        assert!(!still_fails(&socket, libc::EACCES));
        // A stream socket without a connection refuses each call.
        assert!(still_fails(&Socket::new(Domain::IPV4, Type::STREAM, None)?, libc::ENOTCONN));
        Ok(())
    }
}
