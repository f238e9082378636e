//! Authoritative DNS from zone files (RFC 1034, 1035, 2181, 2308, 4592, 6891, 8482).
//!
//! Replies have the same meaning as those of NLnet Labs' NSD and of Knot DNS; `tests/dns_nsd` compares them, and names the RFC
//! behind each difference.
//!
//! ```
//! use std::sync::Arc;
//!
//! use linerate_engine::Server;
//! use linerate_services::dns::{DnsRateLimit, DnsService, ServedZones, Zones};
//!
//! let zone = "@ 60 IN SOA ns hostmaster 1 7200 600 864000 60\nwww 60 IN A 192.0.2.1\n";
//! let served = ServedZones::new(Zones::parse("example.test", zone)?);
//! let zones = Arc::clone(&served);
//! let running = Server::builder()
//!     .bind("127.0.0.1:0".parse()?)
//!     .workers(1)
//!     .start(move |_worker| {
//!         DnsService::new(Arc::clone(&zones)).rate_limit(Some(DnsRateLimit::default()))
//!     })?;
//!
//! let client = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! client.send_to(b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x03www\x07example\x04test\0\0\x01\0\x01", running.local_addr())?;
//! let mut answer = [0; 512];
//! let (length, _) = client.recv_from(&mut answer)?;
//! assert!(answer[..length].ends_with(&[192, 0, 2, 1]));
//! // Other zones are served from now on, by all workers.
//! served.exchange(Zones::parse("example.test", zone)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod encode;
mod limit;
mod query;
mod resolve;
mod respond;
mod rtype;
mod store;
mod tcp;
mod zonefile;

use std::mem;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use linerate_engine::{Action, Request, Service};

use crate::refusals::{RefusalCounters, RefusalReason};

use limit::DnsLimiter;
pub use limit::DnsRateLimit;
use respond::DnsResponder;
pub use respond::QueryTransport;
pub use store::Zones;
pub use tcp::{ConnectionFilter, TcpCounts, TcpError, TcpServer, TcpSettings};
pub use zonefile::ZoneError;
use zonefile::ZoneText;

/// Longest reply over UDP, in bytes, that passes nearly all networks without fragments (DNS flag day 2020).
pub const UDP_SIZE: u16 = 1232;

impl Zones {
    /// Reads zones from pairs of a name and a file.
    ///
    /// # Errors
    /// The first error, with file, line and item.
    pub fn load<N: AsRef<str>, F: AsRef<Path>>(zones: &[(N, F)]) -> Result<Self, ZoneError> {
        let zones: Vec<(&str, ZoneText<'_>)> =
            zones.iter().map(|(name, file)| (name.as_ref(), ZoneText::File(file.as_ref()))).collect();
        Self::read(&zones)
    }

    /// Makes a zone from the content of a file.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(name: &str, text: &str) -> Result<Self, ZoneError> {
        Self::read(&[(name, ZoneText::Here(text))])
    }
}

/// The zones of running servers, which can be exchanged.
#[derive(Debug)]
pub struct ServedZones {
    zones: Mutex<Arc<Zones>>,
    // One reference per answerer, so that an exchange frees the old zones even if an answerer is idle, and answerers share
    // no lock.
    references: Mutex<Vec<Weak<ZonesReference>>>,
}

type ZonesReference = Mutex<Arc<Zones>>;

fn lock_unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ServedZones {
    #[must_use]
    pub fn new(zones: Zones) -> Arc<Self> {
        Arc::new(Self { zones: Mutex::new(Arc::new(zones)), references: Mutex::default() })
    }

    /// Serves `zones` from now on. Each reply comes from either the old or the new zones.
    pub fn exchange(&self, zones: Zones) {
        let zones = Arc::new(zones);
        let mut current = lock_unpoisoned(&self.zones);
        // Dropped last: freeing many records takes milliseconds, and no answerer should wait for that.
        let _old_zones = mem::replace(&mut *current, Arc::clone(&zones));
        lock_unpoisoned(&self.references).retain(|reference| {
            let reference = reference.upgrade();
            reference.inspect(|reference| *lock_unpoisoned(reference) = Arc::clone(&zones)).is_some()
        });
        drop(current);
    }

    fn reference(&self) -> Arc<ZonesReference> {
        let current = lock_unpoisoned(&self.zones);
        let reference = Arc::new(Mutex::new(Arc::clone(&current)));
        lock_unpoisoned(&self.references).push(Arc::downgrade(&reference));
        reference
    }
}

/// Answers queries, for one worker.
#[derive(Debug)]
pub struct DnsAnswerer {
    zones: Arc<ZonesReference>,
    responder: DnsResponder,
}

impl DnsAnswerer {
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "part of the public interface since 0.1")]
    pub fn new(served_zones: Arc<ServedZones>) -> Self {
        Self { zones: served_zones.reference(), responder: DnsResponder::new() }
    }

    /// Writes the reply to the message `query` to `reply` and returns its length; `None` for no reply. `reply` should have
    /// room for the longest message of the transport.
    pub fn answer(&mut self, query: &[u8], reply: &mut [u8], transport: QueryTransport) -> Option<usize> {
        self.write_answer(query, reply, transport).map(|written_answer| written_answer.length)
    }

    fn write_answer(
        &mut self,
        query: &[u8],
        reply: &mut [u8],
        transport: QueryTransport,
    ) -> Option<respond::WrittenAnswer> {
        self.responder.respond(&lock_unpoisoned(&self.zones), query, reply, transport)
    }
}

/// DNS over UDP, as a service of the engine.
#[derive(Debug)]
pub struct DnsService {
    answerer: DnsAnswerer,
    udp_size: u16,
    limiter: Option<DnsLimiter>,
    refusals: Arc<RefusalCounters>,
}

impl DnsService {
    /// Answers from `served_zones`, with at most [`UDP_SIZE`] bytes.
    #[must_use]
    pub fn new(served_zones: Arc<ServedZones>) -> Self {
        Self {
            answerer: DnsAnswerer::new(served_zones),
            udp_size: UDP_SIZE,
            limiter: None,
            refusals: Arc::default(),
        }
    }

    /// Limits replies to `bytes`, even if a client accepts more; at least 512.
    #[must_use]
    pub fn udp_size(mut self, bytes: u16) -> Self {
        self.udp_size = bytes.max(512);
        self
    }

    /// Limits the replies to a network. Default: no limit. Set one ([`DnsRateLimit::default`]) on a
    /// server that untrusted networks can reach, because a forged address directs replies at
    /// another host.
    #[must_use]
    pub fn rate_limit(mut self, limit: Option<DnsRateLimit>) -> Self {
        self.limiter = limit.map(DnsLimiter::new);
        self
    }

    /// Counts limited and truncated replies in `refusals`.
    #[must_use]
    pub fn refusals(mut self, refusals: Arc<RefusalCounters>) -> Self {
        self.refusals = refusals;
        self
    }
}

impl DnsService {
    /// Writes the reply to the datagram `query` from `source` to the start of `reply` and returns its length; `None` for no
    /// reply, or if the rate limit drops it.
    pub fn answer_at(&mut self, query: &[u8], source: IpAddr, reply: &mut [u8]) -> Option<usize> {
        let transport = QueryTransport::Udp { most: self.udp_size };
        let written_answer = self.answerer.write_answer(query, reply, transport)?;
        let limiter = self.limiter.as_mut();
        let limited = limiter.and_then(|limiter| limiter.refusal(source, query.len(), &written_answer));
        let refusal = limited.or(written_answer.truncated.then_some(RefusalReason::SizeTruncated));
        if let Some(refusal) = refusal {
            self.refusals.add(refusal);
        }
        match limited {
            None => Some(written_answer.length),
            Some(RefusalReason::RateLimited) => None,
            Some(_) => Some(respond::truncate_reply(reply, &written_answer)),
        }
    }
}

impl Service for DnsService {
    fn answer(&mut self, request: &Request<'_>, reply: &mut [u8]) -> Action {
        match self.answer_at(request.payload(), request.source().ip(), reply) {
            Some(length) => Action::Reply(length),
            None => Action::Drop,
        }
    }
}
