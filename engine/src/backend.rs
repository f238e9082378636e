//! How a worker calls the kernel. Each backend is one loop that runs until it is told to end.

pub(crate) mod mmsg;
pub(crate) mod recvfrom;

use std::io;

use crate::counters::{Counters, Counts};
use crate::sys::batch::Shape;
use crate::worker::Ending;

/// What a loop works with.
pub(crate) struct Job<'a, S> {
    pub(crate) socket: &'a socket2::Socket,
    pub(crate) shape: Shape,
    /// Whether the service also gets requests whose end is missing.
    pub(crate) deliver_truncated: bool,
    pub(crate) service: &'a mut S,
    pub(crate) counters: &'a Counters,
    pub(crate) ending: Ending<'a>,
}

/// What a failed receive means.
enum Receive {
    /// Interrupted by a signal: again.
    Again,
    /// Nothing queued, and the call was not to wait.
    Empty,
    /// Counted; the next one may work.
    Failed,
    /// The socket is of no more use.
    Broken(io::Error),
}

fn judge(error: io::Error) -> Receive {
    match error.raw_os_error() {
        Some(libc::EINTR) => Receive::Again,
        Some(libc::EAGAIN) => Receive::Empty,
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
        ) => Receive::Broken(error),
        _ => Receive::Failed,
    }
}

/// A worker's own figures, published when a batch is done.
struct Tally<'a> {
    counts: Counts,
    shared: &'a Counters,
    /// Whether any but the counters that every batch changes did change.
    rest: bool,
}

impl<'a> Tally<'a> {
    fn new(shared: &'a Counters) -> Self {
        Self { counts: Counts::default(), shared, rest: false }
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
    fn truncated(&mut self, deliver: bool) -> bool {
        self.counts.truncated += 1;
        self.rest = true;
        deliver
    }

    #[cold]
    fn send_failed(&mut self, error: &io::Error) {
        self.counts.send_failed.count(error);
        self.rest = true;
    }
}

fn too_long() -> io::Error {
    io::Error::from_raw_os_error(libc::EMSGSIZE)
}
