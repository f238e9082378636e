//! How often a client is answered.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Clients that are remembered, in one worker. Two that share a place push each other out, which lets more through, never
/// less: a table that grew would be a way to fill memory from forged addresses.
const PLACES: usize = 1 << 12;

/// Most answers to one client: an IPv4 address, or the /64 of an IPv6 one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NtpRateLimit {
    /// Answers a second, in the long run. By each worker: one client's requests commonly reach one only.
    pub per_second: f64,
    /// How many may be asked for at once, before.
    pub burst: f64,
}

/// What a request over the rate gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RateVerdict {
    /// It is within the rate.
    Answer,
    /// Over it; time to tell the client.
    Tell,
    Ignore,
}

/// Of the requests over the rate, one in so many is answered with a kiss of death: enough for a client that listens, and
/// nothing to gain for one that forges its address.
const TELL_EVERY: u32 = 4;

#[derive(Debug)]
pub(crate) struct NtpLimiter {
    limit: NtpRateLimit,
    hash: RandomState,
    places: Box<[Option<NtpClient>]>,
}

#[derive(Debug, Clone, Copy)]
struct NtpClient {
    key: u64,
    /// Answers it may have now, as of `at`.
    credit: f64,
    at: Instant,
    over: u32,
}

impl NtpLimiter {
    pub(crate) fn new(limit: NtpRateLimit) -> Self {
        Self { limit, hash: RandomState::new(), places: vec![None; PLACES].into_boxed_slice() }
    }

    pub(crate) fn check_client_rate(&mut self, source: IpAddr, now: Instant) -> RateVerdict {
        let key = key(source);
        let place = &mut self.places[self.hash.hash_one(key) as usize % PLACES];
        let burst = self.limit.burst.max(1.0);
        let client = match place {
            Some(client) if client.key == key => client,
            _ => place.insert(NtpClient { key, credit: burst, at: now, over: 0 }),
        };
        let passed: Duration = now.saturating_duration_since(client.at);
        client.at = now;
        client.credit = (client.credit + passed.as_secs_f64() * self.limit.per_second).min(burst);
        if client.credit >= 1.0 {
            client.credit -= 1.0;
            return RateVerdict::Answer;
        }
        client.over = client.over.wrapping_add(1);
        if client.over % TELL_EVERY == 1 { RateVerdict::Tell } else { RateVerdict::Ignore }
    }
}

fn key(source: IpAddr) -> u64 {
    match source.to_canonical() {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        // The upper half names the network. Addresses below 2^32 there are not in use.
        IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_over_its_rate_is_told_and_others_are_not() {
        let mut limiter = NtpLimiter::new(NtpRateLimit { per_second: 2.0, burst: 8.0 });
        let start = Instant::now();
        let [busy, calm] = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let verdicts: Vec<RateVerdict> = (0..16).map(|_| limiter.check_client_rate(busy, start)).collect();
        assert!(verdicts[..8].iter().all(|verdict| *verdict == RateVerdict::Answer));
        assert_eq!(verdicts[8..].iter().filter(|verdict| **verdict == RateVerdict::Tell).count(), 2);
        assert_eq!(verdicts[8..].iter().filter(|verdict| **verdict == RateVerdict::Ignore).count(), 6);
        assert_eq!(limiter.check_client_rate(calm, start), RateVerdict::Answer);
        let later = start + Duration::from_secs(1);
        let answered =
            (0..8).filter(|_| limiter.check_client_rate(busy, later) == RateVerdict::Answer).count();
        // If the two share a place, the calm one made the busy one new.
        assert!(answered == 2 || answered == 8, "{answered}");
    }

    #[test]
    fn hosts_of_an_ipv6_network_share_a_rate() {
        let [a, b, c] = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(|ip| key(ip.parse().unwrap()));
        assert!(a == b && a != c);
        assert_eq!(key("::ffff:192.0.2.1".parse().unwrap()), key("192.0.2.1".parse().unwrap()));
    }
}
