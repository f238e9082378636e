//! From the bytes of a query to the bytes of its reply.

use super::encode::{MessageEncoder, NameOffsets};
use super::query::{self, DnsQuestion, EdnsInfo, HEADER, ParsedQuery, flag, rcode};
use super::resolve::{DnsAnswer, DnsSection, NameBuffer, ZoneResolver, extended};
use super::rtype;
use super::store::{WireName, Zones};

// The longest reply over UDP without EDNS (RFC 1035, section 4.2.1).
const PLAIN_UDP: usize = 512;
// An OPT record without options.
const OPT_LENGTH: usize = 11;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryTransport {
    /// A datagram.
    Udp {
        /// Bytes of the longest reply, even if the client accepts more.
        most: u16,
    },
    /// A stream, with messages of up to 65,535 bytes.
    Tcp,
}

/// The kind of a reply, for rate limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum AnswerKind {
    Positive,
    /// No records of the type.
    NoData,
    NoName,
    Referral,
    Wildcard,
    Any,
    /// Refused, malformed and the like.
    Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WrittenAnswer {
    pub(crate) length: usize,
    /// Bytes of the OPT record at its end; 0 without.
    pub(crate) options_bytes: usize,
    pub(crate) kind: AnswerKind,
    /// Equal for all names with the same answer.
    pub(crate) subject: u32,
    /// Whether records did not fit (TC).
    pub(crate) truncated: bool,
}

impl WrittenAnswer {
    fn error(length: usize, options_bytes: usize) -> Self {
        Self { length, options_bytes, kind: AnswerKind::Error, subject: 0, truncated: false }
    }
}

// Answers queries from zones. It reuses its buffers, so answers need no allocation.
#[derive(Debug)]
pub(crate) struct DnsResponder {
    places: NameOffsets,
    answer: DnsAnswer,
    name: WireName,
    alias: NameBuffer,
    host: NameBuffer,
}

impl DnsResponder {
    pub(crate) fn new() -> Self {
        Self {
            places: NameOffsets::new(),
            answer: DnsAnswer { parts: Vec::with_capacity(64), ..DnsAnswer::default() },
            name: WireName::default(),
            alias: Some(Box::default()),
            host: Some(Box::default()),
        }
    }

    // Writes the reply to `query` to `reply`; `None` for no reply.
    pub(crate) fn respond(
        &mut self,
        zones: &Zones,
        query: &[u8],
        reply: &mut [u8],
        transport: QueryTransport,
    ) -> Option<WrittenAnswer> {
        let mut reply_without_records = |end, flags, edns, upper_code| {
            let codes = OptionCodes { upper_code, extended: None };
            write_without_records(query, end, flags, edns, codes, transport, reply)
        };
        match query::parse(query) {
            ParsedQuery::Silence => None,
            ParsedQuery::Header(flags) => reply_without_records(HEADER, flags, None, 0),
            ParsedQuery::Bare(flags, edns) => reply_without_records(HEADER, flags, Some(edns), 0),
            ParsedQuery::Notify(name_length) => {
                self.name.set(&query[HEADER..HEADER + name_length]);
                let code = if zones.is_apex(&self.name) { rcode::REFUSED } else { rcode::NXDOMAIN };
                reply_without_records(HEADER, flags_with_code(read_u16(query, 2), code), None, 0)
            }
            ParsedQuery::BadVersion(name_length) => {
                let flags = flags_with_code(read_u16(query, 2), 0);
                reply_without_records(HEADER + name_length + 4, flags, Some(EdnsInfo::default()), 1)
            }
            ParsedQuery::Ask(question) => self.answer_question(zones, query, &question, reply, transport),
        }
    }

    fn answer_question(
        &mut self,
        zones: &Zones,
        query: &[u8],
        question: &DnsQuestion,
        reply: &mut [u8],
        transport: QueryTransport,
    ) -> Option<WrittenAnswer> {
        let reply_flags = read_u16(query, 2) & flag::RD | flag::QR;
        let mut write_refusal = |code, extended: Option<u16>, keep_question| {
            let end = if keep_question { HEADER + question.name_length + 4 } else { HEADER };
            let codes = OptionCodes { upper_code: 0, extended };
            write_without_records(query, end, reply_flags | code, question.edns, codes, transport, reply)
        };
        self.name.set(&query[HEADER..HEADER + question.name_length]);
        match question.qclass {
            query::CLASS_IN | query::CLASS_ANY => {}
            // The identity of the server is not disclosed.
            query::CLASS_CH => {
                let name = self.name.end(self.name.labels);
                let asks_identity = matches!(question.qtype, rtype::TXT | rtype::ANY)
                    && IDENTITY_NAMES.iter().any(|identity| **identity == *name);
                let extended_code =
                    if asks_identity { extended::PROHIBITED } else { extended::NOT_SUPPORTED };
                return write_refusal(rcode::REFUSED, Some(extended_code), true);
            }
            _ => return write_refusal(rcode::REFUSED, Some(extended::NOT_SUPPORTED), false),
        }
        let is_transfer = matches!(question.qtype, rtype::AXFR | rtype::IXFR);
        if question.qtype == rtype::AXFR && transport != QueryTransport::Tcp {
            return write_refusal(rcode::NOTIMP, None, true);
        }
        if is_transfer {
            let (code, extended_code) = if zones.is_apex(&self.name) {
                (rcode::REFUSED, Some(extended::PROHIBITED))
            } else {
                (rcode::NOTAUTH, None)
            };
            return write_refusal(code, extended_code, true);
        }
        let mut resolver = ZoneResolver {
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

    fn write(
        &mut self,
        zones: &Zones,
        query: &[u8],
        question: &DnsQuestion,
        reply: &mut [u8],
        transport: QueryTransport,
    ) -> Option<WrittenAnswer> {
        let end = HEADER + question.name_length + 4;
        let options_bytes = options_length(question.edns, self.answer.extended);
        let max_length = max_answer_length(transport, question.edns).min(reply.len());
        reply.get_mut(..end + options_bytes)?;
        let rcode = self.answer.rcode;
        let mut flags = read_u16(query, 2) & flag::RD | flag::QR | rcode;
        if self.answer.authoritative {
            flags |= flag::AA;
        }
        reply[..end].copy_from_slice(&query[..end]);
        let limit = max_length.saturating_sub(options_bytes);
        let mut encoder = MessageEncoder::new(zones, &mut self.places, reply, end, limit, &self.name);
        let (counts, truncated) = write_sections(&mut encoder, &self.answer, transport);
        if truncated {
            flags |= flag::TC;
        }
        let end = encoder.position();
        put_u16(reply, 2, flags);
        put_counts(reply, [1, counts[0], counts[1], counts[2] + u16::from(question.edns.is_some())]);
        let codes = OptionCodes { upper_code: 0, extended: self.answer.extended };
        put_options(reply, end, transport, question.edns, codes);
        let (kind, subject) = (self.kind(question), self.answer.subject);
        Some(WrittenAnswer { length: end + options_bytes, options_bytes, kind, subject, truncated })
    }

    fn kind(&self, question: &DnsQuestion) -> AnswerKind {
        match self.answer.parts.first() {
            _ if self.answer.rcode == rcode::NXDOMAIN => AnswerKind::NoName,
            _ if self.answer.rcode != 0 => AnswerKind::Error,
            _ if self.answer.referral => AnswerKind::Referral,
            _ if question.qtype == rtype::ANY => AnswerKind::Any,
            Some(part) if part.section == DnsSection::Answer && self.answer.wildcard => AnswerKind::Wildcard,
            Some(part) if part.section == DnsSection::Answer => AnswerKind::Positive,
            _ => AnswerKind::NoData,
        }
    }
}

// Truncates a reply to its header, question and OPT record with TC, so that the client retries over TCP. Returns its
// length.
pub(crate) fn truncate_reply(reply: &mut [u8], written: &WrittenAnswer) -> usize {
    put_u16(reply, 2, read_u16(reply, 2) | flag::TC);
    [6, 8, 10].into_iter().for_each(|offset| put_u16(reply, offset, 0));
    let options_at = written.length - written.options_bytes;
    let mut end = HEADER;
    if read_u16(reply, 4) != 0 {
        while end < options_at && reply[end] != 0 {
            end += usize::from(reply[end]) + 1;
        }
        end = options_at.min(end + 5);
    }
    if written.options_bytes == 0 {
        return end;
    }
    // A reply has an OPT record if the query has one (RFC 6891, section 6.1.1). Without its options it is no longer than
    // that of the query.
    reply.copy_within(options_at..options_at + OPT_LENGTH, end);
    put_u16(reply, end + OPT_LENGTH - 2, 0);
    put_u16(reply, 10, 1);
    end + OPT_LENGTH
}

/// Names of class CH for the identity of a server.
const IDENTITY_NAMES: [&[u8]; 4] =
    [b"\x02id\x06server\0", b"\x08hostname\x04bind\0", b"\x07version\x06server\0", b"\x07version\x04bind\0"];

/// Writes all sections; returns the counts of the header, and whether the reply is truncated.
fn write_sections(
    encoder: &mut MessageEncoder<'_>,
    answer: &DnsAnswer,
    transport: QueryTransport,
) -> ([u16; 3], bool) {
    let mut counts = [0; 3];
    for section in DnsSection::ALL {
        let mut has_omitted = false;
        for part in answer.parts.iter().filter(|part| part.section == section) {
            let start = encoder.position();
            let (added, is_complete) = encoder.set(part.owner, part.set, part.ttl);
            if is_complete {
                counts[section.count()] += added;
                continue;
            }
            // A set is written as a whole. Without a required set, the client retries over TCP.
            if section.is_required() {
                encoder.truncate(start);
                return (counts, true);
            }
            if transport == QueryTransport::Tcp {
                counts[section.count()] += added;
            } else {
                encoder.truncate(start);
            }
            has_omitted = true;
        }
        if has_omitted {
            break;
        }
    }
    (counts, false)
}

fn max_answer_length(transport: QueryTransport, edns: Option<EdnsInfo>) -> usize {
    match (transport, edns) {
        (QueryTransport::Tcp, _) => usize::from(u16::MAX),
        (QueryTransport::Udp { .. }, None) => PLAIN_UDP,
        (QueryTransport::Udp { most }, Some(edns)) => usize::from(edns.size.min(most)).max(PLAIN_UDP),
    }
}

fn options_length(edns: Option<EdnsInfo>, extended: Option<u16>) -> usize {
    match (edns, extended) {
        (None, _) => 0,
        (Some(_), None) => OPT_LENGTH,
        (Some(_), Some(_)) => OPT_LENGTH + 6,
    }
}

#[derive(Debug, Clone, Copy)]
struct OptionCodes {
    /// The upper bits of the response code, for BADVERS.
    upper_code: u8,
    /// An extended error (RFC 8914).
    extended: Option<u16>,
}

/// Writes a reply of the query's first `end` bytes, which are its header or its header and question.
fn write_without_records(
    query: &[u8],
    end: usize,
    flags: u16,
    edns: Option<EdnsInfo>,
    codes: OptionCodes,
    transport: QueryTransport,
    reply: &mut [u8],
) -> Option<WrittenAnswer> {
    let options_bytes = options_length(edns, codes.extended);
    let length = end + options_bytes;
    let message = reply.get_mut(..length)?;
    message[..end].copy_from_slice(&query[..end]);
    put_u16(message, 2, flags);
    put_counts(message, [u16::from(end > HEADER), 0, 0, u16::from(edns.is_some())]);
    put_options(message, end, transport, edns, codes);
    Some(WrittenAnswer::error(length, options_bytes))
}

/// Writes the OPT record if the query had one.
fn put_options(
    message: &mut [u8],
    offset: usize,
    transport: QueryTransport,
    edns: Option<EdnsInfo>,
    codes: OptionCodes,
) {
    let Some(edns) = edns else { return };
    let size = match transport {
        QueryTransport::Udp { most } => most,
        QueryTransport::Tcp => super::UDP_SIZE,
    };
    message[offset..offset + 3].copy_from_slice(&[0, 0, rtype::OPT as u8]);
    put_u16(message, offset + 3, size);
    message[offset + 5..offset + 11].copy_from_slice(&[codes.upper_code, 0, 0, 0, 0, 0]);
    if edns.dnssec_ok {
        message[offset + 7] = 0x80;
    }
    if let Some(code) = codes.extended {
        put_u16(message, offset + 9, 6);
        message[offset + 11..offset + 15].copy_from_slice(&[0, 15, 0, 2]);
        put_u16(message, offset + 15, code);
    }
}

/// The flags of the query, as a reply with this code.
fn flags_with_code(flags: u16, code: u16) -> u16 {
    flag::QR | flags & !(flag::AD | flag::RCODE) | code
}

fn read_u16(message: &[u8], offset: usize) -> u16 {
    u16::from_be_bytes([message[offset], message[offset + 1]])
}

fn put_counts(message: &mut [u8], counts: [u16; 4]) {
    counts.into_iter().zip([4, 6, 8, 10]).for_each(|(count, offset)| put_u16(message, offset, count));
}

fn put_u16(message: &mut [u8], offset: usize, value: u16) {
    message[offset..offset + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const UDP: QueryTransport = QueryTransport::Udp { most: 1232 };
    // OPT of a query: 4,096 bytes, version 0, DO.
    const QUERY_OPT: [u8; OPT_LENGTH] = [0, 0, 41, 16, 0, 0, 0, 0x80, 0, 0, 0];

    fn query(qclass: u8, opt: &[u8]) -> Vec<u8> {
        let header = [0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(!opt.is_empty())];
        [&header[..], b"\x01a\x07example\0", &[0, 16, 0, qclass], opt].concat()
    }

    /// The reply to `query`, truncated.
    fn truncated_reply(query: &[u8]) -> Vec<u8> {
        let zone = format!("@ 60 IN SOA a b 1 2 3 4 5\n@ 60 IN NS a\na 60 IN TXT {}\n", "x".repeat(200));
        let zones = Zones::parse("example", &zone).expect("a zone");
        let mut reply = vec![0; 1232];
        let written = DnsResponder::new().respond(&zones, query, &mut reply, UDP).expect("a reply");
        let length = truncate_reply(&mut reply, &written);
        reply.truncate(length);
        reply
    }

    #[test]
    fn truncated_replies_have_a_bare_opt_record_if_the_query_had_one() {
        let bad_version = [0, 0, 41, 16, 0, 0, 1, 0, 0, 0, 0];
        let opt = |upper_code, flags| vec![0, 0, 41, 4, 208, upper_code, 0, flags, 0, 0, 0];
        // The reply of class CH has an extended error, which the truncated reply has not.
        for (query, code, expected_opt) in [
            (query(1, &QUERY_OPT), 0, opt(0, 0x80)),
            (query(3, &QUERY_OPT), 5, opt(0, 0x80)),
            (query(1, &bad_version), 0, opt(1, 0)),
            (query(1, &[]), 0, Vec::new()),
        ] {
            let reply = truncated_reply(&query);
            assert_eq!(reply.len(), query.len(), "{reply:?}");
            let question = HEADER..query.len() - expected_opt.len();
            assert_eq!(reply[question.clone()], query[question.clone()]);
            assert_eq!(reply[question.end..], expected_opt);
            assert_eq!((read_u16(&reply, 2) & flag::TC, reply[3] & 0x0f), (flag::TC, code));
            assert_eq!(reply[4..12], [0, 1, 0, 0, 0, 0, 0, u8::from(!expected_opt.is_empty())]);
        }
    }

    #[test]
    fn truncated_replies_without_a_question_have_a_bare_opt_record() {
        // Class 9 is not served, so the reply has no question.
        let query = query(9, &QUERY_OPT);
        let reply = truncated_reply(&query);
        assert_eq!(reply[4..12], [0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(reply[HEADER..], [0, 0, 41, 4, 208, 0, 0, 0x80, 0, 0, 0]);
    }
}
