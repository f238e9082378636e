//! The counters of a worker.

use std::io;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

/// Counts of one worker, or of all workers.
///
/// Every request has one fate: `received == answered + dropped + deferred + truncated + shed + send_failed.total() +
/// panicked` once a worker has ended. A running worker publishes its counts after each batch. With
/// [`Builder::deliver_truncated`](crate::Builder::deliver_truncated), a truncated request also counts as one of the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counts {
    /// Datagrams taken from the socket, or as frames.
    pub received: u64,
    /// Replies the kernel accepted, wherever they went.
    pub answered: u64,
    /// Requests the service chose not to answer.
    pub dropped: u64,
    /// Requests whose reply the service left to a [`DeferredReply`](crate::DeferredReply).
    #[serde(default)]
    pub deferred: u64,
    /// Datagrams sent by [`DeferredReply`](crate::DeferredReply)s, each of which can send several or none.
    #[serde(default)]
    pub deferred_sent: u64,
    /// Requests that the [`OverloadPolicy`](crate::OverloadPolicy) dropped before the service saw them.
    #[serde(default)]
    pub shed: u64,
    /// Replies that the service directed to another address, sent or not.
    pub redirected: u64,
    /// Requests longer than the limit.
    pub truncated: u64,
    /// Replies that could not be sent.
    pub send_failed: SendFailures,
    /// Requests lost when the service panicked: the one at hand and others of its batch.
    #[serde(default)]
    pub panicked: u64,
    /// Restarts of the worker after a panic, see [`Builder::restart_workers`](crate::Builder::restart_workers).
    #[serde(default)]
    pub restarts: u64,
    /// Failed receive calls, except interrupted ones.
    pub receive_errors: u64,
    /// Requests received by AF_XDP; part of `received`.
    #[serde(default)]
    pub frames: u64,
    /// Frames dropped because of a wrong checksum; not part of `received`
    /// ([`AfXdpSettings::verify_checksums`](crate::AfXdpSettings::verify_checksums)).
    #[serde(default)]
    pub checksum_errors: u64,
    /// Receive calls that brought at least one request.
    pub batches: u64,
    /// Receive and send calls made.
    pub syscalls: u64,
}

/// Replies that could not be sent, by cause. Each one is skipped, the others of its batch still go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SendFailures {
    /// The send buffer stayed full for as long as the engine waits (`EAGAIN`).
    pub would_block: u64,
    /// The kernel or the device's queue had no room (`ENOBUFS`, `ENOMEM`).
    pub no_buffers: u64,
    /// A firewall rule or the security policy forbade it (`EPERM`, `EACCES`).
    pub not_permitted: u64,
    /// Longer than the path's MTU with fragmentation off (`EMSGSIZE`), or than the reply buffer.
    pub too_long: u64,
    /// The peer refused an earlier one (`ECONNREFUSED`).
    pub refused: u64,
    /// No way to the peer (`ENETUNREACH`, `EHOSTUNREACH`, `ENETDOWN`, `EHOSTDOWN`).
    pub unreachable: u64,
    /// An address that cannot be sent to or from (`EINVAL`, `EADDRNOTAVAIL`, `EAFNOSUPPORT`): source port 0, a
    /// reply of the other family, a local address that has gone since.
    pub invalid: u64,
    /// Any other error.
    pub other: u64,
}

impl SendFailures {
    /// All causes together.
    #[must_use]
    pub fn total(&self) -> u64 {
        let mut counts = Counts { send_failed: *self, ..Counts::default() };
        counts.values_mut().map(|value| *value).iter().sum()
    }

    #[cold]
    pub(crate) fn count(&mut self, error: &io::Error) {
        let field = match error.raw_os_error() {
            Some(libc::EAGAIN) => &mut self.would_block,
            Some(libc::ENOBUFS | libc::ENOMEM) => &mut self.no_buffers,
            Some(libc::EPERM | libc::EACCES) => &mut self.not_permitted,
            Some(libc::EMSGSIZE) => &mut self.too_long,
            Some(libc::ECONNREFUSED) => &mut self.refused,
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN) => {
                &mut self.unreachable
            }
            Some(libc::EINVAL | libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT) => &mut self.invalid,
            _ => &mut self.other,
        };
        *field += 1;
    }
}

const VALUES: usize = 23;
// Values that [`SharedCounters::publish_rest`] publishes; the others are changed in shared memory only.
const PUBLISHED: usize = VALUES - 3;
const DEFERRED_SENT: usize = PUBLISHED;
const PANICKED: usize = PUBLISHED + 1;
const RESTARTS: usize = PUBLISHED + 2;

impl Counts {
    /// In the order of [`SharedCounters`].
    fn values_mut(&mut self) -> [&mut u64; VALUES] {
        let failures = &mut self.send_failed;
        [
            &mut self.received,
            &mut self.answered,
            &mut self.batches,
            &mut self.syscalls,
            &mut self.dropped,
            &mut self.deferred,
            &mut self.shed,
            &mut self.redirected,
            &mut self.truncated,
            &mut self.receive_errors,
            &mut self.frames,
            &mut self.checksum_errors,
            &mut failures.would_block,
            &mut failures.no_buffers,
            &mut failures.not_permitted,
            &mut failures.too_long,
            &mut failures.refused,
            &mut failures.unreachable,
            &mut failures.invalid,
            &mut failures.other,
            &mut self.deferred_sent,
            &mut self.panicked,
            &mut self.restarts,
        ]
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, mut other: Self) {
        for (value, other_value) in self.values_mut().into_iter().zip(other.values_mut()) {
            *value += *other_value;
        }
    }
}

// The shared copy of [`Counts`]. One worker writes and any thread reads, so plain loads and stores suffice. Aligned to 128
// bytes, because some CPUs fetch cache lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct SharedCounters([AtomicU64; VALUES]);

impl SharedCounters {
    /// Publishes the counters that every batch changes. Only the owning worker may call this.
    #[inline]
    pub(crate) fn publish(&self, counts: &Counts) {
        self.0[0].store(counts.received, Relaxed);
        self.0[1].store(counts.answered, Relaxed);
        self.0[2].store(counts.batches, Relaxed);
        self.0[3].store(counts.syscalls, Relaxed);
    }

    // Publishes everything else.
    #[inline(never)]
    pub(crate) fn publish_rest(&self, counts: &Counts) {
        let mut counts = *counts;
        for (shared, value) in self.0[..PUBLISHED].iter().zip(counts.values_mut()) {
            shared.store(*value, Relaxed);
        }
    }

    // Counts the requests that were lost with a panic: those received that have no other fate. Only the owning worker may
    // call this. With `deliver_truncated`, truncated requests have another fate as well.
    #[cold]
    pub(crate) fn count_panic(&self, deliver_truncated: bool) {
        let counts = self.snapshot();
        let truncated = if deliver_truncated { 0 } else { counts.truncated };
        let accounted_requests = counts.answered
            + counts.dropped
            + counts.deferred
            + counts.shed
            + truncated
            + counts.send_failed.total()
            + counts.panicked;
        self.0[PANICKED].store(counts.panicked + counts.received.saturating_sub(accounted_requests), Relaxed);
    }

    /// Counts a reply of a [`DeferredReply`](crate::DeferredReply), from any thread.
    pub(crate) fn count_deferred_sent(&self) {
        self.0[DEFERRED_SENT].fetch_add(1, Relaxed);
    }

    /// Only the owning worker may call this.
    #[cold]
    pub(crate) fn count_restart(&self) {
        self.0[RESTARTS].fetch_add(1, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Counts {
        let mut counts = Counts::default();
        for (value, shared) in counts.values_mut().into_iter().zip(&self.0) {
            *value = shared.load(Relaxed);
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_errors_are_counted_by_errno() {
        let mut failures = SendFailures::default();
        for errno in [
            libc::EAGAIN,
            libc::ENOBUFS,
            libc::EPERM,
            libc::EMSGSIZE,
            libc::ECONNREFUSED,
            libc::EHOSTUNREACH,
            libc::EINVAL,
            libc::EIO,
        ] {
            failures.count(&io::Error::from_raw_os_error(errno));
        }
        let SendFailures { would_block, no_buffers, not_permitted, too_long, refused, .. } = failures;
        let SendFailures { unreachable, invalid, other, .. } = failures;
        let all = [would_block, no_buffers, not_permitted, too_long, refused, unreachable, invalid, other];
        assert_eq!(all, [1; 8]);
        assert_eq!(failures.total(), 8);
    }

    #[test]
    fn snapshots_contain_published_counts_and_events() {
        let mut counts = Counts { received: 3, answered: 1, dropped: 1, syscalls: 9, ..Counts::default() };
        counts.send_failed.no_buffers = 1;
        let counters = SharedCounters::default();
        counters.publish(&counts);
        counters.publish_rest(&counts);
        assert_eq!(counters.snapshot(), counts);
        counters.count_deferred_sent();
        counters.count_restart();
        counters.count_panic(false);
        let snapshot = counters.snapshot();
        assert_eq!((snapshot.deferred_sent, snapshot.restarts, snapshot.panicked), (1, 1, 0));
        let mut sum = counts;
        sum += counts;
        assert_eq!((sum.received, sum.send_failed.total()), (6, 2));
    }
}
