//! Requests that were answered just now, so that one that comes again gets the same answer (RFC 2865, section 2.5; RFC 5080,
//! section 2.2.2): a password is checked once, and what a user did is counted once.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::packet::AUTHENTICATOR_BYTES;

/// How long an answer is kept.
pub const KEPT: Duration = Duration::from_secs(5);

/// Parts that are locked apart, so that workers seldom wait for each other.
const PARTS: usize = 64;
/// Answers a part keeps at most; beyond them the oldest goes. Only NASes that know the secret get this far.
const MOST: usize = 2048;

/// Who asked, and by which identifier.
type RequestKey = (SocketAddr, u8);

/// Answers of the last five seconds, for all workers: a request that comes again may reach another one.
#[derive(Debug)]
pub(crate) struct RecentAnswers {
    hash: RandomState,
    parts: Vec<Mutex<RecentPart>>,
}

#[derive(Debug, Default)]
struct RecentPart {
    answers: HashMap<RequestKey, RecentAnswer>,
    /// In order of time. Those whose answer was replaced since are passed over.
    order: VecDeque<(RequestKey, Instant)>,
}

#[derive(Debug)]
struct RecentAnswer {
    authenticator: [u8; AUTHENTICATOR_BYTES],
    at: Instant,
    reply: Box<[u8]>,
}

impl RecentAnswers {
    pub(crate) fn new() -> Self {
        Self { hash: RandomState::new(), parts: (0..PARTS).map(|_| Mutex::default()).collect() }
    }

    /// The answer to this very request: writes it to `reply` and returns its length.
    pub(crate) fn find(
        &self,
        key: RequestKey,
        authenticator: &[u8; AUTHENTICATOR_BYTES],
        now: Instant,
        reply: &mut [u8],
    ) -> Option<usize> {
        let part = self.part(key).lock().unwrap_or_else(PoisonError::into_inner);
        let answer = part.answers.get(&key)?;
        if answer.authenticator != *authenticator || now.saturating_duration_since(answer.at) > KEPT {
            return None;
        }
        let length = answer.reply.len();
        reply.get_mut(..length)?.copy_from_slice(&answer.reply);
        Some(length)
    }

    /// Keeps an answer. That to an earlier request of the same identifier goes.
    pub(crate) fn keep(
        &self,
        key: RequestKey,
        authenticator: [u8; AUTHENTICATOR_BYTES],
        now: Instant,
        reply: &[u8],
    ) {
        let mut part = self.part(key).lock().unwrap_or_else(PoisonError::into_inner);
        part.evict_expired(now);
        part.answers.insert(key, RecentAnswer { authenticator, at: now, reply: reply.into() });
        part.order.push_back((key, now));
    }

    fn part(&self, key: RequestKey) -> &Mutex<RecentPart> {
        &self.parts[self.hash.hash_one(key) as usize % PARTS]
    }
}

impl RecentPart {
    /// Makes room: what is too old goes, and one more if it is full.
    fn evict_expired(&mut self, now: Instant) {
        while let Some((key, at)) = self.order.front().copied() {
            let old = now.saturating_duration_since(at) > KEPT;
            if !old && self.order.len() < MOST {
                return;
            }
            self.order.pop_front();
            if self.answers.get(&key).is_some_and(|answer| answer.at == at) {
                self.answers.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(port: u16) -> RequestKey {
        (SocketAddr::from(([192, 0, 2, 1], port)), 7)
    }

    fn found(recent: &RecentAnswers, key: RequestKey, authenticator: u8, now: Instant) -> Option<Vec<u8>> {
        let mut reply = [0; 8];
        let length = recent.find(key, &[authenticator; 16], now, &mut reply)?;
        Some(reply[..length].to_vec())
    }

    #[test]
    fn the_same_request_finds_its_answer_for_five_seconds() {
        let (recent, start) = (RecentAnswers::new(), Instant::now());
        recent.keep(key(1), [1; 16], start, b"one");
        assert_eq!(found(&recent, key(1), 1, start + KEPT), Some(b"one".to_vec()));
        assert_eq!(found(&recent, key(1), 2, start), None, "another request of the same identifier");
        assert_eq!(found(&recent, key(2), 1, start), None, "another port");
        assert_eq!(found(&recent, key(1), 1, start + KEPT + Duration::from_millis(1)), None);
        recent.keep(key(1), [2; 16], start, b"two");
        assert_eq!(found(&recent, key(1), 1, start), None);
        assert_eq!(found(&recent, key(1), 2, start), Some(b"two".to_vec()));
    }

    #[test]
    fn memory_has_an_end() {
        let (recent, start) = (RecentAnswers::new(), Instant::now());
        for number in 0..4 * PARTS * MOST {
            let key = (SocketAddr::from(([10, 0, (number >> 16) as u8, 1], number as u16)), 0);
            recent.keep(key, [0; 16], start, b"x");
        }
        for part in &recent.parts {
            let part = part.lock().unwrap();
            assert!(part.answers.len() <= MOST && part.order.len() <= MOST);
        }
        // Later, all of it goes as the next is kept.
        let later = start + 2 * KEPT;
        let part = recent.part(key(1));
        recent.keep(key(1), [0; 16], later, b"x");
        assert_eq!(part.lock().unwrap().order.len(), 1);
    }
}
