//! The data of records: the crate `domain` reads its text form.

use std::borrow::Cow;
use std::iter::{Enumerate, Peekable};

use domain::base::iana::{Rtype, SecurityAlgorithm};
use domain::base::name::Name;
use domain::base::rdata::ComposeRecordData;
use domain::base::scan::{ConvertSymbols, EntrySymbol, Scanner, ScannerError, StrError, Symbol};
use domain::base::{CharStr, ParseRecordData};
use domain::dep::octseq::parse::Parser;
use domain::dep::octseq::str::Str;
use domain::rdata::ZoneRecordData;

use super::lexer::ZoneWord;
use super::value;

/// Correct data of the types with a text form, for error messages.
const EXAMPLES: &[(Rtype, &str)] = &[
    (Rtype::A, "192.0.2.1"),
    (Rtype::AAAA, "2001:db8::1"),
    (Rtype::CAA, "0 issue \"ca.example.net\""),
    (Rtype::CDNSKEY, KEY),
    (Rtype::CDS, DIGEST),
    (Rtype::CNAME, "www.example.com."),
    (Rtype::DNSKEY, KEY),
    (Rtype::DS, DIGEST),
    (Rtype::HINFO, "\"PC\" \"Linux\""),
    (Rtype::HTTPS, SERVICE),
    (Rtype::IPSECKEY, "10 1 2 192.0.2.38 AQNRU3mG"),
    (Rtype::MB, "mail.example.com."),
    (Rtype::MD, "mail.example.com."),
    (Rtype::MF, "mail.example.com."),
    (Rtype::MG, "user.example.com."),
    (Rtype::MINFO, "owner.example.com. errors.example.com."),
    (Rtype::MR, "user.example.com."),
    (Rtype::MX, "10 mail.example.com."),
    (Rtype::NAPTR, "100 10 \"S\" \"SIP+D2U\" \"\" _sip._udp.example.com."),
    (Rtype::NS, "ns1.example.com."),
    (Rtype::NSEC, "next.example.com. A MX RRSIG NSEC"),
    (Rtype::NSEC3, "1 0 0 - 2t7b4g4vsa5smi47k61mv5bv1a22bojr A RRSIG"),
    (Rtype::NSEC3PARAM, "1 0 0 -"),
    (Rtype::OPENPGPKEY, "mQENBFVHm5sBCADR"),
    (Rtype::PTR, "www.example.com."),
    (Rtype::RP, "admin.example.com. about.example.com."),
    (Rtype::RRSIG, "A 13 3 3600 20300101000000 20260101000000 12345 example.com. c2lnbmF0dXJl"),
    (Rtype::SOA, "ns1.example.com. hostmaster.example.com. 2026010100 2h 30m 2w 5m"),
    (Rtype::SRV, "10 20 5060 sip.example.com."),
    (Rtype::SSHFP, "4 2 0123456789abcdef"),
    (Rtype::SVCB, SERVICE),
    (Rtype::TLSA, "3 1 1 0123456789abcdef"),
    (Rtype::TXT, "\"v=spf1 -all\""),
    (Rtype::ZONEMD, "2026010100 1 1 0123456789abcdef0123456789abcdef"),
];
const DIGEST: &str = "12345 13 2 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const KEY: &str = "257 3 13 oJMRESz5E4gYzS/q6XDrvU1qMPYIjCWzJaOau8XNEZeqCYKD5ar0IRd8KqXXFJkqmVfRvMGP";
const SERVICE: &str = "1 . alpn=h2,h3 port=443 ipv4hint=192.0.2.1";

/// Writes the data of a record from its words, or from bytes (RFC 3597, section 5).
pub(super) fn write<'a>(
    rtype: Rtype,
    words: impl Iterator<Item = ZoneWord<'a>>,
    origin: &'a [u8],
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let form = text_form(rtype);
    write_as(form, words, origin, out).map_err(|why| {
        let example = EXAMPLES.iter().find(|(known, _)| *known == form).map(|(_, example)| *example);
        match example {
            Some(example) => format!("{why}; it should look like \"{rtype} {example}\""),
            None => format!(
                "{why}; write the data as bytes, \"{rtype} \\# NUMBER HEX\", such as \\# 4 01020304 (RFC 3597)"
            ),
        }
    })
}

/// A type that `domain` reads, and whose data has the same form.
fn text_form(rtype: Rtype) -> Rtype {
    match rtype {
        Rtype::AFSDB | Rtype::KX | Rtype::LP | Rtype::RT => Rtype::MX,
        Rtype::AVC | Rtype::RESINFO | Rtype::SPF => Rtype::TXT,
        Rtype::DHCID => Rtype::OPENPGPKEY,
        Rtype::KEY => Rtype::DNSKEY,
        Rtype::NSAPPTR => Rtype::PTR,
        Rtype::SIG => Rtype::RRSIG,
        Rtype::SMIMEA => Rtype::TLSA,
        _ => rtype,
    }
}

fn write_as<'a>(
    form: Rtype,
    words: impl Iterator<Item = ZoneWord<'a>>,
    origin: &'a [u8],
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let words = words.enumerate().peekable();
    let mut scanner = WordScanner { words, form, origin, is_generic: false, last: None };
    let data = ZoneRecordData::scan(form, &mut scanner).map_err(|error| {
        let why = match error.to_string() {
            why if why.contains("incorrect length") => {
                "the number after \\# is not the number of bytes".to_owned()
            }
            why if why.contains("too long") => format!("{why}; split it over several records"),
            why => why,
        };
        match scanner.last {
            Some(word) => format!("\"{}\": {why}", String::from_utf8_lossy(word)),
            None => why,
        }
    })?;
    if let Some((_, word)) = scanner.words.next() {
        return Err(format!("\"{}\" is too much", String::from_utf8_lossy(word.raw)));
    }
    let Ok(()) = data.compose_rdata(out);
    // `domain` accepts both (RFC 1035, section 3.3.14; RFC 8659, section 4.1).
    if matches!((form, &out[..]), (Rtype::TXT, []) | (Rtype::CAA, [_, 0, ..])) {
        return Err("its data has no text, or its tag is empty".to_owned());
    }
    if scanner.is_generic && !is_of_form(form, out) {
        let why = "its data cannot be that of the type: it is too short, too long, or has no name where one \
                   belongs";
        return Err(why.to_owned());
    }
    Ok(())
}

/// Whether bytes are data of this form, without compressed names.
fn is_of_form(form: Rtype, data: &[u8]) -> bool {
    // `domain` does not know these (RFC 1876, 6742 and 7043).
    let length = match form {
        Rtype::LOC => Some(16),
        Rtype::EUI48 | Rtype::L32 => Some(6),
        Rtype::EUI64 => Some(8),
        Rtype::NID | Rtype::L64 => Some(10),
        _ => None,
    };
    if length.is_some_and(|length| data.len() != length) {
        return false;
    }
    let mut parser = Parser::from_ref(data);
    let Ok(Some(parsed)) = ZoneRecordData::parse_rdata(form, &mut parser) else { return false };
    let mut uncompressed = Vec::new();
    let Ok(()) = parsed.compose_rdata(&mut uncompressed);
    parser.remaining() == 0 && uncompressed == data
}

/// The words of a record's data.
struct WordScanner<'a, I: Iterator> {
    words: Peekable<Enumerate<I>>,
    form: Rtype,
    origin: &'a [u8],
    /// Whether the data is given as bytes.
    is_generic: bool,
    /// `None` if a word was missing.
    last: Option<&'a [u8]>,
}

impl<'a, I: Iterator<Item = ZoneWord<'a>>> WordScanner<'a, I> {
    fn next(&mut self) -> Result<Cow<'a, [u8]>, StrError> {
        let next = self.words.next();
        self.last = next.map(|(_, word)| word.raw);
        let (index, word) = next.ok_or_else(|| StrError::custom("a word is missing"))?;
        // Where `domain` reads digits only.
        let number = match (self.form, index) {
            _ if self.is_generic => None,
            (Rtype::SOA, 3..=6) | (Rtype::RRSIG, 3) => value::period(word.raw),
            (Rtype::DS | Rtype::CDS | Rtype::RRSIG, 1) | (Rtype::DNSKEY | Rtype::CDNSKEY, 2) => {
                SecurityAlgorithm::from_mnemonic(word.raw).map(|algorithm| algorithm.to_int().into())
            }
            _ => None,
        };
        Ok(number.map_or(Cow::Borrowed(word.raw), |number| number.to_string().into_bytes().into()))
    }
}

impl<'a, I: Iterator<Item = ZoneWord<'a>>> Scanner for WordScanner<'a, I> {
    type Octets = Vec<u8>;
    type OctetsBuilder = Vec<u8>;
    type Name = Name<Vec<u8>>;
    type Error = StrError;

    fn has_space(&self) -> bool {
        false
    }

    fn continues(&mut self) -> bool {
        self.words.peek().is_some()
    }

    fn scan_symbols<F>(&mut self, mut op: F) -> Result<(), StrError>
    where
        F: FnMut(Symbol) -> Result<(), StrError>,
    {
        let word = self.next()?;
        let mut remaining = &word[..];
        if remaining.is_empty() {
            return Err(StrError::custom("it is empty"));
        }
        while !remaining.is_empty() {
            let (byte, length) = value::unescape_byte(remaining).map_err(StrError::custom)?;
            let is_plain = length == 1 && byte.is_ascii();
            op(if is_plain { Symbol::Char(byte.into()) } else { Symbol::DecimalEscape(byte) })?;
            remaining = &remaining[length..];
        }
        Ok(())
    }

    fn scan_entry_symbols<F>(&mut self, mut op: F) -> Result<(), StrError>
    where
        F: FnMut(EntrySymbol) -> Result<(), StrError>,
    {
        while self.continues() {
            self.scan_symbols(|symbol| op(symbol.into()))?;
            op(EntrySymbol::EndOfToken)?;
        }
        Ok(())
    }

    fn convert_token<C: ConvertSymbols<Symbol, StrError>>(
        &mut self,
        mut convert: C,
    ) -> Result<Vec<u8>, StrError> {
        let mut out = Vec::new();
        self.scan_symbols(|symbol| {
            out.extend_from_slice(convert.process_symbol(symbol)?.unwrap_or_default());
            Ok(())
        })?;
        out.extend_from_slice(convert.process_tail()?.unwrap_or_default());
        Ok(out)
    }

    fn convert_entry<C: ConvertSymbols<EntrySymbol, StrError>>(
        &mut self,
        mut convert: C,
    ) -> Result<Vec<u8>, StrError> {
        // Only `\# 0` has no digits.
        if !self.is_generic && !self.continues() {
            self.next()?;
        }
        let mut out = Vec::new();
        self.scan_entry_symbols(|symbol| {
            out.extend_from_slice(convert.process_symbol(symbol)?.unwrap_or_default());
            Ok(())
        })?;
        out.extend_from_slice(convert.process_tail()?.unwrap_or_default());
        Ok(out)
    }

    fn scan_octets(&mut self) -> Result<Vec<u8>, StrError> {
        let mut out = Vec::new();
        value::bytes(&self.next()?, &mut out).map_err(StrError::custom)?;
        Ok(out)
    }

    fn scan_svcb_octets(&mut self) -> Result<Vec<u8>, StrError> {
        let octets = self.scan_octets()?;
        let mut parts = octets.splitn(2, |byte| *byte == b'=');
        let is_list =
            matches!(parts.next(), Some(b"alpn" | b"key1" | b"ipv4hint" | b"ipv6hint" | b"mandatory"));
        // `domain` skips or accepts these, which RFC 9460 forbids.
        if is_list && parts.next().is_some_and(|list| list.split(|byte| *byte == b',').any(<[u8]>::is_empty))
        {
            return Err(StrError::custom("a list has an empty item, such as two commas in a row"));
        }
        Ok(octets)
    }

    fn scan_ascii_str<F, T>(&mut self, op: F) -> Result<T, StrError>
    where
        F: FnOnce(&str) -> Result<T, StrError>,
    {
        let text = self.scan_string()?;
        if text.is_ascii() { op(&text) } else { Err(StrError::custom("it is not ASCII")) }
    }

    fn scan_name(&mut self) -> Result<Name<Vec<u8>>, StrError> {
        let is_quoted = self.words.peek().is_some_and(|(_, word)| word.quoted);
        let mut name = Vec::new();
        value::name(&self.next()?, is_quoted, self.origin, &mut name).map_err(StrError::custom)?;
        Name::from_octets(name).map_err(|_| StrError::custom("it is not a name"))
    }

    fn scan_charstr(&mut self) -> Result<CharStr<Vec<u8>>, StrError> {
        CharStr::from_octets(self.scan_octets()?).map_err(|_| {
            StrError::custom("a text has at most 255 bytes; write more as several texts in quotes")
        })
    }

    fn scan_string(&mut self) -> Result<Str<Vec<u8>>, StrError> {
        Str::from_utf8(self.scan_octets()?).map_err(|_| StrError::custom("it is not UTF-8"))
    }

    fn scan_charstr_entry(&mut self) -> Result<Vec<u8>, StrError> {
        let mut out = Vec::new();
        while self.continues() {
            let Ok(()) = self.scan_charstr()?.compose(&mut out);
        }
        Ok(out)
    }

    fn scan_opt_unknown_marker(&mut self) -> Result<bool, StrError> {
        let marker = self.words.next_if(|(_, word)| word.raw == b"\\#" && !word.quoted);
        self.is_generic = marker.is_some();
        Ok(self.is_generic)
    }

    fn octets_builder(&mut self) -> Result<Vec<u8>, StrError> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::super::lexer::{ZoneEntry, ZoneLexer};
    use super::*;

    fn wire_data(rtype: Rtype, text: &str) -> Result<Vec<u8>, String> {
        let mut entry = ZoneEntry::default();
        let _ = ZoneLexer::new(format!("{text}\n").as_bytes()).next(&mut entry);
        let mut out = Vec::new();
        write(rtype, entry.words(), b"\x01O\0", &mut out).map(|()| out)
    }

    #[test]
    fn examples_are_correct() {
        for (rtype, example) in EXAMPLES {
            wire_data(*rtype, example).unwrap_or_else(|why| panic!("{rtype}: {why}"));
        }
    }

    #[test]
    fn record_data_is_encoded_per_rfc() {
        let all = [
            (Rtype::MX, "10 @", &b"\0\x0a\x01O\0"[..]),
            (Rtype::KX, "10 a.", b"\0\x0a\x01a\0"),
            (Rtype::NSEC, "@ A WKS", b"\x01O\0\0\x02\x40\x10"),
            (
                Rtype::HTTPS,
                "1 . port=53 alpn=\"h2,h3\"",
                b"\0\x01\0\0\x01\0\x06\x02h2\x02h3\0\x03\0\x02\0\x35",
            ),
            (Rtype::CAA, "0 issue \"a;b\"", b"\0\x05issuea;b"),
            (Rtype::DS, "1 ECDSAP256SHA256 2 00 01", b"\0\x01\x0d\x02\0\x01"),
            (Rtype::KEY, "256 3 RSASHA256 AA ==", b"\x01\0\x03\x08\0"),
            (Rtype::TXT, "\"\t\" \\200 \u{fc}", b"\x01\t\x01\xc8\x02\xc3\xbc"),
            (Rtype::IPSECKEY, "10 3 2 a AAAA", b"\x0a\x03\x02\x01a\x01O\0\0\0\0"),
            (
                Rtype::SIG,
                "A RSASHA1 1 1h 19700101000001 2 3 @ AAAA",
                b"\0\x01\x05\x01\0\0\x0e\x10\0\0\0\x01\0\0\0\x02\0\x03\x01O\0\0\0\0",
            ),
            (Rtype::CERT, "\\# 3 00 0102", b"\0\x01\x02"),
        ];
        for (rtype, text, data) in all {
            assert_eq!(wire_data(rtype, text).as_deref(), Ok(data), "{rtype} {text}");
        }
    }

    #[test]
    fn errors_name_the_invalid_part_of_record_data() {
        let long = "a".repeat(256);
        let all = [
            (
                Rtype::A,
                "192.0.2.300",
                "\"192.0.2.300\": expected IPv4 address; it should look like \"A 192.0.2.1\"",
            ),
            (Rtype::MX, "10", "a word is missing"),
            (Rtype::MX, "10 a..b", "two dots"),
            (Rtype::MX, "\"\" a", "empty"),
            (Rtype::A, "192.0.2.1 x", "\"x\" is too much"),
            (Rtype::SOA, "a b 1 2 3 4 1y", "\"1y\": expected decimal number"),
            (Rtype::SOA, "a b 1h 2 3 4 5", "\"1h\": expected decimal number"),
            (Rtype::DS, "1 13 2 0", "uneven number of hex digits"),
            (Rtype::DS, "1 13 2", "a word is missing"),
            (Rtype::HTTPS, "1 . port=1 port=2", "duplicate"),
            (Rtype::HTTPS, "1 . alpn=h2,", "empty item"),
            (Rtype::CAA, "0 \"\" \"x\"", "its tag is empty"),
            (Rtype::AFSDB, "x", "it should look like \"AFSDB 10 mail.example.com.\""),
            (Rtype::TXT, &long, "at most 255 bytes"),
            (Rtype::TXT, &"a ".repeat(40_000), "too long"),
            (
                Rtype::LOC,
                "52 22 N 4 53 E 0m",
                "write the data as bytes, \"LOC \\# NUMBER HEX\", such as \\# 4 01020304 (RFC 3597)",
            ),
        ];
        for (rtype, text, part) in all {
            let why = wire_data(rtype, text).expect_err(text);
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
