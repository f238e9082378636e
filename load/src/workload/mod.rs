//! Requests, and the recognition of replies.
//!
//! [`LoadWorkload::Echo`] is our own layout. Every other workload is a [`PreparedExchange`]:
//! requests made beforehand, and a description of replies that both sockets and a BPF program can
//! follow. The modules make exchanges; they are pure, and their errors name file, line and item
//! ([`SourceError`]).
//!
//! | module | it makes |
//! |---|---|
//! | [`dns`] | queries from a file as dnsperf reads it |
//! | [`ntp`] | client requests, matched by their transmit timestamp |
//! | [`radius`] | Access-Requests, whose replies are authenticated |
//! | [`raw`] | payloads from hexadecimal digits or a capture |

pub mod dns;
mod error;
pub mod ntp;
pub mod radius;
pub mod raw;
mod source;
mod tag;

use std::fmt;
use std::sync::Arc;

use crate::error::GeneratorError;
use crate::header::{HEADER_BYTES, MAX_PAYLOAD_BYTES, fill_byte, payload_too_large};
use crate::outcome::CodeCount;

pub use error::SourceError;
pub use source::{WorkloadContents, WorkloadOptions, WorkloadSource};
pub use tag::TagError;

#[derive(Debug, Clone)]
pub enum LoadWorkload {
    /// Requests with our own [header](crate::header), which an echo service returns: replies are
    /// fully matched and checked. For a payload too short for the header, use
    /// [`LoadWorkload::echo`].
    Echo {
        /// Bytes of UDP payload, header included.
        payload_bytes: usize,
    },
    /// Requests of some protocol, whose replies carry a tag of their request.
    Exchange(Arc<PreparedExchange>),
}

/// Prepared requests of a protocol, and a description of its replies that a BPF program can follow,
/// too. Offsets are into the UDP payload.
#[derive(Debug)]
pub struct PreparedExchange {
    /// The protocol: `dns`, `ntp`, `radius`, `raw`.
    pub protocol: &'static str,
    /// Payloads; at least one.
    pub requests: Vec<Vec<u8>>,
    /// The order in which requests are sent.
    pub order: RequestOrder,
    /// The tag that distinguishes replies. Without a tag, a reply counts as the answer to the
    /// oldest outstanding request of its flow: sent in this slot, unanswered, and in window mode
    /// not given up. Then a lost reply makes the next replies look later than they are, and neither
    /// reordering nor duplicates can be detected: a surplus reply counts as a duplicate once no
    /// request is outstanding. XDP requires a tag.
    pub tag: Option<EchoedTag>,
    /// Further marks of a reply; a reply without them is corrupt.
    pub marks: Vec<ReplyMark>,
    /// The fewest bytes of a reply; a shorter reply is corrupt. Tag, marks and code lie within.
    pub shortest_reply_bytes: usize,
    /// The part of a reply that is counted by value.
    pub code: Option<ReplyCode>,
    /// Checks whole replies, in user space. Requires [`RequestOrder::ByTag`], which names the
    /// request. A reply that is valid only for an earlier request with the same tag is late.
    pub verify: Option<Arc<dyn ReplyVerifier>>,
    /// Notes for the user about the source, one line each: parts of a file that were left out, and
    /// why.
    pub notes: Vec<String>,
}

/// The order in which the prepared requests are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOrder {
    /// In turn over all flows; the generator writes the tag into each request.
    InTurn,
    /// The tag is in the request already and must not be changed: request number `n` has the tag `n` modulo the tag's
    /// range. The number of requests is a power of two and a multiple of the tag's range. The request with sequence `s` of
    /// flow `f` is number `s + f * range`, modulo the number of requests.
    ByTag,
}

/// A field that the generator sets in a request and the service returns in its reply, big endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EchoedTag {
    /// Bytes of the field: 1, 2, 4 or 8.
    pub bytes: usize,
    /// Where it is in a request.
    pub request_offset: usize,
    /// Where it is in a reply.
    pub reply_offset: usize,
}

/// A byte of a reply with a known value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyMark {
    pub offset: usize,
    /// The bits that matter.
    pub mask: u8,
    pub value: u8,
}

/// A byte of a reply whose values are counted.
#[derive(Debug, Clone, Copy)]
pub struct ReplyCode {
    pub offset: usize,
    /// The bits that are counted, from the lowest up.
    pub mask: u8,
    /// The bits of another byte that mark a truncated reply (TC of DNS); for masks below 0x80.
    pub truncated: Option<ReplyMark>,
    /// The protocol's name of a value.
    pub name: fn(u8) -> Option<&'static str>,
}

// The number of earlier requests with the same tag against which a reply is verified.
const ROUNDS: u64 = 4;

// Flag of a counted value: the reply was truncated.
pub(crate) const TRUNCATED: u8 = 0x80;

impl ReplyMark {
    #[inline]
    fn is_in(&self, reply: &[u8]) -> bool {
        reply.get(self.offset).is_some_and(|byte| byte & self.mask == self.value)
    }
}

impl ReplyCode {
    /// Replies by code; `count_of` returns the count of a value.
    pub(crate) fn counts(&self, count_of: impl Fn(u8) -> u64) -> Vec<CodeCount> {
        let code_counts = (0..=self.mask).map(|code| {
            let truncated = if self.truncated.is_some() { count_of(code | TRUNCATED) } else { 0 };
            let name = (self.name)(code).map(str::to_owned);
            CodeCount { code, name, count: count_of(code) + truncated, truncated }
        });
        code_counts.filter(|code_count| code_count.count > 0).collect()
    }
}

/// Judges a reply that matches a request.
pub trait ReplyVerifier: fmt::Debug + Send + Sync {
    /// Whether `reply` is valid for `request`; if not, it is corrupt.
    fn verify(&self, request: &[u8], reply: &[u8]) -> bool;
}

impl PreparedExchange {
    /// Whether a reply has the required length and marks.
    #[inline]
    pub(crate) fn is_well_formed(&self, reply: &[u8]) -> bool {
        reply.len() >= self.shortest_reply_bytes && self.marks.iter().all(|mark| mark.is_in(reply))
    }

    /// [`RequestOrder::ByTag`]: the index of a flow's request.
    pub(crate) fn request_index(&self, flow: u32, sequence: u64) -> usize {
        let number = sequence.wrapping_add(self.tag_range().wrapping_mul(u64::from(flow)));
        (number % self.requests.len() as u64) as usize
    }

    // How often the tag was used again after the request that the reply answers: 0 for this request, more
    // for an earlier one with the same tag. `None` if the reply answers none of them.
    pub(crate) fn find_answered(
        &self,
        verify: &dyn ReplyVerifier,
        (flow, sequence): (u32, u64),
        reply: &[u8],
    ) -> Option<u64> {
        let tag_range = self.tag_range();
        let earlier_rounds = sequence.checked_div(tag_range).unwrap_or(0).min(ROUNDS);
        (0..=earlier_rounds).find(|rounds| {
            let index = self.request_index(flow, sequence.wrapping_sub(rounds * tag_range));
            verify.verify(&self.requests[index], reply)
        })
    }

    /// Number of distinct tags; 0 for 2^64.
    fn tag_range(&self) -> u64 {
        self.tag.map_or(1, |tag| tag.mask().wrapping_add(1))
    }

    #[inline]
    pub(crate) fn code_of(&self, reply: &[u8]) -> Option<u8> {
        let code = self.code?;
        let truncated = if code.truncated.is_some_and(|mark| mark.is_in(reply)) { TRUNCATED } else { 0 };
        Some(reply.get(code.offset)? & code.mask | truncated)
    }
}

impl LoadWorkload {
    /// An echo of any size: with our header if it fits, otherwise a tag and a fill that replies
    /// repeat.
    pub fn echo(payload_bytes: usize) -> Self {
        if payload_bytes >= HEADER_BYTES {
            return LoadWorkload::Echo { payload_bytes };
        }
        LoadWorkload::Exchange(Arc::new(short_echo(payload_bytes)))
    }

    /// `echo`, `dns`, `ntp`, `radius` or `raw`.
    pub fn name(&self) -> &'static str {
        match self {
            LoadWorkload::Echo { .. } => "echo",
            LoadWorkload::Exchange(exchange) => exchange.protocol,
        }
    }

    /// The part of a reply that is counted by value.
    pub(crate) fn code(&self) -> Option<ReplyCode> {
        match self {
            LoadWorkload::Echo { .. } => None,
            LoadWorkload::Exchange(exchange) => exchange.code,
        }
    }

    /// Number of prepared requests; an echo has one.
    pub(crate) fn request_count(&self) -> usize {
        match self {
            LoadWorkload::Echo { .. } => 1,
            LoadWorkload::Exchange(exchange) => exchange.requests.len(),
        }
    }

    /// Bytes of the longest request.
    pub fn longest_bytes(&self) -> usize {
        match self {
            LoadWorkload::Echo { payload_bytes } => *payload_bytes,
            LoadWorkload::Exchange(exchange) => exchange.requests.iter().map(Vec::len).max().unwrap_or(0),
        }
    }

    // Distinct tags of all flows together, if tags have one or two bytes and so repeat soon.
    pub(crate) fn narrow_tags(&self, flows: usize) -> Option<u64> {
        let LoadWorkload::Exchange(exchange) = self else { return None };
        exchange.tag.filter(|tag| tag.bytes <= 2).map(|tag| (tag.mask() + 1).saturating_mul(flows as u64))
    }

    /// Mean bytes of a request, rounded down.
    pub fn mean_bytes(&self) -> u32 {
        let mean = match self {
            LoadWorkload::Echo { payload_bytes } => *payload_bytes,
            LoadWorkload::Exchange(exchange) => {
                exchange.requests.iter().map(Vec::len).sum::<usize>() / exchange.requests.len().max(1)
            }
        };
        u32::try_from(mean).unwrap_or(u32::MAX)
    }

    pub(crate) fn check(&self) -> Result<(), GeneratorError> {
        if self.longest_bytes() > MAX_PAYLOAD_BYTES {
            return Err(payload_too_large(self.longest_bytes()));
        }
        Ok(())
    }
}

// An echo too short for our header. An echo of 18 bytes makes the shortest frame of Ethernet, 64
// bytes.
fn short_echo(payload_bytes: usize) -> PreparedExchange {
    let tag_bytes = [8, 4, 2, 1].into_iter().find(|bytes| *bytes <= payload_bytes);
    let request: Vec<u8> = (0..payload_bytes).map(fill_byte).collect();
    let marks = (0..).zip(&request).skip(tag_bytes.unwrap_or(0));
    let order_note = "requests without a byte: replies are taken in the order of the requests, by sockets";
    PreparedExchange {
        protocol: "echo",
        marks: marks.map(|(offset, value)| ReplyMark { offset, mask: 0xff, value: *value }).collect(),
        requests: vec![request],
        order: RequestOrder::InTurn,
        tag: tag_bytes.map(|bytes| EchoedTag { bytes, request_offset: 0, reply_offset: 0 }),
        shortest_reply_bytes: payload_bytes,
        code: None,
        verify: None,
        notes: if tag_bytes.is_none() { vec![order_note.to_owned()] } else { Vec::new() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_codes_have_the_names_of_their_protocol() {
        let dns = dns::from_text(". NS", "q", &dns::DnsQueryOptions::default()).unwrap();
        let radius = radius::access_requests(b"s", "bob", b"", radius::PasswordMethod::Pap).unwrap();
        for (exchange, code, name) in [
            (&dns, 0, Some("NOERROR")),
            (&dns, 3, Some("NXDOMAIN")),
            (&dns, 5, Some("REFUSED")),
            (&dns, 11, Some("DSOTYPENI")),
            (&dns, 12, None),
            (&ntp::client(), 1, Some("primary")),
            (&ntp::client(), 15, Some("secondary")),
            (&ntp::client(), 16, Some("unsynchronized")),
            (&radius, 2, Some("Access-Accept")),
            (&radius, 3, Some("Access-Reject")),
            (&radius, 11, Some("Access-Challenge")),
        ] {
            assert_eq!((exchange.code.unwrap().name)(code), name);
        }
    }
}
