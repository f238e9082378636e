//! A limit of replies per client.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::Instant;

/// Clients that a worker remembers. Two with the same place replace each other, which lets more requests through. A table
/// that grew could be filled from forged addresses.
const PLACES: usize = 1 << 12;

/// Most replies to one client: an IPv4 address, or the /64 of an IPv6 address. Each worker counts for itself; the requests
/// of one client usually reach one worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NtpRateLimit {
    /// Average replies per second.
    pub per_second: f64,
    /// Replies in a row after a pause.
    pub burst: f64,
}

#[derive(Debug)]
pub(crate) struct NtpLimiter {
    limit: NtpRateLimit,
    hash: RandomState,
    places: Box<[Option<NtpClient>]>,
}

#[derive(Debug, Clone, Copy)]
struct NtpClient {
    key: u64,
    /// Replies left at the time `at`.
    credit: f64,
    at: Instant,
}

impl NtpLimiter {
    pub(crate) fn new(limit: NtpRateLimit) -> Self {
        Self { limit, hash: RandomState::new(), places: vec![None; PLACES].into_boxed_slice() }
    }

    // Counts a request; false if it is above the limit.
    pub(crate) fn admit(&mut self, source: IpAddr, now: Instant) -> bool {
        let key = key(source);
        let slot = &mut self.places[self.hash.hash_one(key) as usize % PLACES];
        let burst = self.limit.burst.max(1.0);
        let client = match slot {
            Some(client) if client.key == key => client,
            _ => slot.insert(NtpClient { key, credit: burst, at: now }),
        };
        let elapsed = now.saturating_duration_since(client.at);
        client.at = now;
        client.credit = (client.credit + elapsed.as_secs_f64() * self.limit.per_second).min(burst);
        let is_admitted = client.credit >= 1.0;
        if is_admitted {
            client.credit -= 1.0;
        }
        is_admitted
    }
}

fn key(source: IpAddr) -> u64 {
    match source.to_canonical() {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        // The upper half is the network. Networks below 2^32 there are not in use.
        IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_clients_above_their_rate_are_refused() {
        let mut limiter = NtpLimiter::new(NtpRateLimit { per_second: 2.0, burst: 8.0 });
        let start = Instant::now();
        let [busy, calm] = ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let mut admit_count =
            |source, at, requests| (0..requests).filter(|_| limiter.admit(source, at)).count();
        assert_eq!(admit_count(busy, start, 16), 8);
        assert_eq!(admit_count(calm, start, 1), 1);
        let later = admit_count(busy, start + Duration::from_secs(1), 8);
        // 8 if both have the same place, because the calm client replaced the busy one.
        assert!(later == 2 || later == 8, "{later}");
    }

    #[test]
    fn hosts_of_an_ipv6_64_share_a_rate() {
        let [a, b, c] = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(|ip| key(ip.parse().unwrap()));
        assert!(a == b && a != c);
        assert_eq!(key("::ffff:192.0.2.1".parse().unwrap()), key("192.0.2.1".parse().unwrap()));
    }
}
