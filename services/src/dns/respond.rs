//! From the bytes of a query to those of its answer.

use super::encode::{Encoder, Places};
use super::query::{self, Edns, HEADER, Query, Question, flag, rcode};
use super::resolve::{Answer, Resolver, Room, Section, extended};
use super::rtype;
use super::store::{Name, Zones};

/// The longest answer over UDP where the query has no EDNS (RFC 1035, section 4.2.1).
const PLAIN_UDP: usize = 512;
/// An OPT record without options.
const OPT_LENGTH: usize = 11;

/// How the query came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// In a datagram; the server sends at most so many bytes, whatever the client offers.
    Udp {
        /// Bytes of a message.
        most: u16,
    },
    /// In a stream, whose messages may have 65,535 bytes.
    Tcp,
}

/// What kind of answer was given, for limits by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Records that were asked for.
    Positive,
    /// There are none of the type.
    NoData,
    /// There is no such name.
    NoName,
    Referral,
    /// From a wildcard.
    Wildcard,
    Any,
    /// Refused, malformed and the like.
    Error,
}

/// An answer that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) length: usize,
    pub(crate) kind: Kind,
    /// What the answer is about: the same for all names that get the same answer.
    pub(crate) subject: u32,
    /// Whether something was left out for want of room (TC).
    pub(crate) truncated: bool,
}

impl Written {
    fn error(length: usize) -> Self {
        Self { length, kind: Kind::Error, subject: 0, truncated: false }
    }
}

/// Answers queries from zones. Holds what it needs for one answer, and uses it again: no answer allocates.
#[derive(Debug)]
pub(crate) struct Responder {
    places: Places,
    answer: Answer,
    /// The name that was asked for.
    name: Name,
    alias: Room,
    host: Room,
}

impl Responder {
    pub(crate) fn new() -> Self {
        Self {
            places: Places::new(),
            answer: Answer { parts: Vec::with_capacity(64), ..Answer::default() },
            name: Name::default(),
            alias: Some(Box::default()),
            host: Some(Box::default()),
        }
    }

    /// Writes the answer to `query` into `reply`; none if there is to be silence.
    pub(crate) fn respond(
        &mut self,
        zones: &Zones,
        query: &[u8],
        reply: &mut [u8],
        transport: Transport,
    ) -> Option<Written> {
        let header = |flags, edns: Option<Edns>, reply: &mut [u8]| {
            let length = HEADER + options_length(edns, None);
            let to = reply.get_mut(..length)?;
            to[..HEADER].fill(0);
            to[..2].copy_from_slice(&query[..2]);
            put(to, 2, flags);
            put(to, 10, u16::from(edns.is_some()));
            put_options(to, HEADER, transport, edns, None, None);
            Some(Written::error(length))
        };
        match query::parse(query) {
            Query::Silence => None,
            Query::Header(flags) => header(flags, None, reply),
            Query::Bare(flags, edns) => header(flags, Some(edns), reply),
            Query::Notify(name_length) => {
                self.name.set(&query[HEADER..HEADER + name_length]);
                let code = if zones.is_apex(&self.name) { rcode::REFUSED } else { rcode::NXDOMAIN };
                header(with_code(word(query, 2), code), None, reply)
            }
            Query::BadVersion(name_length) => {
                let end = HEADER + name_length + 4;
                let to = reply.get_mut(..end + OPT_LENGTH)?;
                to[..end].copy_from_slice(&query[..end]);
                put(to, 2, with_code(word(query, 2), 0));
                [1, 0, 0, 1].into_iter().zip([4, 6, 8, 10]).for_each(|(count, at)| put(to, at, count));
                put_options(to, end, transport, Some(Edns::default()), Some(1), None);
                Some(Written::error(end + OPT_LENGTH))
            }
            Query::Ask(question) => self.ask(zones, query, &question, reply, transport),
        }
    }

    fn ask(
        &mut self,
        zones: &Zones,
        query: &[u8],
        question: &Question,
        reply: &mut [u8],
        transport: Transport,
    ) -> Option<Written> {
        let rd = word(query, 2) & flag::RD | flag::QR;
        let mut refuse = |code, why: Option<u16>, keep_question| {
            let end = if keep_question { HEADER + question.name_length + 4 } else { HEADER };
            let length = end + options_length(question.edns, why);
            let to = reply.get_mut(..length)?;
            to[..end].copy_from_slice(&query[..end]);
            put(to, 2, rd | code);
            let counts = [u16::from(keep_question), 0, 0, u16::from(question.edns.is_some())];
            counts.into_iter().zip([4, 6, 8, 10]).for_each(|(count, at)| put(to, at, count));
            put_options(to, end, transport, question.edns, None, why);
            Some(Written::error(length))
        };
        self.name.set(&query[HEADER..HEADER + question.name_length]);
        match question.qclass {
            query::CLASS_IN | query::CLASS_ANY => {}
            // Who and what answers is nobody's business.
            query::CLASS_CH => {
                let name = self.name.end(self.name.labels);
                let identity = matches!(question.qtype, rtype::TXT | rtype::ANY)
                    && IDENTITY_NAMES.iter().any(|identity| **identity == *name);
                let why = if identity { extended::PROHIBITED } else { extended::NOT_SUPPORTED };
                return refuse(rcode::REFUSED, Some(why), true);
            }
            _ => return refuse(rcode::REFUSED, Some(extended::NOT_SUPPORTED), false),
        }
        let transfer = matches!(question.qtype, rtype::AXFR | rtype::IXFR);
        if question.qtype == rtype::AXFR && transport != Transport::Tcp {
            return refuse(rcode::NOTIMP, None, true);
        }
        if transfer {
            let (code, why) = if zones.is_apex(&self.name) {
                (rcode::REFUSED, Some(extended::PROHIBITED))
            } else {
                (rcode::NOTAUTH, None)
            };
            return refuse(code, why, true);
        }
        let mut resolver = Resolver {
            zones,
            answer: &mut self.answer,
            qtype: question.qtype,
            qclass: question.qclass,
            question: &self.name,
            alias: &mut self.alias,
            host: &mut self.host,
        };
        resolver.resolve();
        self.write(zones, query, question, reply, transport)
    }

    /// Writes the answer that was found.
    fn write(
        &mut self,
        zones: &Zones,
        query: &[u8],
        question: &Question,
        reply: &mut [u8],
        transport: Transport,
    ) -> Option<Written> {
        let end = HEADER + question.name_length + 4;
        let tail = options_length(question.edns, self.answer.extended);
        let most = most(transport, question.edns).min(reply.len());
        reply.get_mut(..end + tail)?;
        let rcode = self.answer.rcode;
        let mut flags = word(query, 2) & flag::RD | flag::QR | rcode;
        if self.answer.authoritative {
            flags |= flag::AA;
        }
        reply[..end].copy_from_slice(&query[..end]);
        let limit = most.saturating_sub(tail);
        let mut encoder = Encoder::new(zones, &mut self.places, reply, end, limit, &self.name);
        let (counts, truncated) = sections(&mut encoder, &self.answer, transport);
        if truncated {
            flags |= flag::TC;
        }
        let end = encoder.position();
        put(reply, 2, flags);
        let counts = [1, counts[0], counts[1], counts[2] + u16::from(question.edns.is_some())];
        counts.into_iter().zip([4, 6, 8, 10]).for_each(|(count, at)| put(reply, at, count));
        put_options(reply, end, transport, question.edns, None, self.answer.extended);
        let (kind, subject) = (self.kind(question), self.answer.subject);
        Some(Written { length: end + tail, kind, subject, truncated })
    }

    fn kind(&self, question: &Question) -> Kind {
        match self.answer.parts.first() {
            _ if self.answer.rcode == rcode::NXDOMAIN => Kind::NoName,
            _ if self.answer.rcode != 0 => Kind::Error,
            _ if self.answer.referral => Kind::Referral,
            _ if question.qtype == rtype::ANY => Kind::Any,
            Some(part) if part.section == Section::Answer && self.answer.wildcard => Kind::Wildcard,
            Some(part) if part.section == Section::Answer => Kind::Positive,
            _ => Kind::NoData,
        }
    }
}

/// Makes of an answer one that only says to come again over TCP: its header and question. Returns its length.
pub(crate) fn cut(reply: &mut [u8], length: usize) -> usize {
    put(reply, 2, word(reply, 2) | flag::TC);
    [6, 8, 10].into_iter().for_each(|at| put(reply, at, 0));
    if word(reply, 4) == 0 {
        return HEADER;
    }
    let mut at = HEADER;
    while at < length && reply[at] != 0 {
        at += usize::from(reply[at]) + 1;
    }
    length.min(at + 5)
}

/// Names of class CH under which servers tell who they are.
const IDENTITY_NAMES: [&[u8]; 4] =
    [b"\x02id\x06server\0", b"\x08hostname\x04bind\0", b"\x07version\x06server\0", b"\x07version\x04bind\0"];

/// Writes all sections; returns how many records those of the header have, and whether the answer is truncated.
fn sections(encoder: &mut Encoder<'_>, answer: &Answer, transport: Transport) -> ([u16; 3], bool) {
    let mut counts = [0; 3];
    for section in Section::ALL {
        let mut left_out = false;
        for part in answer.parts.iter().filter(|part| part.section == section) {
            let mark = encoder.position();
            let (added, all) = encoder.set(part.owner, part.set, part.ttl);
            if all {
                counts[section.count()] += added;
                continue;
            }
            // A set goes as a whole. Where it was asked for, the client is to come again by TCP.
            if section.is_required() {
                encoder.cut(mark);
                return (counts, true);
            }
            if transport == Transport::Tcp {
                counts[section.count()] += added;
            } else {
                encoder.cut(mark);
            }
            left_out = true;
        }
        if left_out {
            break;
        }
    }
    (counts, false)
}

/// Bytes of the longest answer that may be sent.
fn most(transport: Transport, edns: Option<Edns>) -> usize {
    match (transport, edns) {
        (Transport::Tcp, _) => usize::from(u16::MAX),
        (Transport::Udp { .. }, None) => PLAIN_UDP,
        (Transport::Udp { most }, Some(edns)) => usize::from(edns.size.min(most)).max(PLAIN_UDP),
    }
}

fn options_length(edns: Option<Edns>, extended: Option<u16>) -> usize {
    match (edns, extended) {
        (None, _) => 0,
        (Some(_), None) => OPT_LENGTH,
        (Some(_), Some(_)) => OPT_LENGTH + 6,
    }
}

/// Writes the OPT record, if the query had one. `version` is what BADVERS has in the upper bits of the response code.
fn put_options(
    message: &mut [u8],
    at: usize,
    transport: Transport,
    edns: Option<Edns>,
    upper_code: Option<u8>,
    extended: Option<u16>,
) {
    let Some(edns) = edns else { return };
    let size = match transport {
        Transport::Udp { most } => most,
        Transport::Tcp => super::UDP_SIZE,
    };
    message[at..at + 3].copy_from_slice(&[0, 0, rtype::OPT as u8]);
    put(message, at + 3, size);
    message[at + 5..at + 11].copy_from_slice(&[upper_code.unwrap_or(0), 0, 0, 0, 0, 0]);
    if edns.dnssec_ok {
        message[at + 7] = 0x80;
    }
    if let Some(code) = extended {
        put(message, at + 9, 6);
        message[at + 11..at + 15].copy_from_slice(&[0, 15, 0, 2]);
        put(message, at + 15, code);
    }
}

/// The query's flags, but those of an answer with this code.
fn with_code(flags: u16, code: u16) -> u16 {
    flag::QR | flags & !(flag::AD | flag::RCODE) | code
}

fn word(message: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([message[at], message[at + 1]])
}

fn put(message: &mut [u8], at: usize, value: u16) {
    message[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
