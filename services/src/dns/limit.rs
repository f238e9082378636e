//! Response rate limiting: similar replies per second and network.
//!
//! Replies to a forged source reach a victim. Replies of one kind to one network are counted; above the limit most are
//! dropped, and some are truncated, so that a real client retries over TCP, where addresses cannot be forged.
//!
//! An attacker can query many names to stay below that limit. Therefore the surplus of reply bytes over query bytes per
//! network and second is limited, too. Above that limit, replies are truncated, which makes them no longer than the query;
//! none is dropped.
//!
//! Loopback has no limits.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::respond::{AnswerKind, WrittenAnswer};
use crate::refusals::RefusalReason;

/// Two keys with the same bucket replace each other.
const BUCKETS: usize = 1 << 16;
/// Networks with the same token bucket share it.
const TOKEN_BUCKETS: usize = 1 << 14;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DnsRateLimit {
    /// Replies per second of one kind, about one name, to one network; 0: no limit.
    pub per_second: u32,
    /// Of the replies above the limit, every `slip`-th is truncated (TC) and not dropped; 0: none.
    pub slip: u32,
    /// Reply bytes minus query bytes per second and network, above which replies are truncated; 0: no limit.
    pub surplus_bytes: u32,
    /// Prefix length of an IPv4 network.
    pub prefix_v4: u8,
    /// Prefix length of an IPv6 network.
    pub prefix_v6: u8,
}

impl DnsRateLimit {
    /// With a slip of 2, no limit of the surplus, and networks of 24 and 56 bits.
    #[must_use]
    pub fn per_second(per_second: u32) -> Self {
        Self { per_second, slip: 2, surplus_bytes: 0, prefix_v4: 24, prefix_v6: 56 }
    }
}

impl Default for DnsRateLimit {
    /// 200 similar replies per second, like NSD, and 125,000 bytes of surplus, that is, one megabit per second.
    fn default() -> Self {
        Self { surplus_bytes: 125_000, ..Self::per_second(200) }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct LimitBucket {
    /// Hash of network, kind and name.
    mark: u32,
    second: u32,
    count: u32,
    /// Count of the second before.
    before: u32,
}

#[derive(Debug, Clone, Copy)]
struct TokenBucket {
    /// Surplus that is left.
    bytes: u32,
    // Time of the last refill, in milliseconds since the start.
    filled_ms: u64,
}

// Each worker has a limiter. The kernel spreads the flows of a network over workers, so a network may get the limit from
// each worker.
#[derive(Debug)]
pub(crate) struct DnsLimiter {
    limit: DnsRateLimit,
    buckets: Box<[LimitBucket]>,
    surplus: Box<[TokenBucket]>,
    began: Instant,
    // Random, so that nobody can choose addresses that share a victim's bucket.
    secret: u64,
}

impl DnsLimiter {
    pub(crate) fn new(limit: DnsRateLimit) -> Self {
        use std::hash::{BuildHasher as _, RandomState};
        let secret = RandomState::new().hash_one(0);
        let full_bucket = TokenBucket { bytes: limit.surplus_bytes, filled_ms: 0 };
        Self {
            limit,
            buckets: vec![LimitBucket::default(); BUCKETS].into(),
            surplus: vec![full_bucket; TOKEN_BUCKETS].into(),
            began: Instant::now(),
            secret,
        }
    }

    /// Why a reply to a query of `query_bytes` from `source` is dropped or truncated; `None` if it is sent.
    pub(crate) fn refusal(
        &mut self,
        source: IpAddr,
        query_bytes: usize,
        written: &WrittenAnswer,
    ) -> Option<RefusalReason> {
        if source.to_canonical().is_loopback() {
            return None;
        }
        let since_began = self.began.elapsed();
        if self.limit.per_second > 0
            && let Some(refusal) = self.check_rate(source, written.kind, written.subject, since_began)
        {
            return Some(refusal);
        }
        let surplus = written.length.saturating_sub(query_bytes);
        let is_over = surplus > 0 && !self.spend_surplus(source, surplus, since_began);
        is_over.then_some(RefusalReason::SurplusTruncated)
    }

    /// Takes `surplus` bytes from the bucket of a network; false if it has less.
    fn spend_surplus(&mut self, source: IpAddr, surplus: usize, since_began: Duration) -> bool {
        let max_bytes = self.limit.surplus_bytes;
        if max_bytes == 0 {
            return true;
        }
        let now_ms = since_began.as_millis() as u64;
        let hash = self.hash(source, &[]);
        let bucket = &mut self.surplus[hash as usize & (TOKEN_BUCKETS - 1)];
        let earned = u64::from(max_bytes).saturating_mul(now_ms.saturating_sub(bucket.filled_ms)) / 1000;
        if earned > 0 {
            bucket.bytes = u64::from(bucket.bytes).saturating_add(earned).min(max_bytes.into()) as u32;
            bucket.filled_ms = now_ms;
        }
        match bucket.bytes.checked_sub(u32::try_from(surplus).unwrap_or(u32::MAX)) {
            Some(remaining) => {
                bucket.bytes = remaining;
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
    ) -> Option<RefusalReason> {
        let hash = self.hash(source, &[u64::from(subject) << 8 | kind as u64]);
        let (mark, second) = ((hash >> 32) as u32, since_began.as_secs() as u32);
        let bucket = &mut self.buckets[hash as usize & (BUCKETS - 1)];
        if bucket.mark != mark {
            *bucket = LimitBucket { mark, second, count: 0, before: 0 };
        }
        if bucket.second != second {
            let previous_count = if second.wrapping_sub(bucket.second) == 1 { bucket.count } else { 0 };
            *bucket = LimitBucket { mark, second, count: 0, before: previous_count };
        }
        bucket.count = bucket.count.saturating_add(1);
        // A network far above the limit in the last second begins this one above it.
        let effective_count = bucket.count.max(bucket.before / 2);
        match (effective_count > self.limit.per_second, self.limit.slip) {
            (false, _) => None,
            (true, slip) if slip != 0 && bucket.count.is_multiple_of(slip) => {
                Some(RefusalReason::RateTruncated)
            }
            (true, _) => Some(RefusalReason::RateLimited),
        }
    }

    fn hash(&self, source: IpAddr, extra_words: &[u64]) -> u64 {
        let network = match source.to_canonical() {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.limit.prefix_v4.min(32))).unwrap_or(0);
                u64::from(address.to_bits() & mask)
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.limit.prefix_v6.min(128))).unwrap_or(0);
                let bits = address.to_bits() & mask;
                ((bits >> 64) as u64).rotate_left(7) ^ bits as u64 ^ 1 << 63
            }
        };
        let mut hash = self.secret;
        for word in [network].iter().chain(extra_words) {
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

    const SEND: Option<RefusalReason> = None;
    const TRUNCATE: Option<RefusalReason> = Some(RefusalReason::RateTruncated);
    const DROP: Option<RefusalReason> = Some(RefusalReason::RateLimited);

    fn verdicts(
        limiter: &mut DnsLimiter,
        source: &str,
        count: usize,
        at: Duration,
    ) -> Vec<Option<RefusalReason>> {
        let source = source.parse().expect("an address");
        (0..count).map(|_| limiter.check_rate(source, AnswerKind::Positive, 7, at)).collect()
    }

    #[test]
    fn answers_above_the_limit_are_half_truncated_and_half_dropped() {
        let mut limiter = limiter(10, 2);
        let all = verdicts(&mut limiter, "192.0.2.1", 30, Duration::ZERO);
        assert!(all[..10].iter().all(|verdict| *verdict == SEND));
        let count = |expected| all[10..].iter().filter(|verdict| **verdict == expected).count();
        assert_eq!((count(TRUNCATE), count(DROP)), (10, 10));
    }

    #[test]
    fn each_network_has_its_own_rate_limit() {
        let mut limiter = limiter(10, 0);
        verdicts(&mut limiter, "192.0.2.1", 10, Duration::ZERO);
        assert_eq!(verdicts(&mut limiter, "192.0.2.200", 1, Duration::ZERO), [DROP]);
        assert_eq!(verdicts(&mut limiter, "192.0.3.1", 1, Duration::ZERO), [SEND]);
        verdicts(&mut limiter, "2001:db8::1", 10, Duration::ZERO);
        assert_eq!(verdicts(&mut limiter, "2001:db8:0:1::1", 1, Duration::ZERO), [DROP]);
        assert_eq!(verdicts(&mut limiter, "2001:db8:1::1", 1, Duration::ZERO), [SEND]);
    }

    #[test]
    fn surplus_bytes_are_limited_per_network() {
        let mut limiter =
            DnsLimiter::new(DnsRateLimit { per_second: 0, surplus_bytes: 1000, ..DnsRateLimit::default() });
        let mut sent_count = |source: &str, at: Duration| {
            let source = source.parse().expect("an address");
            (0..100).filter(|_| limiter.spend_surplus(source, 90, at)).count()
        };
        assert_eq!(sent_count("192.0.2.1", Duration::ZERO), 11);
        assert_eq!(sent_count("192.0.2.200", Duration::ZERO), 0, "the same network");
        assert_eq!(
            sent_count("192.0.2.200", SECOND / 2),
            5,
            "half a second's surplus, and the rest of the first"
        );
        assert_eq!(
            sent_count("192.0.2.200", 100 * SECOND),
            11,
            "at most the surplus of one second accumulates"
        );
        let answer_of = |length| WrittenAnswer {
            length,
            options_bytes: 0,
            kind: AnswerKind::Positive,
            subject: 7,
            truncated: false,
        };
        let verdict = |limiter: &mut DnsLimiter, source: &str, length| {
            limiter.refusal(source.parse().expect("an address"), 40, &answer_of(length))
        };
        assert_eq!(verdict(&mut limiter, "198.51.100.1", 2000), Some(RefusalReason::SurplusTruncated));
        assert_eq!(verdict(&mut limiter, "198.51.100.1", 40), SEND, "no longer than the query");
        assert_eq!(verdict(&mut limiter, "127.0.0.1", 2000), SEND);
        assert_eq!(verdict(&mut limiter, "::ffff:127.0.0.1", 2000), SEND);
    }

    #[test]
    fn answer_kinds_and_names_are_limited_separately() {
        let mut limiter = limiter(1, 0);
        let source = "192.0.2.1".parse().expect("an address");
        for (kind, subject) in [(AnswerKind::Positive, 1), (AnswerKind::NoName, 1), (AnswerKind::Positive, 2)]
        {
            assert_eq!(limiter.check_rate(source, kind, subject, SECOND), SEND);
            assert_eq!(limiter.check_rate(source, kind, subject, SECOND), DROP);
        }
    }

    #[test]
    fn a_network_is_answered_again_after_a_pause() {
        let mut limiter = limiter(10, 0);
        verdicts(&mut limiter, "192.0.2.1", 1000, Duration::ZERO);
        assert_eq!(verdicts(&mut limiter, "192.0.2.1", 1, SECOND), [DROP], "still far above the limit");
        assert_eq!(verdicts(&mut limiter, "192.0.2.1", 1, 2 * SECOND), [SEND]);
    }
}
