//! Parsing of queries.

use super::rtype;

pub(crate) const HEADER: usize = 12;

/// Bits of the second and third 16 bits of the header.
pub(crate) mod flag {
    pub(crate) const QR: u16 = 0x8000;
    pub(crate) const OPCODE: u16 = 0x7800;
    pub(crate) const AA: u16 = 0x0400;
    pub(crate) const TC: u16 = 0x0200;
    pub(crate) const RD: u16 = 0x0100;
    pub(crate) const AD: u16 = 0x0020;
    pub(crate) const RCODE: u16 = 0x000f;
}

/// Response codes.
pub(crate) mod rcode {
    pub(crate) const FORMERR: u16 = 1;
    pub(crate) const NXDOMAIN: u16 = 3;
    pub(crate) const NOTIMP: u16 = 4;
    pub(crate) const REFUSED: u16 = 5;
    pub(crate) const NOTAUTH: u16 = 9;
}

const OPCODE_QUERY: u16 = 0;
const OPCODE_NOTIFY: u16 = 4;

pub(crate) const CLASS_IN: u16 = 1;
pub(crate) const CLASS_CH: u16 = 3;
pub(crate) const CLASS_ANY: u16 = 255;

// EDNS fields (RFC 6891).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct EdnsInfo {
    // The longest reply over UDP that the client accepts.
    pub(crate) size: u16,
    /// The DO bit.
    pub(crate) dnssec_ok: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DnsQuestion {
    /// Length of the name, which follows the header.
    pub(crate) name_length: usize,
    pub(crate) qtype: u16,
    pub(crate) qclass: u16,
    pub(crate) edns: Option<EdnsInfo>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParsedQuery {
    /// No reply: the message is a reply, or has no header.
    Silence,
    /// Reply with a header only, with these flags and code.
    Header(u16),
    // No question, only EDNS: reply with a header and EDNS (RFC 7873, section 5.4).
    Bare(u16, EdnsInfo),
    /// An EDNS version other than 0, and the length of the name.
    BadVersion(usize),
    /// A notification that a zone changed, and the length of the name.
    Notify(usize),
    Ask(DnsQuestion),
}

fn u16_at(message: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_be_bytes(message.get(offset..offset + 2)?.try_into().ok()?))
}

/// Replies to malformed messages are those of NSD: with the flags of the query for an unknown opcode, with RD only for an
/// unreadable message, and without flags for several questions.
pub(crate) fn parse(message: &[u8]) -> ParsedQuery {
    if message.len() < HEADER {
        return ParsedQuery::Silence;
    }
    let word = |offset| u16_at(message, offset).unwrap_or_default();
    let flags = word(2);
    let counts = [4, 6, 8, 10].map(word);
    if flags & flag::QR != 0 {
        return ParsedQuery::Silence;
    }
    let opcode = (flags & flag::OPCODE) >> 11;
    if opcode != OPCODE_QUERY && opcode != OPCODE_NOTIFY {
        return ParsedQuery::Header(flag::QR | flags & !(flag::AD | flag::RCODE) | rcode::NOTIMP);
    }
    let malformed = ParsedQuery::Header(flag::QR | flags & (flag::RD | flag::OPCODE) | rcode::FORMERR);
    if flags & flag::RCODE != 0 {
        return malformed;
    }
    let Some((name_length, qtype, qclass)) = question(message) else { return malformed };
    if opcode == OPCODE_NOTIFY {
        return ParsedQuery::Notify(name_length);
    }
    let end = HEADER + name_length + 4;
    if counts[0] != 1 {
        if let ([0, 0, 0, 1], Some(OptRecord::Known(edns))) = (counts, options(message, HEADER)) {
            return ParsedQuery::Bare(flag::QR | flags & flag::RD, edns);
        }
        return ParsedQuery::Header(flag::QR | rcode::FORMERR);
    }
    if counts[1] != 0 || (qtype != rtype::IXFR && counts[2] != 0) || counts[2] > 64 {
        return malformed;
    }
    // An IXFR query contains the client's SOA.
    let Some(end) = (0..counts[2]).try_fold(end, |offset, _| skip_record(message, offset)) else {
        return malformed;
    };
    // Bytes after the last record are ignored.
    match (counts[3], options(message, end)) {
        (0, _) => ParsedQuery::Ask(DnsQuestion { name_length, qtype, qclass, edns: None }),
        (1, Some(OptRecord::Known(edns))) => {
            ParsedQuery::Ask(DnsQuestion { name_length, qtype, qclass, edns: Some(edns) })
        }
        (1, Some(OptRecord::OtherVersion)) => ParsedQuery::BadVersion(name_length),
        _ => malformed,
    }
}

/// Length of the name, type and class; the name without pointers.
fn question(message: &[u8]) -> Option<(usize, u16, u16)> {
    let name = rtype::name_at(message, HEADER)?;
    Some((name.len(), u16_at(message, name.end)?, u16_at(message, name.end + 2)?))
}

enum OptRecord {
    Known(EdnsInfo),
    OtherVersion,
}

/// The OPT record at `offset`, if it is readable.
fn options(message: &[u8], offset: usize) -> Option<OptRecord> {
    let opt_header: &[u8; 11] = message.get(offset..offset + 11)?.try_into().ok()?;
    if opt_header[..3] != [0, 0, rtype::OPT as u8] {
        return None;
    }
    if opt_header[6] != 0 {
        return Some(OptRecord::OtherVersion);
    }
    let length = usize::from(u16::from_be_bytes([opt_header[9], opt_header[10]]));
    let mut option_bytes = message.get(offset + 11..offset + 11 + length)?;
    while !option_bytes.is_empty() {
        let option_length = usize::from(u16_at(option_bytes, 2)?);
        option_bytes = option_bytes.get(4 + option_length..)?;
    }
    let size = u16::from_be_bytes([opt_header[3], opt_header[4]]);
    Some(OptRecord::Known(EdnsInfo { size, dnssec_ok: opt_header[7] & 0x80 != 0 }))
}

/// The end of the record at `offset`.
fn skip_record(message: &[u8], mut offset: usize) -> Option<usize> {
    loop {
        match *message.get(offset)? {
            0 => break offset += 1,
            length if length & 0xc0 != 0 => break offset += 2,
            length => offset += 1 + usize::from(length),
        }
    }
    let end = offset + 10 + usize::from(u16_at(message, offset + 8)?);
    (end <= message.len()).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";

    fn query_with_byte(at: usize, byte: u8) -> Vec<u8> {
        let mut message = PLAIN.to_vec();
        message[at] = byte;
        message
    }

    #[test]
    fn questions_and_edns_options_parse() {
        let question = DnsQuestion { name_length: 3, qtype: rtype::A, qclass: CLASS_IN, edns: None };
        assert_eq!(parse(PLAIN), ParsedQuery::Ask(question));
        let mut edns_query = query_with_byte(11, 1);
        edns_query.extend_from_slice(&[0, 0, 41, 0x10, 0, 0, 0, 0x80, 0, 0, 0]);
        let edns = Some(EdnsInfo { size: 4096, dnssec_ok: true });
        assert_eq!(parse(&edns_query), ParsedQuery::Ask(DnsQuestion { edns, ..question }));
        edns_query[PLAIN.len() + 6] = 1;
        assert_eq!(parse(&edns_query), ParsedQuery::BadVersion(3));
    }

    #[test]
    fn replies_and_short_messages_get_no_reply() {
        assert_eq!(parse(&query_with_byte(2, 0x81)), ParsedQuery::Silence);
        assert_eq!(parse(&PLAIN[..11]), ParsedQuery::Silence);
    }

    #[test]
    fn malformed_queries_get_a_header_with_an_error() {
        let malformed = ParsedQuery::Header(flag::QR | flag::RD | rcode::FORMERR);
        for message in [
            query_with_byte(12, 0xc0),
            query_with_byte(12, 60),
            query_with_byte(7, 1),
            query_with_byte(9, 1),
            query_with_byte(11, 1),
        ] {
            assert_eq!(parse(&message), malformed, "{message:?}");
        }
        assert_eq!(parse(&PLAIN[..PLAIN.len() - 1]), malformed);
        assert_eq!(parse(&query_with_byte(5, 2)), ParsedQuery::Header(flag::QR | rcode::FORMERR));
        assert_eq!(parse(&query_with_byte(2, 0x11)), ParsedQuery::Header(flag::QR | 0x1100 | rcode::NOTIMP));
    }
}
