//! Two servers that answer each other, for ever, once a datagram with a forged source made one of them begin.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::service::{Action, Request, Service};

/// How many times in a row a source may send what it was just sent.
const TURNS: u16 = 256;

/// The same of a source that goes on when one was not answered.
const FEWEST_TURNS: u16 = 8;

/// Who is quiet for so long when one was not answered has what it had at first.
const QUIET: Duration = Duration::from_secs(1);

/// Sources that are remembered, each in a place that its address decides.
const PLACES: usize = 4096;

/// A service whose answers could be taken for requests, kept from talking to another such server for ever.
///
/// An echo cannot tell a request from an answer: one datagram whose source is forged, and two of them are busy with each
/// other from then on. What a loop looks like is a source that sends just what it was sent last, again and again. After 256
/// times in a row one is not answered, which ends a loop. Where the source still goes on, the next is not answered after 128
/// more, and so on down to each ninth, so that who forges many sources gains little. A second of quiet, or anything else
/// that the source sends, and it has 256 again.
///
/// So a client that sends the same bytes over and over, each after the answer to the last, loses one in 257 of them.
/// Those whose requests differ lose none. Of a service whose answers are not its requests only those loops are seen in which
/// a request is the answer before it.
///
/// ```
/// # use std::sync::Arc;
/// # use linerate_engine::{Echo, LoopBreaker, Server};
/// let broken = Arc::default();
/// let count = Arc::clone(&broken);
/// let running = Server::builder()
///     .bind("127.0.0.1:0".parse()?)
///     .workers(1)
///     .start(move |_| LoopBreaker::new(Echo, Arc::clone(&count)))?;
/// # running.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LoopBreaker<S> {
    inner: S,
    places: Box<[Place]>,
    /// Not known to who sends requests, who could else have others forgotten. Odd.
    seed: u64,
    broken: Arc<AtomicU64>,
}

/// What was last sent to a source, and how often it came back.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// Of the source and of what it was sent.
    sent: u64,
    turns: u16,
    allowed: u16,
    /// When one was not answered.
    broken: Option<Instant>,
}

impl Place {
    /// Whether a request is to be answered that is what was sent before.
    fn again(&mut self) -> bool {
        if self.turns == 0
            && let Some(broken) = self.broken.take()
        {
            let goes_on = broken.elapsed() < QUIET;
            self.allowed = if goes_on { (self.allowed / 2).max(FEWEST_TURNS) } else { TURNS };
        }
        if self.turns < self.allowed {
            self.turns += 1;
            return true;
        }
        self.turns = 0;
        self.broken = Some(Instant::now());
        false
    }
}

impl<S> LoopBreaker<S> {
    /// `inner`, kept from loops. Requests that got no answer for that are counted in `broken`, by all that share it; for the
    /// server they are dropped ones.
    pub fn new(inner: S, broken: Arc<AtomicU64>) -> Self {
        let places = vec![Place::default(); PLACES].into_boxed_slice();
        Self { inner, places, seed: RandomState::new().hash_one(0) | 1, broken }
    }

    fn mix(&self, hash: u64, word: u64) -> u64 {
        let product = u128::from(hash ^ word) * u128::from(self.seed);
        (product as u64 ^ (product >> 64) as u64).wrapping_add(self.seed)
    }

    fn source(&self, source: SocketAddr) -> u64 {
        let (high, low) = match source.ip() {
            IpAddr::V4(v4) => (0, u64::from(v4.to_bits())),
            IpAddr::V6(v6) => ((v6.to_bits() >> 64) as u64, v6.to_bits() as u64),
        };
        self.mix(self.mix(self.mix(0, high), low), source.port().into())
    }

    /// A number for what is exchanged with a source.
    fn of(&self, source: u64, payload: &[u8]) -> u64 {
        let (words, rest) = payload.as_chunks();
        let hash = words.iter().fold(self.mix(source, payload.len() as u64), |hash, word| {
            self.mix(hash, u64::from_ne_bytes(*word))
        });
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.mix(hash, u64::from_ne_bytes(last))
    }
}

impl<S: Service> Service for LoopBreaker<S> {
    #[inline]
    fn answer(&mut self, request: &Request<'_>, reply: &mut [u8]) -> Action {
        let source = self.source(request.source());
        let asked = self.of(source, request.payload());
        let at = (source >> 32) as usize % PLACES;
        if self.places[at].sent != asked {
            self.places[at] = Place { sent: 0, turns: 0, allowed: TURNS, broken: None };
        } else if !self.places[at].again() {
            self.broken.fetch_add(1, Relaxed);
            return Action::Drop;
        }
        let action = self.inner.answer(request, reply);
        self.places[at].sent = match action {
            Action::Echo => asked,
            Action::Reply(length) => self.of(source, reply.get(..length).unwrap_or_default()),
            Action::ReplyTo { .. } | Action::Drop => 0,
        };
        action
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::echo::Echo;
    use crate::sys::name::{Family, Name};

    /// Which of so many like requests are answered.
    fn answered(
        breaker: &mut LoopBreaker<Echo>,
        from: &str,
        times: usize,
        payload: impl Fn(usize) -> Vec<u8>,
    ) -> Vec<bool> {
        let source = from.parse().expect("an address");
        let name = Name::encode(source, Family::V6).expect("a name");
        (0..times)
            .map(|turn| {
                let payload = payload(turn);
                breaker.answer(&Request::new(&payload, &name, None, false), &mut []) == Action::Echo
            })
            .collect()
    }

    fn refused(answered: &[bool]) -> Vec<usize> {
        answered.iter().enumerate().filter(|(_, answered)| !**answered).map(|(turn, _)| turn).collect()
    }

    #[test]
    fn what_comes_back_again_and_again_is_not_answered_in_the_end() {
        let broken = Arc::default();
        let mut breaker = LoopBreaker::new(Echo, Arc::clone(&broken));
        let again = |_| b"hello".to_vec();
        let turns = answered(&mut breaker, "192.0.2.1:7007", 600, again);
        let refused = refused(&turns);
        assert_eq!(refused[..4], [257, 257 + 129, 257 + 129 + 65, 257 + 129 + 65 + 33]);
        let last = refused.len() - 1;
        assert_eq!(refused[last] - refused[last - 1], usize::from(FEWEST_TURNS) + 1);
        assert_eq!(broken.load(Relaxed), refused.len() as u64);
        // Another source is another matter, and so is another port.
        for other in ["192.0.2.2:7007", "192.0.2.1:7008", "[2001:db8::1]:7007"] {
            assert!(answered(&mut breaker, other, 250, again).iter().all(|answered| *answered), "{other}");
        }
    }

    #[test]
    fn requests_that_differ_are_all_answered() {
        let mut breaker = LoopBreaker::new(Echo, Arc::default());
        for length in [1, 7, 8, 9, 100] {
            let differing = |turn: usize| {
                let mut payload = vec![0; length];
                payload[length - 1] = (turn % 2) as u8;
                payload
            };
            let turns = answered(&mut breaker, "192.0.2.1:7007", 2000, differing);
            assert!(refused(&turns).is_empty(), "{length}");
        }
        let longer = |turn: usize| vec![0; turn % 3];
        assert!(refused(&answered(&mut breaker, "192.0.2.1:7007", 2000, longer)).is_empty());
    }

    #[test]
    fn something_else_in_between_and_all_is_as_at_first() {
        let mut breaker = LoopBreaker::new(Echo, Arc::default());
        answered(&mut breaker, "192.0.2.1:7007", 600, |_| b"hello".to_vec());
        answered(&mut breaker, "192.0.2.1:7007", 1, |_| b"else".to_vec());
        let turns = answered(&mut breaker, "192.0.2.1:7007", 258, |_| b"hello".to_vec());
        assert_eq!(refused(&turns), [257]);
    }
}
