//! Response-rate limiting: how many like answers a second go to like addresses.
//!
//! A source that is forged gets its answers at another's place. Answers of a kind to a network are counted; above the limit
//! most are dropped, and some are cut, so that a real client comes again over TCP, where addresses cannot be forged.
//!
//! Who forges queries for many names gets many like answers of each. So what answers have more than their queries is bounded, too:
//! a network is sent so many bytes a second more than came from it, and above that answers are cut, which makes them no
//! longer than the query. None is dropped for that.
//!
//! Loopback is not limited: what comes from there was sent by this host.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::respond::{AnswerKind, WrittenAnswer};

/// Buckets; two that meet in one take turns, each beginning anew.
const BUCKETS: usize = 1 << 16;
/// Purses; networks that meet in one share it.
const PURSES: usize = 1 << 14;

/// Limits of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DnsRateLimit {
    /// Answers a second of a kind, about a name, to a network; 0: any number.
    pub per_second: u32,
    /// Of those above it, each so many-th is cut (TC) and not dropped; 0: none.
    pub slip: u32,
    /// Bytes a second that answers to a network may have more than the queries from there, before they are cut; 0: any number.
    pub surplus_bytes: u32,
    /// Bits of an IPv4 address that make the network.
    pub prefix_v4: u8,
    /// Bits of an IPv6 address that make the network.
    pub prefix_v6: u8,
}

impl DnsRateLimit {
    /// With a slip of 2, any surplus, and networks of 24 and 56 bits.
    #[must_use]
    pub fn per_second(per_second: u32) -> Self {
        Self { per_second, slip: 2, surplus_bytes: 0, prefix_v4: 24, prefix_v6: 56 }
    }
}

impl Default for DnsRateLimit {
    /// 200 like answers a second, as NSD has it, and 125,000 bytes of surplus: a forger gains a megabit a second at most.
    fn default() -> Self {
        Self { surplus_bytes: 125_000, ..Self::per_second(200) }
    }
}

/// What becomes of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitVerdict {
    Send,
    /// Above the rate limit, but told to come by TCP.
    Slip,
    /// The network has no surplus left.
    Cut,
    Drop,
}

#[derive(Debug, Clone, Copy, Default)]
struct LimitBucket {
    /// Of the network, kind and name; another's bucket is taken over.
    mark: u32,
    second: u32,
    count: u32,
    /// Answers in the second before.
    before: u32,
}

/// What a network may still be sent beyond what came from it, bytes.
#[derive(Debug, Clone, Copy)]
struct TokenBucket {
    bytes: u32,
    /// When it was last filled, in milliseconds since the start.
    filled_ms: u64,
}

/// Counts answers. Each worker has one; sources are spread over workers by flow, so that a network may get the limit from
/// each of them.
#[derive(Debug)]
pub(crate) struct DnsLimiter {
    limit: DnsRateLimit,
    buckets: Box<[LimitBucket]>,
    purses: Box<[TokenBucket]>,
    began: Instant,
    /// Not known outside, so that nobody can aim at another's bucket.
    secret: u64,
}

impl DnsLimiter {
    pub(crate) fn new(limit: DnsRateLimit) -> Self {
        use std::hash::{BuildHasher as _, RandomState};
        let secret = RandomState::new().hash_one(0);
        let full = TokenBucket { bytes: limit.surplus_bytes, filled_ms: 0 };
        Self {
            limit,
            buckets: vec![LimitBucket::default(); BUCKETS].into(),
            purses: vec![full; PURSES].into(),
            began: Instant::now(),
            secret,
        }
    }

    /// What becomes of an answer to a query of so many bytes from `source` now.
    pub(crate) fn verdict(
        &mut self,
        source: IpAddr,
        query_bytes: usize,
        written: &WrittenAnswer,
    ) -> LimitVerdict {
        if source.to_canonical().is_loopback() {
            return LimitVerdict::Send;
        }
        let since_began = self.began.elapsed();
        let verdict = match self.limit.per_second {
            0 => LimitVerdict::Send,
            _ => self.check_rate(source, written.kind, written.subject, since_began),
        };
        let surplus = written.length.saturating_sub(query_bytes);
        match verdict {
            LimitVerdict::Send if surplus > 0 && !self.spend_surplus(source, surplus, since_began) => {
                LimitVerdict::Cut
            }
            verdict => verdict,
        }
    }

    /// Takes so many bytes out of the purse of a network, if they are there.
    fn spend_surplus(&mut self, source: IpAddr, surplus: usize, since_began: Duration) -> bool {
        let most = self.limit.surplus_bytes;
        if most == 0 {
            return true;
        }
        let now_ms = since_began.as_millis() as u64;
        let hash = self.hash(source, &[]);
        let purse = &mut self.purses[hash as usize & (PURSES - 1)];
        let earned = u64::from(most).saturating_mul(now_ms.saturating_sub(purse.filled_ms)) / 1000;
        if earned > 0 {
            purse.bytes = u64::from(purse.bytes).saturating_add(earned).min(most.into()) as u32;
            purse.filled_ms = now_ms;
        }
        match purse.bytes.checked_sub(u32::try_from(surplus).unwrap_or(u32::MAX)) {
            Some(left) => {
                purse.bytes = left;
                true
            }
            None => false,
        }
    }

    fn check_rate(
        &mut self,
        source: IpAddr,
        kind: AnswerKind,
        subject: u32,
        since_began: Duration,
    ) -> LimitVerdict {
        let hash = self.hash(source, &[u64::from(subject) << 8 | kind as u64]);
        let (mark, second) = ((hash >> 32) as u32, since_began.as_secs() as u32);
        let bucket = &mut self.buckets[hash as usize & (BUCKETS - 1)];
        if bucket.mark != mark {
            *bucket = LimitBucket { mark, second, count: 0, before: 0 };
        }
        if bucket.second != second {
            let before = if second.wrapping_sub(bucket.second) == 1 { bucket.count } else { 0 };
            *bucket = LimitBucket { mark, second, count: 0, before };
        }
        bucket.count = bucket.count.saturating_add(1);
        // Who was far above the limit in the last second begins this one above it.
        let over = bucket.count.max(bucket.before / 2);
        match (over > self.limit.per_second, self.limit.slip) {
            (false, _) => LimitVerdict::Send,
            (true, slip) if slip != 0 && bucket.count.is_multiple_of(slip) => LimitVerdict::Slip,
            (true, _) => LimitVerdict::Drop,
        }
    }

    fn hash(&self, source: IpAddr, more: &[u64]) -> u64 {
        let network = match source.to_canonical() {
            IpAddr::V4(address) => {
                let kept = u32::MAX.checked_shl(32 - u32::from(self.limit.prefix_v4.min(32))).unwrap_or(0);
                u64::from(address.to_bits() & kept)
            }
            IpAddr::V6(address) => {
                let kept = u128::MAX.checked_shl(128 - u32::from(self.limit.prefix_v6.min(128))).unwrap_or(0);
                let bits = address.to_bits() & kept;
                ((bits >> 64) as u64).rotate_left(7) ^ bits as u64 ^ 1 << 63
            }
        };
        let mut hash = self.secret;
        for word in [network].iter().chain(more) {
            hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 29;
        }
        hash.wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limiter(per_second: u32, slip: u32) -> DnsLimiter {
        DnsLimiter::new(DnsRateLimit { slip, ..DnsRateLimit::per_second(per_second) })
    }

    fn verdicts(limiter: &mut DnsLimiter, source: &str, count: usize, at: Duration) -> Vec<LimitVerdict> {
        let source = source.parse().expect("an address");
        (0..count).map(|_| limiter.check_rate(source, AnswerKind::Positive, 7, at)).collect()
    }

    #[test]
    fn above_the_limit_half_are_cut_and_half_dropped() {
        let mut limiter = limiter(10, 2);
        let all = verdicts(&mut limiter, "192.0.2.1", 30, Duration::ZERO);
        assert!(all[..10].iter().all(|verdict| *verdict == LimitVerdict::Send));
        let count = |wanted| all[10..].iter().filter(|verdict| **verdict == wanted).count();
        assert_eq!((count(LimitVerdict::Slip), count(LimitVerdict::Drop)), (10, 10));
    }

    #[test]
    fn a_network_shares_a_limit_and_others_have_their_own() {
        let mut limiter = limiter(10, 0);
        verdicts(&mut limiter, "192.0.2.1", 10, Duration::ZERO);
        assert_eq!(verdicts(&mut limiter, "192.0.2.200", 1, Duration::ZERO), [LimitVerdict::Drop]);
        assert_eq!(verdicts(&mut limiter, "192.0.3.1", 1, Duration::ZERO), [LimitVerdict::Send]);
        verdicts(&mut limiter, "2001:db8::1", 10, Duration::ZERO);
        assert_eq!(verdicts(&mut limiter, "2001:db8:0:1::1", 1, Duration::ZERO), [LimitVerdict::Drop]);
        assert_eq!(verdicts(&mut limiter, "2001:db8:1::1", 1, Duration::ZERO), [LimitVerdict::Send]);
    }

    #[test]
    fn a_network_is_sent_so_much_more_than_came_from_it() {
        let mut limiter =
            DnsLimiter::new(DnsRateLimit { per_second: 0, surplus_bytes: 1000, ..DnsRateLimit::default() });
        let mut sent = |source: &str, at: Duration| {
            let source = source.parse().expect("an address");
            (0..100).filter(|_| limiter.spend_surplus(source, 90, at)).count()
        };
        assert_eq!(sent("192.0.2.1", Duration::ZERO), 11);
        assert_eq!(sent("192.0.2.200", Duration::ZERO), 0, "the same network");
        assert_eq!(sent("192.0.2.200", SECOND / 2), 5, "half of it, and what was left");
        assert_eq!(sent("192.0.2.200", 100 * SECOND), 11, "no more than a second's worth is saved up");
        let written =
            |length| WrittenAnswer { length, kind: AnswerKind::Positive, subject: 7, truncated: false };
        let verdict = |limiter: &mut DnsLimiter, source: &str, length| {
            limiter.verdict(source.parse().expect("an address"), 40, &written(length))
        };
        assert_eq!(verdict(&mut limiter, "198.51.100.1", 2000), LimitVerdict::Cut);
        assert_eq!(verdict(&mut limiter, "198.51.100.1", 40), LimitVerdict::Send, "no more than was asked");
        assert_eq!(verdict(&mut limiter, "127.0.0.1", 2000), LimitVerdict::Send);
        assert_eq!(verdict(&mut limiter, "::ffff:127.0.0.1", 2000), LimitVerdict::Send);
    }

    #[test]
    fn kinds_and_names_are_counted_apart() {
        let mut limiter = limiter(1, 0);
        let source = "192.0.2.1".parse().expect("an address");
        for (kind, subject) in [(AnswerKind::Positive, 1), (AnswerKind::NoName, 1), (AnswerKind::Positive, 2)]
        {
            assert_eq!(limiter.check_rate(source, kind, subject, SECOND), LimitVerdict::Send);
            assert_eq!(limiter.check_rate(source, kind, subject, SECOND), LimitVerdict::Drop);
        }
    }

    #[test]
    fn who_stops_is_answered_again() {
        let mut limiter = limiter(10, 0);
        verdicts(&mut limiter, "192.0.2.1", 1000, Duration::ZERO);
        assert_eq!(verdicts(&mut limiter, "192.0.2.1", 1, SECOND), [LimitVerdict::Drop], "still far above");
        assert_eq!(verdicts(&mut limiter, "192.0.2.1", 1, 2 * SECOND), [LimitVerdict::Send]);
    }
}
