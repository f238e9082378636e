//! What requests are made of, and how replies are known.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::header::{HEADER_BYTES, MAX_PAYLOAD_BYTES};

/// What is exchanged with the service.
#[derive(Debug, Clone)]
pub enum Workload {
    /// Requests with our own [header](crate::header), which an echo service returns: replies are fully matched and
    /// checked.
    Echo {
        /// Bytes of UDP payload, header included.
        payload_bytes: usize,
    },
    /// Requests of some protocol, whose replies carry a tag of their request.
    Exchange(Arc<Exchange>),
}

/// Prepared requests of a protocol, and how a reply is known, in terms that a BPF program can follow, too. Offsets are
/// into the UDP payload.
#[derive(Debug)]
pub struct Exchange {
    /// The protocol: `dns`, `ntp`, `radius`, `raw`.
    pub protocol: &'static str,
    /// Payloads; at least one.
    pub requests: Vec<Vec<u8>>,
    /// Which request goes next.
    pub order: Order,
    /// Where the tag is that tells replies apart.
    pub tag: Tag,
    /// What a reply has besides; one without is corrupt.
    pub marks: Vec<Mark>,
    /// The fewest bytes of a reply; a shorter one is corrupt.
    pub shortest_reply_bytes: usize,
    /// The part of a reply that is counted by value.
    pub code: Option<Code>,
    /// What takes the whole reply to judge; it runs in user space.
    pub verify: Option<Arc<dyn Verify>>,
}

/// Which of the prepared requests goes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// One after the other over all flows; the generator writes the tag into each.
    InTurn,
    /// The tag is in the request already and must not be changed: request number `n` has the tag `n` modulo the tag's
    /// range. The number of requests is a power of two and a multiple of the tag's range. The request with sequence `s` of
    /// flow `f` is number `s + f * range`, modulo the number of requests.
    ByTag,
}

/// A field that the generator sets in a request and the service returns in its reply, big endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// Bytes of the field: 1, 2, 4 or 8.
    pub bytes: usize,
    /// Where it is in a request.
    pub request_offset: usize,
    /// Where it is in a reply.
    pub reply_offset: usize,
}

/// A byte of a reply that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Where it is.
    pub offset: usize,
    /// The bits that matter.
    pub mask: u8,
    /// What they are.
    pub value: u8,
}

/// A byte of a reply whose values are counted.
#[derive(Debug, Clone, Copy)]
pub struct Code {
    /// Where it is.
    pub offset: usize,
    /// The bits that are counted, from the lowest up.
    pub mask: u8,
    /// The protocol's name of a value.
    pub name: fn(u8) -> Option<&'static str>,
}

/// Judges a reply that matches a request.
pub trait Verify: fmt::Debug + Send + Sync {
    /// Whether `reply` is what `request` asked for; a reply that is not is corrupt.
    fn verify(&self, request: &[u8], reply: &[u8]) -> bool;
}

impl Workload {
    /// `echo`, `dns`, `ntp`, `radius` or `raw`.
    pub fn name(&self) -> &'static str {
        match self {
            Workload::Echo { .. } => "echo",
            Workload::Exchange(exchange) => exchange.protocol,
        }
    }

    /// Bytes of the longest request.
    pub fn longest_bytes(&self) -> usize {
        match self {
            Workload::Echo { payload_bytes } => *payload_bytes,
            Workload::Exchange(exchange) => exchange.requests.iter().map(Vec::len).max().unwrap_or(0),
        }
    }

    /// Whether it can be carried at all.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self {
            Workload::Echo { payload_bytes } if *payload_bytes < HEADER_BYTES => {
                Err(Error::PayloadTooSmall(*payload_bytes))
            }
            _ if self.longest_bytes() > MAX_PAYLOAD_BYTES => {
                Err(Error::PayloadTooLarge(self.longest_bytes()))
            }
            _ => Ok(()),
        }
    }
}
