//! Queries for the DNS server. The crate `domain` parses the replies, which are checked against
//! rules that hold for every reply.
//!
//! The first byte chooses the meaning of the rest: a query as it is; input to build queries for
//! fixed zones; input to build a zone and queries for it; or the text of a zone file, and after a
//! zero byte the input to build queries.

#![no_main]

use std::cell::RefCell;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use domain::base::iana::{Opcode, Rcode, Rtype};
use domain::base::{Message, ParsedName};
use domain::rdata::AllRecordData;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use linerate_services::dns::{
    DnsAnswerer, DnsRateLimit, DnsService, QueryTransport, ServedZones, UDP_SIZE, Zones,
};

const LEAST_UDP: u16 = 512;
const HEADER: usize = 12;
const CLASS_ANY: u16 = 255;
/// Any address but loopback, which has no limit.
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));

const PARENT: &str = include_str!("../data/parent.zone");
const CHILD: &str = include_str!("../data/child.zone");
/// Labels to build names: labels of the zones, a wildcard's label, and the longest possible label.
const LABELS: [&str; 17] = [
    "a",
    "b",
    "c",
    "d",
    "e",
    "f",
    "g",
    "l",
    "ns",
    "v",
    "w",
    "x",
    "z",
    "_s",
    "_u",
    "*",
    "sixty-three-letters-are-the-most-that-a-label-of-a-name-can-have",
];
const TYPES: [u16; 20] = [1, 2, 5, 6, 12, 13, 14, 15, 16, 28, 33, 35, 36, 43, 46, 47, 48, 251, 252, 255];

thread_local! {
    static KNOWN: RefCell<Subject> = RefCell::new(Subject::new(known_zones()));
    static MADE: RefCell<Subject> = RefCell::new(Subject::new(known_zones()));
}

/// A zone and a child zone, each with more records than fit into the requested answers.
fn known_zones() -> Zones {
    let directory = std::env::temp_dir().join(format!("linerate-fuzz-dns-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory for zones");
    let mut parent = PARENT.to_owned();
    for number in 0..60 {
        let _ =
            writeln!(parent, "f IN TXT \"{number} {}\"\ng IN MX {number} a.f.{number}.g", "-".repeat(200));
        let _ = writeln!(parent, "b IN NS ns.{number}.b\nns.{number}.b IN AAAA 2001:db8::{number}");
    }
    let files = [("t", parent.as_str()), ("z.t", CHILD)].map(|(name, text)| {
        let file = directory.join(name);
        std::fs::write(&file, text).expect("a zone is written");
        (name, file)
    });
    let zones = Zones::load(&files).expect("the zones are sound");
    let _ = std::fs::remove_dir_all(directory);
    zones
}

/// The same zones, served in each way.
struct Subject {
    served: Arc<ServedZones>,
    answerer: DnsAnswerer,
    limited: DnsService,
    reply: Box<[u8]>,
}

impl Subject {
    fn new(zones: Zones) -> Self {
        let served_zones = ServedZones::new(zones);
        // Limits only replies that are longer than their query, and nearly all of those.
        let limit = DnsRateLimit { surplus_bytes: 1, ..DnsRateLimit::per_second(0) };
        Self {
            answerer: DnsAnswerer::new(Arc::clone(&served_zones)),
            limited: DnsService::new(Arc::clone(&served_zones)).rate_limit(Some(limit)),
            served: served_zones,
            reply: vec![0; usize::from(u16::MAX)].into(),
        }
    }

    fn answer(&mut self, query: &[u8], transport: QueryTransport) -> Option<Vec<u8>> {
        let length = self.answerer.answer(query, &mut self.reply, transport)?;
        Some(self.reply[..length].to_vec())
    }

    /// Sends queries until the input is used up.
    fn check_queries(&mut self, input: &mut Unstructured<'_>) {
        while let (false, Ok(query)) = (input.is_empty(), query(input)) {
            self.check_query(&query);
        }
    }

    fn check_query(&mut self, query: &[u8]) {
        let parsed = ParsedQuery::parse(query);
        let is_query = query.len() >= HEADER && query[2] & 0x80 == 0;
        let tcp_reply = self.answer(query, QueryTransport::Tcp);
        assert_eq!(tcp_reply.is_some(), is_query, "silence is for all but queries, and for those alone");
        if let Some(tcp_reply) = &tcp_reply {
            parsed.check(query, tcp_reply, usize::from(u16::MAX));
        }
        for max_bytes in [UDP_SIZE, LEAST_UDP, 4096] {
            let answer = self.answer(query, QueryTransport::Udp { most: max_bytes });
            assert_eq!(answer.is_some(), is_query);
            let (Some(answer), Some(tcp_reply)) = (answer, &tcp_reply) else { continue };
            let max_length = parsed.room(max_bytes);
            parsed.check(query, &answer, max_length);
            assert!(
                self.answer(&answer, QueryTransport::Udp { most: max_bytes }).is_none(),
                "an answer is answered"
            );
            if parsed.qtype != Some(Rtype::AXFR.to_int()) {
                check_fits(&answer, tcp_reply, max_length);
            }
        }
        let mut reply = [0; 4096];
        if let Some(length) = self.limited.answer_at(query, STRANGER, &mut reply) {
            assert!(length <= query.len() + 1, "{length} bytes for {} that may be forged", query.len());
            parsed.check(query, &reply[..length], parsed.room(UDP_SIZE));
        }
        // Replies fit into a buffer of any size.
        for space in [0, HEADER - 1, HEADER, HEADER + 11, query.len(), query.len() + 10, query.len() + 30] {
            if let Some(length) = self.answerer.answer(query, &mut vec![0; space], QueryTransport::Tcp) {
                assert!(length <= space);
            }
        }
    }
}

/// Compares a reply over UDP with the reply over TCP.
fn check_fits(answer: &[u8], tcp_reply: &[u8], max_length: usize) {
    let flags = |message: &[u8]| u16::from_be_bytes([message[2], message[3]]);
    let is_truncated = flags(answer) & 0x0200 != 0;
    assert_eq!(flags(answer) & !0x0200, flags(tcp_reply) & !0x0200, "the same but for TC");
    if tcp_reply.len() <= max_length {
        assert_eq!(answer.len(), tcp_reply.len(), "all of it goes where there is room");
        assert_eq!(flags(answer), flags(tcp_reply), "TC where there is room");
    } else if !is_truncated {
        assert_eq!(answer[6..8], tcp_reply[6..8], "an answer that was cut, and does not say so");
    }
}

/// The fields that the crate `domain` reads in a query.
struct ParsedQuery {
    qtype: Option<u16>,
    /// The longest reply that the client accepts, by EDNS.
    edns: Option<u16>,
}

impl ParsedQuery {
    fn parse(query: &[u8]) -> Self {
        let Ok(message) = Message::from_octets(query) else { return Self { qtype: None, edns: None } };
        let qtype = message.first_question().map(|question| question.qtype().to_int());
        Self { qtype, edns: message.opt().map(|opt| opt.udp_payload_size()) }
    }

    /// The longest valid reply over UDP from a server that sends at most `max_bytes` bytes.
    fn room(&self, max_bytes: u16) -> usize {
        self.edns.map_or(LEAST_UDP, |size| size.min(max_bytes)).max(LEAST_UDP).into()
    }

    /// Checks the rules that hold for every reply.
    fn check(&self, query: &[u8], answer: &[u8], max_length: usize) {
        assert!(answer.len() <= max_length, "{} bytes where {max_length} are allowed", answer.len());
        let message = Message::from_octets(answer).expect("a header");
        let header = message.header();
        assert_eq!(answer[..2], query[..2], "the query's identifier");
        assert!(header.qr());
        assert_eq!((answer[2] ^ query[2]) & 0x78, 0, "the query's opcode");
        assert_eq!(answer[2] & !query[2] & 1, 0, "recursion was not desired");
        let counts = message.header_counts();
        let mut questions = message.question();
        let question = questions.next().map(|question| question.expect("a question that can be read"));
        if counts.qdcount() != 0 {
            let end = HEADER + question_length(answer);
            assert_eq!(answer[HEADER..end], query[HEADER..end], "the question, letter by letter");
        }
        assert!(counts.qdcount() <= 1 && questions.next().is_none());
        // All records can be parsed, and no bytes follow them.
        let mut aliases: Vec<ParsedName<&[u8]>> = question.iter().map(|question| *question.qname()).collect();
        for record in message.answer().expect("a section").into_records::<AllRecordData<_, _>>() {
            let record = record.expect("a record that can be read");
            assert!(aliases.contains(record.owner()), "{record:?} was not asked for");
            if let AllRecordData::Cname(alias) = record.data() {
                aliases.push(*alias.cname());
            }
        }
        for record in message.authority().expect("a section").into_records::<AllRecordData<_, _>>() {
            record.expect("a record that can be read");
        }
        let mut options = 0;
        let mut additional = message.additional().expect("a section");
        for record in additional.into_records::<AllRecordData<_, _>>() {
            options += usize::from(record.expect("a record that can be read").rtype() == Rtype::OPT);
        }
        for record in additional.by_ref() {
            record.expect("a record");
        }
        assert_eq!(additional.pos(), answer.len(), "bytes behind the last record");
        assert!(options <= 1 && (options == 0 || query[10..12] == [0, 1]), "EDNS for who had none");
        let class = question.map(|question| question.qclass().to_int());
        let is_negative = header.rcode() == Rcode::NXDOMAIN && header.opcode() == Opcode::QUERY;
        if is_negative && !header.tc() && class != Some(CLASS_ANY) {
            assert!(header.aa() && counts.nscount() == 1, "NXDOMAIN without a SOA");
        }
    }
}

/// Length in bytes of the first question, which can be parsed.
fn question_length(message: &[u8]) -> usize {
    let mut offset = HEADER;
    while message[offset] != 0 {
        offset += usize::from(message[offset]) + 1;
    }
    offset + 5 - HEADER
}

/// A query that is well-formed, or nearly so.
fn query(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut query = input.bytes(2)?.to_vec();
    let is_usual: bool = input.ratio(7, 8)?;
    if is_usual {
        query.extend([u8::from(input.arbitrary::<bool>()?), 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    } else {
        query.extend_from_slice(input.bytes(2)?);
        (0..4).try_for_each(|_| input.int_in_range(0..=2).map(|count| query.extend([0_u8, count])))?;
    }
    for _ in 0..input.int_in_range(0..=5)? {
        let label = if input.ratio(1, 12)? {
            let length = input.int_in_range(1..=63)?;
            input.bytes(length)?
        } else {
            input.choose(&LABELS)?.as_bytes()
        };
        let is_upper_case: bool = input.arbitrary()?;
        query.push(label.len().min(63) as u8);
        query.extend(
            label.iter().take(63).map(|byte| if is_upper_case { byte.to_ascii_uppercase() } else { *byte }),
        );
    }
    query.extend_from_slice(if input.ratio(1, 16)? { &[0] } else { &[1, b't', 0] });
    let qtype = if input.ratio(1, 12)? { input.arbitrary()? } else { *input.choose(&TYPES)? };
    query.extend(qtype.to_be_bytes());
    query.extend(input.choose(&[1_u16, 1, 1, 1, 3, 255, 0])?.to_be_bytes());
    if input.arbitrary()? {
        query[11] = 1;
        query.extend([0, 0, 41]);
        query.extend(input.choose(&[0_u16, 512, 1232, 1400, 4096, 65_535])?.to_be_bytes());
        query.extend([0, u8::from(input.ratio(1, 12)?), input.arbitrary()?, 0]);
        let length = input.int_in_range(0..=12)?;
        let options = input.bytes(length)?;
        query.extend((options.len() as u16).to_be_bytes());
        query.extend_from_slice(options);
    }
    if input.ratio(1, 16)? {
        query.truncate(usize::from(input.arbitrary::<u8>()?));
    }
    Ok(query)
}

/// The text of a zone, in which most lines fit together.
fn zone(input: &mut Unstructured<'_>) -> Result<String> {
    let mut text = String::from("$TTL 60\n@ IN SOA a b 1 2 3 4 5\n");
    let name = |input: &mut Unstructured<'_>, labels: u8| -> Result<String> {
        let mut name = String::new();
        for _ in 0..input.int_in_range(0..=labels)? {
            let _ = write!(name, "{}.", input.choose(&LABELS[..16])?);
        }
        name.push_str(if input.ratio(1, 12)? { "elsewhere." } else { "t." });
        Ok(name)
    };
    for line in 0..input.int_in_range(1..=24)? {
        let owner = name(input, 3)?;
        let target = name(input, 4)?;
        let number: u8 = input.arbitrary()?;
        let data = match input.int_in_range(0..=9)? {
            0 => format!("A 192.0.2.{number}"),
            1 => format!("AAAA 2001:db8::{number}"),
            2 | 3 => format!("CNAME {target}"),
            4 | 5 => format!("NS {target}"),
            6 => format!("MX {number} {target}"),
            7 => format!("SRV 1 {number} {line} {target}"),
            8 => format!(
                "TXT {}",
                format!("\"{}\" ", "x".repeat(number.into())).repeat(usize::from(number % 20) + 1)
            ),
            _ => format!("TYPE{} \\# 2 {number:02x}00", 1000 + u16::from(number)),
        };
        let _ = writeln!(text, "{owner} IN {data}");
    }
    Ok(text)
}

/// Serves the zone if it is valid, and sends queries until the input is used up.
fn serve(text: &str, input: &mut Unstructured<'_>) {
    let Ok(zones) = Zones::parse("t", text) else { return };
    MADE.with_borrow_mut(|server| {
        server.served.exchange(zones);
        for name in [&b"\x01t\0"[..], b"\x01a\x01t\0"] {
            for qtype in TYPES {
                let question = [name, &qtype.to_be_bytes(), &[0, 1]].concat();
                server.check_query(&[&[7, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], &question].concat());
            }
        }
        server.check_queries(input);
    });
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let mut from = Unstructured::new(rest);
    match choice % 4 {
        0 => KNOWN.with_borrow_mut(|subject| subject.check_query(rest)),
        1 => KNOWN.with_borrow_mut(|subject| subject.check_queries(&mut from)),
        2 => {
            if let Ok(text) = zone(&mut from) {
                serve(&text, &mut from);
            }
        }
        _ => {
            let mut parts = rest.splitn(2, |byte| *byte == 0);
            let (text, asked) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let Ok(text) = std::str::from_utf8(text) else { return };
            // Another file cannot be controlled: a device or a pipe would be read forever. A range
            // of millions takes too long.
            let lower = text.to_ascii_lowercase();
            if !lower.contains("$include") && !lower.contains("$generate") {
                serve(&format!("@ 60 IN SOA a b 1 2 3 4 5\n{text}"), &mut Unstructured::new(asked));
            }
        }
    }
});
