//! Replies of the last five seconds, so that a repeated request gets the same reply (RFC 2865, section 2.5; RFC 5080, section
//! 2.2.2), and a password is checked once.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::packet::AUTHENTICATOR_BYTES;

/// How long a reply is kept.
pub const KEPT: Duration = Duration::from_secs(5);

// Shards have a lock each, so that workers seldom wait for each other.
const SHARDS: usize = 64;
// Replies per generation, and their bytes. Forged requests can fill it if a client needs no
// Message-Authenticator.
const GENERATION: usize = 2048;
const GENERATION_BYTES: usize = GENERATION * 128;

/// Source and identifier of a request.
type RequestKey = (SocketAddr, u8);

// All workers share it, because a repeated request may reach another worker.
#[derive(Debug)]
pub(crate) struct RecentAnswers {
    hash: RandomState,
    shards: Vec<Mutex<AnswerShard>>,
}

/// Two generations: a full or old one replaces the one before it.
#[derive(Debug)]
struct AnswerShard {
    current: HashMap<RequestKey, RecentAnswer>,
    previous: HashMap<RequestKey, RecentAnswer>,
    /// Bytes of the replies in `current`.
    bytes: usize,
    began: Instant,
}

#[derive(Debug)]
struct RecentAnswer {
    authenticator: [u8; AUTHENTICATOR_BYTES],
    at: Instant,
    reply: Box<[u8]>,
}

impl RecentAnswers {
    pub(crate) fn new() -> Self {
        let shard = || AnswerShard {
            current: HashMap::new(),
            previous: HashMap::new(),
            bytes: 0,
            began: Instant::now(),
        };
        Self { hash: RandomState::new(), shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect() }
    }

    /// Writes the reply to the same request to `reply` and returns its length.
    pub(crate) fn find(
        &self,
        key: RequestKey,
        authenticator: &[u8; AUTHENTICATOR_BYTES],
        now: Instant,
        reply: &mut [u8],
    ) -> Option<usize> {
        let shard = self.shard(key);
        let answer = shard.current.get(&key).or_else(|| shard.previous.get(&key))?;
        if answer.authenticator != *authenticator || now.saturating_duration_since(answer.at) > KEPT {
            return None;
        }
        let length = answer.reply.len();
        reply.get_mut(..length)?.copy_from_slice(&answer.reply);
        Some(length)
    }

    // Keeps a reply instead of that to an earlier request with the same key.
    pub(crate) fn keep(
        &self,
        key: RequestKey,
        authenticator: [u8; AUTHENTICATOR_BYTES],
        now: Instant,
        reply: &[u8],
    ) {
        let mut shard = self.shard(key);
        let is_full = shard.current.len() >= GENERATION || shard.bytes + reply.len() > GENERATION_BYTES;
        if is_full || now.saturating_duration_since(shard.began) > KEPT {
            shard.previous = std::mem::take(&mut shard.current);
            shard.bytes = 0;
            shard.began = now;
        }
        let answer = RecentAnswer { authenticator, at: now, reply: reply.into() };
        let replaced = shard.current.insert(key, answer);
        shard.bytes += reply.len();
        shard.bytes -= replaced.map_or(0, |answer| answer.reply.len());
    }

    fn shard(&self, key: RequestKey) -> MutexGuard<'_, AnswerShard> {
        let shard = &self.shards[self.hash.hash_one(key) as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(port: u16) -> RequestKey {
        (SocketAddr::from(([192, 0, 2, 1], port)), 7)
    }

    fn recent_answer(
        recent: &RecentAnswers,
        key: RequestKey,
        authenticator: u8,
        now: Instant,
    ) -> Option<Vec<u8>> {
        let mut reply = [0; 8];
        let length = recent.find(key, &[authenticator; 16], now, &mut reply)?;
        Some(reply[..length].to_vec())
    }

    #[test]
    fn a_repeated_request_finds_its_answer_for_five_seconds() {
        let (recent, start) = (RecentAnswers::new(), Instant::now());
        recent.keep(key(1), [1; 16], start, b"one");
        assert_eq!(recent_answer(&recent, key(1), 1, start + KEPT), Some(b"one".to_vec()));
        assert_eq!(recent_answer(&recent, key(1), 2, start), None, "another request with this identifier");
        assert_eq!(recent_answer(&recent, key(2), 1, start), None, "another port");
        assert_eq!(recent_answer(&recent, key(1), 1, start + KEPT + Duration::from_millis(1)), None);
        recent.keep(key(1), [2; 16], start, b"two");
        assert_eq!(recent_answer(&recent, key(1), 1, start), None);
        assert_eq!(recent_answer(&recent, key(1), 2, start), Some(b"two".to_vec()));
    }

    #[test]
    fn kept_bytes_are_bounded_and_replaced_answers_do_not_count() {
        let (recent, start) = (RecentAnswers::new(), Instant::now());
        let long = [0; 4096];
        // Of some ports, so that each shard has one.
        (1..2000).for_each(|port| recent.keep(key(port), [0; 16], start, b"kept"));
        for _ in 0..4 * GENERATION_BYTES / long.len() {
            recent.keep(key(2000), [0; 16], start, &long);
        }
        assert!((1..2000).all(|port| recent_answer(&recent, key(port), 0, start).is_some()));
        for number in 0..4 * SHARDS * GENERATION_BYTES / long.len() {
            recent.keep(key(number as u16), [0; 16], start, &long);
        }
        for shard in &recent.shards {
            let shard = shard.lock().unwrap();
            for generation in [&shard.current, &shard.previous] {
                let bytes: usize = generation.values().map(|answer| answer.reply.len()).sum();
                assert!(bytes <= GENERATION_BYTES, "{bytes}");
            }
        }
        let newest = (4 * SHARDS * GENERATION_BYTES / long.len() - 1) as u16;
        let mut reply = [1; 4096];
        assert_eq!(recent.find(key(newest), &[0; 16], start, &mut reply), Some(4096));
    }

    #[test]
    fn kept_answers_are_bounded_and_expire() {
        let (recent, start) = (RecentAnswers::new(), Instant::now());
        for number in 0..4 * SHARDS * GENERATION {
            let key = (SocketAddr::from(([10, 0, (number >> 16) as u8, 1], number as u16)), 0);
            recent.keep(key, [0; 16], start, b"x");
        }
        for shard in &recent.shards {
            let shard = shard.lock().unwrap();
            assert!(shard.current.len() <= GENERATION && shard.previous.len() <= GENERATION);
        }
        for generation in 1..=2 {
            recent.keep(key(1), [0; 16], start + generation * 2 * KEPT, b"x");
        }
        let shard = recent.shard(key(1));
        assert_eq!((shard.current.len(), shard.previous.len()), (1, 1));
    }
}
