//! The decision of a worker whether to answer a request that it took.

use std::time::Duration;

use super::credit::WorkerCredit;
use super::shares::SourceShares;
use super::{OverloadPolicy, ShedPolicy, SourceGrouping};
use crate::sys::name::SocketName;
use crate::sys::stamp;

// Hooks of a loop. A type, so that a server without a policy has no cost.
pub(crate) trait AdmissionPolicy {
    // Whether the next receive should not wait, because the last one may have left requests. Its
    // result is reported by [`record_received`](Self::record_received) or
    // [`on_idle`](Self::on_idle). If false, the worker is about to wait.
    fn should_poll(&mut self) -> bool;
    /// `count` requests were taken; `filled`: the batch had room for no more.
    fn record_received(&mut self, socket: &socket2::Socket, count: usize, filled: bool);
    /// No request waits.
    fn on_idle(&mut self);
    /// Requests in frames were found; `has_more`: the next batch has no room for all of them.
    #[inline(always)]
    fn record_frames(&mut self, _has_more: bool) {}
    // The receive time of the next request, if the server uses receive times, in nanoseconds of the real-time clock. The
    // socket then has no time of the last packet.
    #[inline(always)]
    fn record_arrival(&mut self, _receive_time: impl FnOnce() -> Option<i64>) {}
    /// Whether the service gets the next request, sent by `source`.
    fn admits(&mut self, source: &SocketName) -> bool;
    /// Like `admits`, for a frame: its arrival time is unknown, and its name must be created.
    fn admits_from(&mut self, source: impl FnOnce() -> SocketName) -> bool;
}

/// No policy.
pub(crate) struct Unlimited;

impl AdmissionPolicy for Unlimited {
    #[inline(always)]
    fn should_poll(&mut self) -> bool {
        false
    }
    #[inline(always)]
    fn record_received(&mut self, _socket: &socket2::Socket, _count: usize, _filled: bool) {}
    #[inline(always)]
    fn on_idle(&mut self) {}
    #[inline(always)]
    fn admits(&mut self, _source: &SocketName) -> bool {
        true
    }
    #[inline(always)]
    fn admits_from(&mut self, _source: impl FnOnce() -> SocketName) -> bool {
        true
    }
}

#[derive(Debug)]
pub(crate) struct AdmissionControl {
    oldest: Option<AgeLimit>,
    fair: Option<(SourceGrouping, Box<SourceShares>)>,
    credit: Option<WorkerCredit>,
    /// Whether the last receive may have left requests.
    filled: bool,
}

/// Limits of this time or more can use the coarse clock, which is a tick behind.
const COARSE_NS: i64 = 100_000_000;

// Sheds requests that waited too long.
#[derive(Debug)]
struct AgeLimit {
    limit_ns: i64,
    // When the youngest request of the batch arrived, in nanoseconds of the real-time clock.
    youngest_ns: Option<i64>,
}

impl AdmissionControl {
    // `None` if `overload` requires nothing of a worker.
    pub(crate) fn new(overload: &OverloadPolicy, credit: Option<WorkerCredit>) -> Option<Self> {
        let age_limit = (overload.shed == ShedPolicy::Oldest).then(|| AgeLimit::new(overload.shed_after));
        // A guard limits sources itself.
        let fair_sources = overload.fairness.filter(|_| credit.is_none());
        let fair_sources =
            fair_sources.map(|fairness| (fairness, Box::new(SourceShares::new(random_seed()))));
        (age_limit.is_some() || fair_sources.is_some() || credit.is_some()).then_some(Self {
            oldest: age_limit,
            fair: fair_sources,
            credit,
            filled: false,
        })
    }

    fn is_within_share(&mut self, source: impl FnOnce() -> SocketName) -> bool {
        match &mut self.fair {
            Some((fairness, shares)) => shares.admits(fairness.source(source().decode().ip())),
            None => true,
        }
    }
}

// A number that senders cannot know, from the standard library's hasher keys.
pub(super) fn random_seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0) | 1
}

impl AgeLimit {
    fn new(limit: Duration) -> Self {
        Self { limit_ns: i64::try_from(limit.as_nanos()).unwrap_or(i64::MAX), youngest_ns: None }
    }

    fn is_too_old(&self) -> bool {
        let Some(youngest_ns) = self.youngest_ns else { return false };
        // Read per request. The coarse clock is behind, so it never sheds a fresh request.
        let now = if self.limit_ns >= COARSE_NS { stamp::coarse_now_ns() } else { stamp::now_ns() };
        now.saturating_sub(youngest_ns) > self.limit_ns
    }
}

impl AdmissionPolicy for AdmissionControl {
    #[inline]
    fn should_poll(&mut self) -> bool {
        if !self.filled
            && let Some(credit) = &mut self.credit
        {
            credit.mark_waiting();
        }
        self.filled
    }

    fn record_received(&mut self, socket: &socket2::Socket, count: usize, filled: bool) {
        self.filled = filled;
        if let Some(credit) = &mut self.credit {
            credit.record_taken(count, !filled);
        }
        if let Some(age_limit) = &mut self.oldest {
            age_limit.youngest_ns = stamp::last_arrival_ns(socket).ok();
        }
        if let Some((_, shares)) = &mut self.fair {
            shares.advance_window(stamp::monotonic_ns(), filled);
        }
    }

    fn on_idle(&mut self) {
        self.filled = false;
        if let Some(credit) = &mut self.credit {
            credit.record_taken(0, true);
        }
        if let Some((_, shares)) = &mut self.fair {
            shares.advance_window(stamp::monotonic_ns(), false);
        }
    }

    fn record_frames(&mut self, has_more: bool) {
        if let Some((_, shares)) = &mut self.fair {
            shares.advance_window(stamp::monotonic_ns(), has_more);
        }
    }

    fn record_arrival(&mut self, receive_time: impl FnOnce() -> Option<i64>) {
        if let Some(age_limit) = &mut self.oldest
            && let Some(receive_time) = receive_time()
        {
            age_limit.youngest_ns = Some(receive_time);
        }
    }

    fn admits(&mut self, source: &SocketName) -> bool {
        !self.oldest.as_ref().is_some_and(AgeLimit::is_too_old) && self.is_within_share(|| *source)
    }

    fn admits_from(&mut self, source: impl FnOnce() -> SocketName) -> bool {
        self.is_within_share(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::name::AddressFamily;

    fn gate(fairness: Option<SourceGrouping>) -> Result<AdmissionControl, &'static str> {
        let overload = OverloadPolicy { shed: ShedPolicy::Oldest, fairness, ..OverloadPolicy::default() };
        AdmissionControl::new(&overload, None).ok_or("no gate")
    }

    fn name() -> Result<SocketName, Box<dyn std::error::Error>> {
        Ok(SocketName::encode("192.0.2.1:5353".parse()?, AddressFamily::V4).ok_or("no name")?)
    }

    #[test]
    fn frames_are_admitted_even_if_the_last_socket_datagram_is_too_old()
    -> Result<(), Box<dyn std::error::Error>> {
        let (mut gate, name) = (gate(None)?, name()?);
        assert!(gate.admits(&name), "no arrival time is known");
        gate.record_arrival(|| Some(stamp::now_ns() - 1_000_000_000));
        assert!(!gate.admits(&name), "the last datagram of the socket waited longer than 250 ms");
        assert!(gate.admits_from(|| name), "a frame");
        gate.record_arrival(|| None);
        assert!(!gate.admits(&name), "an unknown arrival time changes nothing");
        Ok(())
    }

    #[test]
    fn requests_of_a_heavy_source_are_shed_while_more_frames_wait() -> Result<(), Box<dyn std::error::Error>>
    {
        let (mut gate, name) = (gate(Some(SourceGrouping::default()))?, name()?);
        let other = SocketName::encode("203.0.113.1:5353".parse()?, AddressFamily::V4).ok_or("no name")?;
        // Nothing waits in the socket of a worker with queues.
        gate.on_idle();
        gate.record_frames(true);
        assert!(gate.admits_from(|| other));
        let count = (0..1000).filter(|_| gate.admits_from(|| name)).count();
        assert!(count < 1000, "one of two sources gets all its requests admitted");
        assert!(!gate.admits(&name), "frames and datagrams of a source count together");
        gate.record_frames(false);
        assert!(gate.admits_from(|| name), "all frames fit the batch");
        Ok(())
    }
}
