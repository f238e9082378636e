//! What a worker does between taking requests and answering them.

use std::time::Duration;

use super::credit::WorkerCredit;
use super::shares::SourceShares;
use super::{OverloadPolicy, ShedPolicy, SourceGrouping};
use crate::sys::name::SocketName;
use crate::sys::stamp;

/// What a loop asks about requests it took. A type, so that a server without a policy pays nothing for it.
pub(crate) trait AdmissionPolicy {
    /// Whether the next receive should look without waiting, since the last one left requests behind perhaps. What it finds,
    /// [`received`](Self::received) or [`on_idle`](Self::on_idle) is then told. Else the worker is taken to wait.
    fn should_poll(&mut self) -> bool;
    /// So many requests were taken, `filled` if there was room for no more.
    fn received(&mut self, socket: &socket2::Socket, count: usize, filled: bool);
    /// No request waits.
    fn on_idle(&mut self);
    /// Of the next of them is known, where the server asks for receive times, when the kernel received it, in nanoseconds of the
    /// real-time clock. Then the socket keeps no time of the last one.
    #[inline(always)]
    fn arrived(&mut self, _when: impl FnOnce() -> Option<i64>) {}
    /// Whether the service is to see the next of them, sent by `source`.
    fn admits(&mut self, source: &SocketName) -> bool;
    /// The same for one that came by no socket: when it arrived is not known, and its source's name has to be made first.
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
    fn received(&mut self, _socket: &socket2::Socket, _count: usize, _filled: bool) {}
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

/// A policy at work for one worker.
#[derive(Debug)]
pub(crate) struct AdmissionControl {
    oldest: Option<AgeLimit>,
    fair: Option<(SourceGrouping, Box<SourceShares>)>,
    credit: Option<WorkerCredit>,
    /// Whether the last receive may have left requests behind.
    filled: bool,
}

/// From this limit on it does not matter that the coarse clock is a tick behind.
const COARSE_NS: i64 = 100_000_000;

/// Sheds what waited too long.
#[derive(Debug)]
struct AgeLimit {
    limit_ns: i64,
    /// When the youngest request of the batch arrived, in nanoseconds of the real-time clock.
    youngest_ns: Option<i64>,
}

impl AdmissionControl {
    /// What `overload` asks of a worker; none if that is nothing.
    pub(crate) fn new(overload: &OverloadPolicy, credit: Option<WorkerCredit>) -> Option<Self> {
        let oldest = (overload.shed == ShedPolicy::Oldest).then(|| AgeLimit::new(overload.shed_after));
        // Where there is a guard, that is fair, and what it lets through is no source's excess.
        let fair = overload.fairness.filter(|_| credit.is_none());
        let fair = fair.map(|fairness| (fairness, Box::new(SourceShares::new(random_seed()))));
        (oldest.is_some() || fair.is_some() || credit.is_some()).then_some(Self {
            oldest,
            fair,
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

/// Something that who sends requests cannot know: the standard library's hashers are keyed by it.
pub(super) fn random_seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0) | 1
}

impl AgeLimit {
    fn new(limit: Duration) -> Self {
        Self { limit_ns: i64::try_from(limit.as_nanos()).unwrap_or(i64::MAX), youngest_ns: None }
    }

    fn is_too_old(&self) -> bool {
        let Some(youngest) = self.youngest_ns else { return false };
        // Asked for each request. The coarse clock is behind, so that what is fresh is never shed for it.
        let now = if self.limit_ns >= COARSE_NS { stamp::coarse_now_ns() } else { stamp::now_ns() };
        now.saturating_sub(youngest) > self.limit_ns
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

    fn received(&mut self, socket: &socket2::Socket, count: usize, filled: bool) {
        self.filled = filled;
        if let Some(credit) = &mut self.credit {
            credit.record_taken(count, !filled);
        }
        if let Some(oldest) = &mut self.oldest {
            oldest.youngest_ns = stamp::last_arrival_ns(socket).ok();
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

    fn arrived(&mut self, when: impl FnOnce() -> Option<i64>) {
        if let Some(oldest) = &mut self.oldest
            && let Some(when) = when()
        {
            oldest.youngest_ns = Some(when);
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
    fn frames_are_not_judged_by_how_old_the_sockets_last_datagram_is()
    -> Result<(), Box<dyn std::error::Error>> {
        let (mut gate, name) = (gate(None)?, name()?);
        assert!(gate.admits(&name), "nothing is known of it");
        gate.arrived(|| Some(stamp::now_ns() - 1_000_000_000));
        assert!(!gate.admits(&name), "the socket's waited longer than 250 ms");
        assert!(gate.admits_from(|| name), "a frame");
        gate.arrived(|| None);
        assert!(!gate.admits(&name), "what is not known changes nothing");
        Ok(())
    }

    #[test]
    fn frames_count_for_their_sources_share() -> Result<(), Box<dyn std::error::Error>> {
        let (mut gate, name) = (gate(Some(SourceGrouping::default()))?, name()?);
        let other = SocketName::encode("203.0.113.1:5353".parse()?, AddressFamily::V4).ok_or("no name")?;
        let Some((_, shares)) = &mut gate.fair else { return Err("no shares".into()) };
        // More wait than were taken.
        shares.advance_window(stamp::monotonic_ns(), true);
        assert!(gate.admits_from(|| other));
        let admitted = (0..1000).filter(|_| gate.admits_from(|| name)).count();
        assert!(admitted < 1000, "one of two sources has all it asks for");
        assert!(!gate.admits(&name), "frames and datagrams of a source count together");
        Ok(())
    }
}
