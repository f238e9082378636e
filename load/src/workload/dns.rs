//! DNS queries from a file in dnsperf's format: `NAME TYPE` per line.

use domain::base::iana::Rcode;
use domain::base::message_builder::OptBuilder;
use domain::base::{MessageBuilder, Name, Rtype};

use super::error::SourceError;
use super::{EchoedTag, PreparedExchange, ReplyCode, ReplyMark, RequestOrder};

// Bytes of a DNS header (RFC 1035, 4.1.1).
const HEADER_BYTES: usize = 12;

// TC (RFC 1035, 4.1.1): the answer did not fit.
const TRUNCATED: ReplyMark = ReplyMark { offset: 2, mask: 0x02, value: 0x02 };

// Buffer size to advertise if only DNSSEC is requested: unfragmented on any link (DNS flag day
// 2020).
const USUAL_EDNS_BYTES: u16 = 1_232;

// Size that every response may have without EDNS; a smaller buffer size means this size (RFC 6891,
// 6.2.3).
const LEAST_EDNS_BYTES: u16 = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DnsQueryOptions {
    /// The response size that an OPT record advertises, bytes; without it there is no record,
    /// unless DNSSEC is requested.
    pub edns_bytes: Option<u16>,
    /// Whether DNSSEC records are requested (the DO bit), which requires an OPT record.
    pub dnssec_ok: bool,
    /// Whether recursion is requested (the RD bit).
    pub recursion_desired: bool,
}

/// As dnsperf does: recursion desired, no EDNS.
impl Default for DnsQueryOptions {
    fn default() -> Self {
        DnsQueryOptions { edns_bytes: None, dnssec_ok: false, recursion_desired: true }
    }
}

/// Queries of class IN, one for each line `NAME TYPE` of `text`, in their order. Empty lines and
/// comments (`;` or `#`) are left out. Names are absolute with or without a final dot, and may have
/// the escapes of a zone file (`\.`, `\DDD`), but not `\[` first in a label; a type is a name or
/// `TYPEnnn`. A reply is recognized by its id, and responses are counted by their code.
///
/// # Errors
/// A line that is no query, a type that does not go over UDP, or no query at all; `file` names
/// `text` in errors.
pub fn from_text(text: &str, file: &str, options: &DnsQueryOptions) -> Result<PreparedExchange, SourceError> {
    if let Some(bytes) = options.edns_bytes.filter(|bytes| *bytes < LEAST_EDNS_BYTES) {
        let problem = format!("{bytes} bytes mean {LEAST_EDNS_BYTES}: give at least that, or no EDNS at all");
        return Err(SourceError::option("EDNS buffer size", problem));
    }
    let mut requests = Vec::new();
    for (line, words) in (1..).zip(text.lines().map(words)) {
        let line_error = |item: &str, problem: &str| SourceError::line(file, line, item, problem);
        match words[..] {
            [] => {}
            [name] => return Err(line_error(name, "no type behind the name: write NAME TYPE")),
            [name, kind] => {
                let name = parse_name(name).map_err(|problem| line_error(name, problem))?;
                let kind = parse_type(kind).map_err(|problem| line_error(kind, problem))?;
                requests.push(query(&name, kind, options));
            }
            [_, _, extra_word, ..] => {
                return Err(line_error(extra_word, "surplus: write NAME TYPE, the class is IN"));
            }
        }
    }
    if requests.is_empty() {
        return Err(SourceError::file(file, "no query: give at least one line NAME TYPE"));
    }
    Ok(PreparedExchange {
        protocol: "dns",
        requests,
        order: RequestOrder::InTurn,
        tag: Some(EchoedTag { bytes: 2, request_offset: 0, reply_offset: 0 }),
        marks: vec![ReplyMark { offset: 2, mask: 0x80, value: 0x80 }],
        shortest_reply_bytes: HEADER_BYTES,
        code: Some(ReplyCode { offset: 3, mask: 0x0f, truncated: Some(TRUNCATED), name: code_name }),
        verify: None,
        notes: Vec::new(),
    })
}

/// The words of a line before a comment.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().take_while(|word| !word.starts_with([';', '#'])).collect()
}

/// A name, or why it is not accepted.
fn parse_name(text: &str) -> Result<Name<Vec<u8>>, &'static str> {
    if !text.is_ascii() {
        return Err("not ASCII: write other letters in their xn-- form or as \\DDD");
    }
    let long_name = "long name: it has at most 255 bytes on the wire";
    let parsed_name = text.parse::<Name<Vec<u8>>>();
    // The kind of an error shows only in its text.
    let name = parsed_name.map_err(|error| match error.to_string().as_str() {
        "empty label" => "empty label: a label has 1 to 63 bytes",
        "label length limit exceeded" => "long label: it has at most 63 bytes",
        "long domain name" => long_name,
        _ => r"bad character: write \DDD, up to 255, or \ and a character, but no \[ first in a label",
    })?;
    // The parser takes names of 256 bytes (domain 0.12.3).
    if name.len() > 255 { Err(long_name) } else { Ok(name) }
}

/// A record type, or why it is not accepted.
fn parse_type(text: &str) -> Result<Rtype, &'static str> {
    let unknown_type = "no record type: write a name such as A, AAAA or MX, or TYPE and its number";
    let kind: Rtype = text.parse().map_err(|_| unknown_type)?;
    match kind.to_int() {
        251 | 252 => Err("zone transfers go over TCP: ask for something else"),
        // Reserved (RFC 6895, section 3.1), OPT, TKEY and TSIG.
        0 | 41 | 249 | 250 => Err("no record type to ask for: it stands for no data in a zone"),
        _ => Ok(kind),
    }
}

fn query(name: &Name<Vec<u8>>, kind: Rtype, options: &DnsQueryOptions) -> Vec<u8> {
    let edns = options.edns_bytes.or(options.dnssec_ok.then_some(USUAL_EDNS_BYTES));
    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_rd(options.recursion_desired);
    let mut questions = message.question();
    questions.push((name, kind)).expect("room for a question");
    let mut records = questions.additional();
    if let Some(bytes) = edns {
        let fill_opt = |opt: &mut OptBuilder<'_, Vec<u8>>| {
            opt.set_udp_payload_size(bytes);
            opt.set_dnssec_ok(options.dnssec_ok);
            Ok(())
        };
        records.opt(fill_opt).expect("room for an OPT record");
    }
    records.finish()
}

fn code_name(code: u8) -> Option<&'static str> {
    // `domain` has no name for DSO Type Not Implemented (RFC 8490).
    Rcode::masked_from_int(code).to_mnemonic_str().or((code == 11).then_some("DSOTYPENI"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn first_query(line: &str, options: &DnsQueryOptions) -> Vec<u8> {
        from_text(line, "test", options).unwrap().requests.remove(0)
    }

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    /// Captured from kdig 3.2.6 with +noadflag. The message ids are 0, because tags replace them.
    #[test]
    fn queries_equal_captured_kdig_queries() {
        let plain = DnsQueryOptions::default();
        let captured = hex("000001000001000000000000076578616d706c6503636f6d0000010001");
        assert_eq!(first_query("example.com A", &plain), captured);
        assert_eq!(first_query("Example.COM. a", &plain).to_ascii_lowercase(), captured);
        let dnssec = DnsQueryOptions { edns_bytes: Some(1_232), dnssec_ok: true, ..plain };
        let captured = hex(concat!(
            "00000100000100000000000103612e62020178076578616d706c650000410001",
            "00002904d0000080000000"
        ));
        assert_eq!(first_query(r"a\.b.\001x.example TYPE65", &dnssec), captured);
        assert_eq!(
            first_query(r"a\.b.\001x.example HTTPS", &DnsQueryOptions { edns_bytes: None, ..dnssec }),
            captured
        );
        let iterative = DnsQueryOptions { recursion_desired: false, ..plain };
        assert_eq!(first_query(". NS", &iterative), hex("0000000000010000000000000000020001"));
    }

    #[test]
    fn query_files_may_have_comments_and_empty_lines() {
        let text = "; a file\n\n# of queries\nexample.com A ; with a remark\r\n  example.org\tAAAA\n";
        let exchange = from_text(text, "q", &DnsQueryOptions::default()).unwrap();
        assert_eq!(exchange.requests.len(), 2);
        assert_eq!(exchange.requests[1][exchange.requests[1].len() - 4..], [0, 28, 0, 1]);
    }

    #[test]
    fn errors_name_line_and_item_of_invalid_queries() {
        let long = format!("{} A", ["a"; 128].join("."));
        let longer_by_one = format!("{0}.{0}.{0}.{1}.x A", "x".repeat(63), "x".repeat(60));
        let label = format!("{}.example A", "x".repeat(64));
        for (line, message) in [
            ("example.com", "q, line 2: \"example.com\": no type behind the name"),
            ("example.com A IN", "q, line 2: \"IN\": surplus"),
            ("example.com AA", "q, line 2: \"AA\": no record type"),
            ("example.com TYPE65536", "q, line 2: \"TYPE65536\": no record type"),
            ("example.com AXFR", "q, line 2: \"AXFR\": zone transfers go over TCP"),
            ("example.com OPT", "q, line 2: \"OPT\": no record type to ask for"),
            ("a..b A", "q, line 2: \"a..b\": empty label"),
            (".a A", "q, line 2: \".a\": empty label"),
            (r"a\25 A", r#"q, line 2: "a\25": bad character"#),
            (r"a\256 A", r#"q, line 2: "a\256": bad character"#),
            (r"a\ A", r#"q, line 2: "a\": bad character"#),
            (r"\[a A", "bad character"),
            ("a\u{7f}.example A", "bad character"),
            ("b\u{fc}cher.example A", "not ASCII"),
            (&long, "long name"),
            (&longer_by_one, "long name"),
            (&label, "long label"),
        ] {
            let error = from_text(&format!("; first\n{line}\n"), "q", &DnsQueryOptions::default())
                .unwrap_err()
                .to_string();
            assert!(error.contains(message), "\"{error}\" does not contain \"{message}\"");
        }
        assert_eq!(
            from_text(";\n", "q", &DnsQueryOptions::default()).unwrap_err().to_string(),
            "q: no query: give at least one line NAME TYPE"
        );
        let small = DnsQueryOptions { edns_bytes: Some(511), ..DnsQueryOptions::default() };
        assert!(from_text(". A", "q", &small).unwrap_err().to_string().starts_with("EDNS buffer size: 511"));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_yields_queries_over_the_length_limit(text in "[ -~\n;#.\\\\]{0,200}") {
            if let Ok(exchange) = from_text(&text, "q", &DnsQueryOptions::default()) {
                prop_assert!(exchange.requests.iter().all(|query| query.len() <= HEADER_BYTES + 255 + 4));
            }
        }
    }
}
