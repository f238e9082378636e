//! What every worker counts.

use std::io;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

/// What one worker, or all of them, did so far.
///
/// Every request has one fate: `received == answered + dropped + deferred + truncated + shed + send_failed.total() +
/// panicked` once a worker has ended. While it runs the figures are published a batch at a time. (With
/// [`Builder::deliver_truncated`](crate::Builder::deliver_truncated) a truncated request is also in one of the
/// others.)
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
    /// Datagrams sent by these. More than `deferred` where some send several, less where some send none.
    #[serde(default)]
    pub deferred_sent: u64,
    /// Requests given up by the [`OverloadPolicy`](crate::OverloadPolicy) policy before the service saw them.
    #[serde(default)]
    pub shed: u64,
    /// Replies the service directed to another address, whether or not sending them worked.
    pub redirected: u64,
    /// Requests longer than the limit.
    pub truncated: u64,
    /// Replies that could not be sent.
    pub send_failed: SendFailures,
    /// Requests that the worker had taken and not answered when its service panicked: the one that made it panic, and
    /// others of its batch.
    #[serde(default)]
    pub panicked: u64,
    /// How often the worker was started anew after a panic, see [`Builder::restart_workers`](crate::Builder::restart_workers).
    #[serde(default)]
    pub restarts: u64,
    /// Failed receive calls, interrupted ones not counted.
    pub receive_errors: u64,
    /// Of the requests received, those that came as frames by AF_XDP and not from the socket.
    #[serde(default)]
    pub frames: u64,
    /// Requests in frames that were thrown away since a checksum was wrong; they are not among those received
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
        self.fields().iter().map(|field| **field).sum()
    }

    /// Counts one failure under its cause.
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

    fn fields(&self) -> [&u64; CAUSES] {
        let Self { would_block, no_buffers, not_permitted, too_long, refused, unreachable, invalid, other } =
            self;
        [would_block, no_buffers, not_permitted, too_long, refused, unreachable, invalid, other]
    }

    fn fields_mut(&mut self) -> [&mut u64; CAUSES] {
        let Self { would_block, no_buffers, not_permitted, too_long, refused, unreachable, invalid, other } =
            self;
        [would_block, no_buffers, not_permitted, too_long, refused, unreachable, invalid, other]
    }
}

impl AddAssign for SendFailures {
    fn add_assign(&mut self, other: Self) {
        for (mine, theirs) in self.fields_mut().into_iter().zip(other.fields()) {
            *mine += *theirs;
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.answered += other.answered;
        self.dropped += other.dropped;
        self.deferred += other.deferred;
        self.deferred_sent += other.deferred_sent;
        self.shed += other.shed;
        self.redirected += other.redirected;
        self.truncated += other.truncated;
        self.send_failed += other.send_failed;
        self.panicked += other.panicked;
        self.restarts += other.restarts;
        self.receive_errors += other.receive_errors;
        self.frames += other.frames;
        self.checksum_errors += other.checksum_errors;
        self.batches += other.batches;
        self.syscalls += other.syscalls;
    }
}

const CAUSES: usize = 8;

/// The shared side of [`Counts`]: one worker writes, anyone reads, so plain loads and stores do. 128 bytes apart
/// because some CPUs fetch cache lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct SharedCounters {
    received: AtomicU64,
    answered: AtomicU64,
    dropped: AtomicU64,
    deferred: AtomicU64,
    /// The only one that others than the worker write.
    deferred_sent: AtomicU64,
    shed: AtomicU64,
    redirected: AtomicU64,
    truncated: AtomicU64,
    receive_errors: AtomicU64,
    frames: AtomicU64,
    checksum_errors: AtomicU64,
    batches: AtomicU64,
    syscalls: AtomicU64,
    panicked: AtomicU64,
    restarts: AtomicU64,
    send_failed: [AtomicU64; CAUSES],
}

impl SharedCounters {
    /// Publishes what every batch changes. Only the owning worker may call this.
    #[inline]
    pub(crate) fn publish(&self, counts: &Counts) {
        self.received.store(counts.received, Relaxed);
        self.answered.store(counts.answered, Relaxed);
        self.batches.store(counts.batches, Relaxed);
        self.syscalls.store(counts.syscalls, Relaxed);
    }

    /// Publishes everything else.
    #[inline(never)]
    pub(crate) fn publish_rest(&self, counts: &Counts) {
        self.dropped.store(counts.dropped, Relaxed);
        self.deferred.store(counts.deferred, Relaxed);
        self.shed.store(counts.shed, Relaxed);
        self.redirected.store(counts.redirected, Relaxed);
        self.truncated.store(counts.truncated, Relaxed);
        self.receive_errors.store(counts.receive_errors, Relaxed);
        self.frames.store(counts.frames, Relaxed);
        self.checksum_errors.store(counts.checksum_errors, Relaxed);
        for (shared, own) in self.send_failed.iter().zip(counts.send_failed.fields()) {
            shared.store(*own, Relaxed);
        }
    }

    /// Counts the requests that went with a panic: those published as received that have no fate. Only the owning worker
    /// may call this; `deliver_truncated` tells whether truncated requests have another fate besides.
    #[cold]
    pub(crate) fn count_panic(&self, deliver_truncated: bool) {
        let counts = self.snapshot();
        let truncated = if deliver_truncated { 0 } else { counts.truncated };
        let fates = counts.answered
            + counts.dropped
            + counts.deferred
            + counts.shed
            + truncated
            + counts.send_failed.total()
            + counts.panicked;
        self.panicked.store(counts.panicked + counts.received.saturating_sub(fates), Relaxed);
    }

    /// Counts a reply that was sent by a [`DeferredReply`](crate::DeferredReply), on any thread.
    pub(crate) fn count_deferred_sent(&self) {
        self.deferred_sent.fetch_add(1, Relaxed);
    }

    /// Counts a restart. Only the owning worker may call this.
    #[cold]
    pub(crate) fn count_restart(&self) {
        self.restarts.store(self.restarts.load(Relaxed) + 1, Relaxed);
    }

    /// Reads every counter.
    pub(crate) fn snapshot(&self) -> Counts {
        let mut send_failed = SendFailures::default();
        for (own, shared) in send_failed.fields_mut().into_iter().zip(&self.send_failed) {
            *own = shared.load(Relaxed);
        }
        Counts {
            received: self.received.load(Relaxed),
            answered: self.answered.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            deferred: self.deferred.load(Relaxed),
            deferred_sent: self.deferred_sent.load(Relaxed),
            shed: self.shed.load(Relaxed),
            redirected: self.redirected.load(Relaxed),
            truncated: self.truncated.load(Relaxed),
            send_failed,
            panicked: self.panicked.load(Relaxed),
            restarts: self.restarts.load(Relaxed),
            receive_errors: self.receive_errors.load(Relaxed),
            frames: self.frames.load(Relaxed),
            checksum_errors: self.checksum_errors.load(Relaxed),
            batches: self.batches.load(Relaxed),
            syscalls: self.syscalls.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_counted_under_its_cause() {
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
        assert!(failures.fields().iter().all(|field| **field == 1), "{failures:?}");
        assert_eq!(failures.total(), 8);
    }

    #[test]
    fn what_is_published_is_read_back() {
        let mut counts = Counts { received: 3, answered: 1, dropped: 1, syscalls: 9, ..Counts::default() };
        counts.send_failed.no_buffers = 1;
        let counters = SharedCounters::default();
        counters.publish(&counts);
        counters.publish_rest(&counts);
        assert_eq!(counters.snapshot(), counts);
        let mut sum = counts;
        sum += counts;
        assert_eq!((sum.received, sum.send_failed.total()), (6, 2));
    }

    #[test]
    fn two_workers_never_share_a_cache_line_pair() {
        assert_eq!(align_of::<SharedCounters>(), 128);
        assert_eq!(size_of::<SharedCounters>() % 128, 0);
    }
}
