//! The words of a record's data in wire form.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::super::lexer::ZoneWord;
use super::super::value;
use super::{F, RdataField, RecordType, number};

// Mnemonics of DNSSEC algorithms (RFC 4034, appendix A.1, and IANA's registry).
const ALGORITHMS: &[(u8, &str)] = &[
    (1, "RSAMD5"),
    (2, "DH"),
    (3, "DSA"),
    (5, "RSASHA1"),
    (6, "DSA-NSEC3-SHA1"),
    (7, "RSASHA1-NSEC3-SHA1"),
    (8, "RSASHA256"),
    (10, "RSASHA512"),
    (12, "ECC-GOST"),
    (13, "ECDSAP256SHA256"),
    (14, "ECDSAP384SHA384"),
    (15, "ED25519"),
    (16, "ED448"),
    (252, "INDIRECT"),
    (253, "PRIVATEDNS"),
    (254, "PRIVATEOID"),
];

// Types of certificates (RFC 4398, section 2.1).
const CERTIFICATES: &[(u16, &str)] = &[
    (1, "PKIX"),
    (2, "SPKI"),
    (3, "PGP"),
    (4, "IPKIX"),
    (5, "ISPKI"),
    (6, "IPGP"),
    (7, "ACPKIX"),
    (8, "IACPKIX"),
    (253, "URI"),
    (254, "OID"),
];

/// Why a word is wrong, or which word is missing.
pub(super) type RdataError = String;

/// The words of a record's data, and the data they make.
pub(in super::super) struct RdataWords<'a, I> {
    pub(in super::super) words: I,
    pub(in super::super) origin: &'a [u8],
    pub(in super::super) out: &'a mut Vec<u8>,
}

/// A number by its name, or as digits.
fn mnemonic<T: Copy + TryFrom<u64>>(mnemonics: &[(T, &str)], raw: &[u8]) -> Option<T> {
    let entry = mnemonics.iter().find(|(_, name)| name.as_bytes().eq_ignore_ascii_case(raw));
    entry.map(|(value, _)| *value).or_else(|| value::number(raw))
}

pub(super) fn parse_text<T: FromStr>(raw: &[u8]) -> Option<T> {
    std::str::from_utf8(raw).ok()?.parse().ok()
}

pub(super) fn unexpected_word(word: ZoneWord<'_>, expected: &str) -> RdataError {
    format!("\"{}\" is not {expected}", String::from_utf8_lossy(word.raw))
}

impl<'a, I: Iterator<Item = ZoneWord<'a>> + Clone> RdataWords<'_, I> {
    pub(in super::super) fn data(&mut self, kind: &RecordType) -> Result<(), RdataError> {
        for field in kind.fields {
            self.field(*field)?;
        }
        match self.words.next() {
            None => Ok(()),
            Some(word) => Err(format!("\"{}\" is too much", String::from_utf8_lossy(word.raw))),
        }
    }

    // Writes data given as `\# LENGTH HEX` (RFC 3597, section 5), without the first word.
    pub(in super::super) fn unknown(&mut self) -> Result<(), RdataError> {
        let length: u16 = self.value("a length in bytes", value::number)?;
        let start = self.out.len();
        if self.has_more() {
            self.decode_joined("hexadecimal digits", value::hex)?;
        }
        let byte_count = self.out.len() - start;
        if byte_count == usize::from(length) {
            Ok(())
        } else {
            Err(format!("{length} bytes are announced, {byte_count} given"))
        }
    }

    pub(super) fn has_more(&self) -> bool {
        self.words.clone().next().is_some()
    }

    pub(super) fn next(&mut self, expected: &str) -> Result<ZoneWord<'a>, RdataError> {
        self.words.next().ok_or_else(|| format!("{expected} is missing"))
    }

    pub(super) fn value<T>(
        &mut self,
        expected: &str,
        parse: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Result<T, RdataError> {
        let word = self.next(expected)?;
        parse(word.raw).ok_or_else(|| unexpected_word(word, expected))
    }

    /// Writes the bytes of a word.
    fn put<const N: usize>(
        &mut self,
        expected: &str,
        parse: impl FnOnce(&[u8]) -> Option<[u8; N]>,
    ) -> Result<(), RdataError> {
        let bytes = self.value(expected, parse)?;
        self.out.extend_from_slice(&bytes);
        Ok(())
    }

    // Writes the output of `decode` for a word; `false` from `decode` is an error.
    fn decode_word(
        &mut self,
        expected: &str,
        decode: impl FnOnce(&[u8], &mut Vec<u8>) -> bool,
    ) -> Result<(), RdataError> {
        let word = self.next(expected)?;
        if decode(word.raw, self.out) { Ok(()) } else { Err(unexpected_word(word, expected)) }
    }

    /// Like `decoded`, with a length byte in front.
    fn decode_counted(
        &mut self,
        expected: &str,
        decode: impl FnOnce(&[u8], &mut Vec<u8>) -> bool,
    ) -> Result<(), RdataError> {
        let length_at = self.out.len();
        self.out.push(0);
        self.decode_word(expected, decode)?;
        let length = self.out.len() - length_at - 1;
        self.out[length_at] =
            u8::try_from(length).map_err(|_| format!("{length} bytes are too many: at most 255"))?;
        Ok(())
    }

    /// Writes all remaining words as one.
    fn decode_joined(
        &mut self,
        expected: &str,
        decode: impl Fn(&[u8], &mut Vec<u8>) -> bool,
    ) -> Result<(), RdataError> {
        let first = self.next(expected)?;
        let mut joined_raw = first.raw.to_vec();
        self.words.by_ref().for_each(|word| joined_raw.extend_from_slice(word.raw));
        if decode(&joined_raw, self.out) {
            Ok(())
        } else {
            Err(unexpected_word(ZoneWord { raw: &joined_raw, ..first }, expected))
        }
    }

    pub(super) fn name(&mut self) -> Result<(), RdataError> {
        let word = self.next("a name")?;
        value::name(word.raw, word.quoted, self.origin, self.out)
            .map_err(|why| format!("{}: {why}", unexpected_word(word, "a name")))
    }

    fn text(&mut self, write: fn(&[u8], &mut Vec<u8>) -> Result<(), &'static str>) -> Result<(), RdataError> {
        let word = self.next("a text")?;
        write(word.raw, self.out).map_err(|why| format!("{}: {why}", unexpected_word(word, "a text")))
    }

    pub(super) fn field(&mut self, field: RdataField) -> Result<(), RdataError> {
        match field {
            F::Name => self.name(),
            F::U8 => self.put("a number up to 255", |raw| value::number(raw).map(u8::to_be_bytes)),
            F::U16 => self.put("a number up to 65535", |raw| value::number(raw).map(u16::to_be_bytes)),
            F::U32 => self.put("a number up to 4294967295", |raw| value::number(raw).map(u32::to_be_bytes)),
            F::Period => self.put("a time in seconds or with units, as 3600 or 1h", |raw| {
                value::period(raw).map(u32::to_be_bytes)
            }),
            F::Time => self.put("a time as YYYYMMDDHHMMSS or in seconds since 1970", |raw| {
                value::time(raw).map(u32::to_be_bytes)
            }),
            F::Ip4 => self.put("an IPv4 address", |raw| parse_text(raw).map(|ip: Ipv4Addr| ip.octets())),
            F::Ip6 => self.put("an IPv6 address", |raw| parse_text(raw).map(|ip: Ipv6Addr| ip.octets())),
            F::Type => self.put("a type of record", |raw| number(raw).map(u16::to_be_bytes)),
            F::Algorithm => self
                .put("an algorithm's number or name", |raw| mnemonic(ALGORITHMS, raw).map(u8::to_be_bytes)),
            F::Certificate => self.put("a certificate type's number or name", |raw| {
                mnemonic(CERTIFICATES, raw).map(u16::to_be_bytes)
            }),
            F::Text => self.text(value::text),
            F::LongText => self.text(value::bytes),
            F::Texts => {
                self.text(value::text)?;
                while self.has_more() {
                    self.text(value::text)?;
                }
                Ok(())
            }
            F::Tag => self.decode_counted("a tag of letters and digits", |raw, out| {
                out.extend_from_slice(raw);
                (1..=255).contains(&raw.len()) && raw.iter().all(u8::is_ascii_alphanumeric)
            }),
            F::Salt => self.decode_counted("a salt: hexadecimal digits or -", |raw, out| {
                raw == b"-" || value::hex(raw, out)
            }),
            F::Hash => self.decode_counted("a hash in base 32", value::base32),
            F::Hex => self.decode_joined("pairs of hexadecimal digits", value::hex),
            F::Base64 => self.decode_joined("base 64", value::base64),
            F::Eui(bytes) => self.decode_word("pairs of hexadecimal digits with - between", |raw, out| {
                let pairs: Vec<&[u8]> = raw.split(|byte| *byte == b'-').collect();
                pairs.len() == usize::from(bytes)
                    && pairs.iter().all(|pair| pair.len() == 2 && value::hex(pair, out))
            }),
            F::Locator => self.decode_word("four groups of hexadecimal digits", |raw, out| {
                let group = |raw: &[u8]| u16::from_str_radix(std::str::from_utf8(raw).ok()?, 16).ok();
                let groups: Option<Vec<u16>> = raw.split(|byte| *byte == b':').map(group).collect();
                let groups = groups.filter(|groups| groups.len() == 4).unwrap_or_default();
                groups.iter().for_each(|group| out.extend_from_slice(&group.to_be_bytes()));
                !groups.is_empty()
            }),
            F::Types => self.types(),
            F::Gateway => self.gateway(),
            F::Location => self.location(),
            F::Prefixes => self.prefixes(),
            F::Parameters => self.parameters(),
        }
    }

    /// Writes a bitmap, the lowest number in the highest bit.
    fn bitmap(&mut self, numbers: &[u16]) {
        let start = self.out.len();
        let bytes = numbers.iter().max().map_or(0, |max_number| usize::from(max_number / 8) + 1);
        self.out.resize(start + bytes, 0);
        for number in numbers {
            self.out[start + usize::from(number / 8)] |= 0x80 >> (number % 8);
        }
    }

    fn types(&mut self) -> Result<(), RdataError> {
        let mut types = Vec::new();
        while self.has_more() {
            types.push(self.value("a type of record", number)?);
        }
        types.sort_unstable();
        for window in types.chunk_by(|a, b| a >> 8 == b >> 8) {
            let low_bytes: Vec<u16> = window.iter().map(|rtype| rtype & 0xff).collect();
            self.out
                .extend_from_slice(&[(window[0] >> 8) as u8, (low_bytes[low_bytes.len() - 1] / 8 + 1) as u8]);
            self.bitmap(&low_bytes);
        }
        Ok(())
    }

    fn gateway(&mut self) -> Result<(), RdataError> {
        let kind: u8 = self.value("a type of gateway, 0 to 3", value::number)?;
        self.out.push(kind);
        self.put("an algorithm's number", |raw| value::number(raw).map(u8::to_be_bytes))?;
        match kind {
            0 => self.decode_word("\".\", as gateways of type 0 are", |raw, _| raw == b"."),
            1 => self.field(F::Ip4),
            2 => self.field(F::Ip6),
            3 => self.name(),
            _ => Err("the type of gateway is 0 to 3".into()),
        }
    }
}
