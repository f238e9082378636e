//! How a worker calls the kernel. Each backend is one loop that runs until it is told to end.

pub(crate) mod mmsg;
pub(crate) mod recvfrom;
pub(crate) mod xdp;

use std::io;
use std::sync::Arc;

pub use xdp::{AfXdpSettings, XdpInterface, XdpMode, XdpQueue, XdpReport};

pub(crate) use xdp::FrameAddresses;

use crate::counters::{Counts, SharedCounters};
use crate::deferred::ReplyPath;
use crate::overload::AdmissionControl;
use crate::server::Backend;
use crate::service::{Action, ReplyOptions, Request, Service};
use crate::socket::Fallback;
use crate::sys::batch::{BatchShape, IncomingMessage, OutgoingMessage};
use crate::worker::Shutdown;

/// What a loop works with.
pub(crate) struct WorkerJob<'a, S> {
    pub(crate) socket: &'a socket2::Socket,
    pub(crate) shape: BatchShape,
    /// Whether the service also gets requests whose end is missing.
    pub(crate) deliver_truncated: bool,
    pub(crate) service: &'a mut S,
    /// For replies that the service leaves to somebody else.
    pub(crate) path: Arc<ReplyPath>,
    pub(crate) counters: &'a SharedCounters,
    pub(crate) ending: Shutdown<'a>,
    /// What is done above capacity; none: nothing.
    pub(crate) gate: Option<AdmissionControl>,
}

/// The backend that was asked for where it can run here, else the one that serves instead.
pub(crate) fn available_backend(wanted: Backend, fallbacks: &mut Vec<Fallback>) -> Backend {
    match wanted {
        Backend::Recvfrom | Backend::Mmsg { .. } => wanted,
        Backend::Xdp(_) => match xdp::probe() {
            Ok(()) => wanted,
            Err(why) => {
                fallbacks.push(Fallback { what: "AF_XDP, mmsg is used instead".to_owned(), why });
                Backend::default()
            }
        },
    }
}

/// What a failed receive means.
enum ReceiveFailure {
    /// Interrupted by a signal: again.
    Again,
    /// Nothing queued, and the call was not to wait.
    Empty,
    /// Counted; the next one may work.
    Failed,
    /// The socket is of no more use.
    Broken(io::Error),
}

fn classify_receive_error(error: io::Error) -> ReceiveFailure {
    match error.raw_os_error() {
        Some(libc::EINTR) => ReceiveFailure::Again,
        Some(libc::EAGAIN) => ReceiveFailure::Empty,
        // These stay: a closed or foreign descriptor, a call that a sandbox forbids.
        Some(
            libc::EBADF
            | libc::ENOTSOCK
            | libc::EFAULT
            | libc::EINVAL
            | libc::EOPNOTSUPP
            | libc::ENOSYS
            | libc::EPERM
            | libc::EACCES,
        ) => ReceiveFailure::Broken(error),
        _ => ReceiveFailure::Failed,
    }
}

/// A worker's own figures, published when a batch is done.
struct LocalCounters<'a> {
    counts: Counts,
    shared: &'a SharedCounters,
    /// Whether any but the counters that every batch changes did change.
    rest: bool,
}

impl<'a> LocalCounters<'a> {
    fn new(shared: &'a SharedCounters) -> Self {
        // A worker that was started anew, or has changed its way of calling the kernel, goes on counting.
        Self { counts: shared.snapshot(), shared, rest: false }
    }

    #[inline]
    fn publish(&mut self) {
        self.shared.publish(&self.counts);
        if std::mem::take(&mut self.rest) {
            self.shared.publish_rest(&self.counts);
        }
    }

    /// Counts a request whose end is missing; returns whether the service gets it all the same. Out of line, so that the
    /// loop carries neither the counter nor the setting along.
    #[cold]
    #[inline(never)]
    fn count_truncated(&mut self, deliver: bool) -> bool {
        self.counts.truncated += 1;
        self.rest = true;
        deliver
    }

    /// A reply that is not a plain one; counts where it goes.
    fn reply_with_options(&mut self, length: usize, options: ReplyOptions) -> OutgoingMessage {
        self.counts.redirected += u64::from(options.to.is_some());
        self.rest = true;
        OutgoingMessage::With(length, options)
    }

    /// Counts a request whose reply is left to somebody else.
    fn count_deferred(&mut self) {
        self.counts.deferred += 1;
        self.rest = true;
    }

    /// Counts a request that is given up.
    #[cold]
    #[inline(never)]
    fn count_shed(&mut self) {
        self.counts.shed += 1;
        self.rest = true;
    }

    #[cold]
    fn count_send_failure(&mut self, error: &io::Error) {
        self.counts.send_failed.count(error);
        self.rest = true;
    }
}

/// Asks the service about a request and counts what it decides, but for what is sent.
#[inline(always)]
fn decide<S: Service>(
    service: &mut S,
    path: &Arc<ReplyPath>,
    deliver_truncated: bool,
    tally: &mut LocalCounters<'_>,
    incoming: IncomingMessage<'_>,
) -> OutgoingMessage {
    let IncomingMessage { payload, name, control, truncated, reply } = incoming;
    if truncated && !tally.count_truncated(deliver_truncated) {
        return OutgoingMessage::Nothing;
    }
    let space = reply.len();
    match service.answer(&Request::new(payload, name, control, truncated, path), reply) {
        Action::Echo => OutgoingMessage::Same,
        Action::Reply(length) if length <= space => OutgoingMessage::Reply(length),
        Action::ReplyTo { length, to } if length <= space => {
            tally.reply_with_options(length, ReplyOptions { to: Some(to), ..ReplyOptions::default() })
        }
        Action::ReplyWith { length, options } if length <= space => tally.reply_with_options(length, options),
        Action::Reply(_) | Action::ReplyTo { .. } | Action::ReplyWith { .. } => {
            tally.count_send_failure(&too_long());
            OutgoingMessage::Nothing
        }
        Action::Drop => {
            tally.counts.dropped += 1;
            tally.rest = true;
            OutgoingMessage::Nothing
        }
        Action::Defer => {
            tally.count_deferred();
            OutgoingMessage::Nothing
        }
    }
}

impl Drop for LocalCounters<'_> {
    /// What a panic cut short is published too, so that requests that went with it can be counted.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.publish(&self.counts);
            self.shared.publish_rest(&self.counts);
        }
    }
}

fn too_long() -> io::Error {
    io::Error::from_raw_os_error(libc::EMSGSIZE)
}
