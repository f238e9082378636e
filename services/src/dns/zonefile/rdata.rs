//! The data of records: how each type is written in a zone file, and whether bytes can be its data.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::lexer::ZoneWord;
use super::value;

/// A part of a record's data, in the order of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RdataField {
    Name,
    U8,
    U16,
    U32,
    /// Seconds, with units or without.
    Period,
    Time,
    Ip4,
    Ip6,
    Text,
    /// A text that may be left out.
    OptionalText,
    /// One text or more.
    Texts,
    /// A text without a length, to the end.
    LongText,
    Tag,
    Hex,
    Base64,
    /// Hexadecimal digits with a length, or `-`.
    Salt,
    /// Base 32 with a length.
    Hash,
    Type,
    /// Types, as a bitmap (RFC 4034, section 4.1.2).
    Types,
    Algorithm,
    Certificate,
    Location,
    Prefixes,
    Parameters,
    /// Of IPSECKEY: type of gateway, algorithm, gateway.
    Gateway,
    /// Of AMTRELAY: discovery bit, type of relay, relay.
    Relay,
    Identity,
    Nsap,
    /// So many bytes as pairs of hexadecimal digits with `-` between.
    Eui(u8),
    /// Four groups of hexadecimal digits.
    Locator,
    Services,
}

use RdataField as F;

/// A type of record.
#[derive(Debug)]
pub(super) struct RecordType {
    pub(super) rtype: u16,
    pub(super) name: &'static str,
    fields: &'static [RdataField],
    /// Data that is right.
    pub(super) example: &'static str,
}

const fn kind(
    rtype: u16,
    name: &'static str,
    fields: &'static [RdataField],
    example: &'static str,
) -> RecordType {
    RecordType { rtype, name, fields, example }
}

/// By number. What is not here can be written as RFC 3597 has it.
static KINDS: &[RecordType] = &[
    kind(1, "A", &[F::Ip4], "192.0.2.1"),
    kind(2, "NS", &[F::Name], "ns1.example.com."),
    kind(3, "MD", &[F::Name], "mail.example.com."),
    kind(4, "MF", &[F::Name], "mail.example.com."),
    kind(5, "CNAME", &[F::Name], "www.example.com."),
    kind(
        6,
        "SOA",
        &[F::Name, F::Name, F::U32, F::Period, F::Period, F::Period, F::Period],
        "ns1.example.com. hostmaster.example.com. 2026010100 2h 30m 2w 5m",
    ),
    kind(7, "MB", &[F::Name], "mail.example.com."),
    kind(8, "MG", &[F::Name], "user.example.com."),
    kind(9, "MR", &[F::Name], "user.example.com."),
    kind(11, "WKS", &[F::Ip4, F::Services], "192.0.2.1 6 25 80"),
    kind(12, "PTR", &[F::Name], "www.example.com."),
    kind(13, "HINFO", &[F::Text, F::Text], "\"PC\" \"Linux\""),
    kind(14, "MINFO", &[F::Name, F::Name], "owner.example.com. errors.example.com."),
    kind(15, "MX", &[F::U16, F::Name], "10 mail.example.com."),
    kind(16, "TXT", &[F::Texts], "\"v=spf1 -all\""),
    kind(17, "RP", &[F::Name, F::Name], "admin.example.com. about.example.com."),
    kind(18, "AFSDB", &[F::U16, F::Name], "1 afs.example.com."),
    kind(19, "X25", &[F::Text], "311061700956"),
    kind(20, "ISDN", &[F::Text, F::OptionalText], "150862028003217 004"),
    kind(21, "RT", &[F::U16, F::Name], "10 relay.example.com."),
    kind(22, "NSAP", &[F::Nsap], "0x47.0005.80.005a00.0000.0001.e133.ffffff000161.00"),
    kind(23, "NSAP-PTR", &[F::Name], "host.example.com."),
    kind(24, "SIG", SIGNATURE, SIGNATURE_EXAMPLE),
    kind(25, "KEY", KEY, KEY_EXAMPLE),
    kind(26, "PX", &[F::U16, F::Name, F::Name], "10 map822.example.com. mapx400.example.com."),
    kind(27, "GPOS", &[F::Text, F::Text, F::Text], "-32.6882 116.8652 10.0"),
    kind(28, "AAAA", &[F::Ip6], "2001:db8::1"),
    kind(29, "LOC", &[F::Location], "52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m"),
    kind(33, "SRV", &[F::U16, F::U16, F::U16, F::Name], "10 20 5060 sip.example.com."),
    kind(
        35,
        "NAPTR",
        &[F::U16, F::U16, F::Text, F::Text, F::Text, F::Name],
        "100 10 \"S\" \"SIP+D2U\" \"\" _sip._udp.example.com.",
    ),
    kind(36, "KX", &[F::U16, F::Name], "10 kx.example.com."),
    kind(37, "CERT", &[F::Certificate, F::U16, F::Algorithm, F::Base64], "PKIX 12345 8 MIIB"),
    kind(39, "DNAME", &[F::Name], "example.net."),
    kind(42, "APL", &[F::Prefixes], "1:192.0.2.0/24 !1:192.0.2.64/28"),
    kind(43, "DS", DELEGATION, DELEGATION_EXAMPLE),
    kind(44, "SSHFP", &[F::U8, F::U8, F::Hex], "4 2 0123456789abcdef"),
    kind(45, "IPSECKEY", &[F::U8, F::Gateway, F::Base64], "10 1 2 192.0.2.38 AQNRU3mG"),
    kind(46, "RRSIG", SIGNATURE, SIGNATURE_EXAMPLE),
    kind(47, "NSEC", &[F::Name, F::Types], "next.example.com. A MX RRSIG NSEC"),
    kind(48, "DNSKEY", KEY, KEY_EXAMPLE),
    kind(49, "DHCID", &[F::Base64], "AAIBY2/AuCccgoJbsaxcQc9TUapptP69lOjxfNuVAA2kjEA="),
    kind(
        50,
        "NSEC3",
        &[F::U8, F::U8, F::U16, F::Salt, F::Hash, F::Types],
        "1 0 0 - 2t7b4g4vsa5smi47k61mv5bv1a22bojr A RRSIG",
    ),
    kind(51, "NSEC3PARAM", &[F::U8, F::U8, F::U16, F::Salt], "1 0 0 -"),
    kind(52, "TLSA", &[F::U8, F::U8, F::U8, F::Hex], "3 1 1 0123456789abcdef"),
    kind(53, "SMIMEA", &[F::U8, F::U8, F::U8, F::Hex], "3 0 0 0123456789abcdef"),
    kind(55, "HIP", &[F::Identity], "2 200100107B1A74DF365639CC39F1D578 AwEAAbdx rvs.example.com."),
    kind(59, "CDS", DELEGATION, DELEGATION_EXAMPLE),
    kind(60, "CDNSKEY", KEY, KEY_EXAMPLE),
    kind(61, "OPENPGPKEY", &[F::Base64], "mQENBFVHm5sBCADR"),
    kind(62, "CSYNC", &[F::U32, F::U16, F::Types], "66 3 A NS AAAA"),
    kind(63, "ZONEMD", &[F::U32, F::U8, F::U8, F::Hex], "2026010100 1 1 0123456789abcdef0123456789abcdef"),
    kind(64, "SVCB", SERVICE, SERVICE_EXAMPLE),
    kind(65, "HTTPS", SERVICE, SERVICE_EXAMPLE),
    kind(99, "SPF", &[F::Texts], "\"v=spf1 -all\""),
    kind(104, "NID", &[F::U16, F::Locator], "10 0014:4fff:ff20:ee64"),
    kind(105, "L32", &[F::U16, F::Ip4], "10 192.0.2.0"),
    kind(106, "L64", &[F::U16, F::Locator], "10 2001:0db8:1140:1000"),
    kind(107, "LP", &[F::U16, F::Name], "10 l64.example.com."),
    kind(108, "EUI48", &[F::Eui(6)], "00-00-5e-00-53-2a"),
    kind(109, "EUI64", &[F::Eui(8)], "00-00-5e-ef-10-00-00-2a"),
    kind(256, "URI", &[F::U16, F::U16, F::LongText], "10 1 \"https://www.example.com/\""),
    kind(257, "CAA", &[F::U8, F::Tag, F::LongText], "0 issue \"ca.example.net\""),
    kind(258, "AVC", &[F::Texts], "\"app-name:WOLFGANG|app-class:OAM\""),
    kind(260, "AMTRELAY", &[F::U8, F::Relay], "10 0 1 192.0.2.1"),
    kind(261, "RESINFO", &[F::Texts], "qnamemin exterr=15-17"),
];

const SIGNATURE: &[RdataField] =
    &[F::Type, F::Algorithm, F::U8, F::Period, F::Time, F::Time, F::U16, F::Name, F::Base64];
const SIGNATURE_EXAMPLE: &str = "A 13 3 3600 20300101000000 20260101000000 12345 example.com. c2lnbmF0dXJl";
const KEY: &[RdataField] = &[F::U16, F::U8, F::Algorithm, F::Base64];
const KEY_EXAMPLE: &str = "257 3 13 oJMRESz5E4gYzS/q6XDrvU1qMPYIjCWzJaOau8XNEZeqCYKD5ar0IRd8KqXXFJkqmVfRvMGP";
const DELEGATION: &[RdataField] = &[F::U16, F::Algorithm, F::U8, F::Hex];
const DELEGATION_EXAMPLE: &str =
    "12345 13 2 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const SERVICE: &[RdataField] = &[F::U16, F::Name, F::Parameters];
const SERVICE_EXAMPLE: &str = "1 . alpn=h2,h3 port=443 ipv4hint=192.0.2.1";

/// The type with this number, if it can be written by name.
pub(super) fn by_number(rtype: u16) -> Option<&'static RecordType> {
    KINDS.binary_search_by_key(&rtype, |kind| kind.rtype).ok().map(|at| &KINDS[at])
}

/// A type's number, by its name or as `TYPE123` (RFC 3597, section 5).
pub(super) fn number(raw: &[u8]) -> Option<u16> {
    if let Some(kind) = KINDS.iter().find(|kind| kind.name.as_bytes().eq_ignore_ascii_case(raw)) {
        return Some(kind.rtype);
    }
    let (start, digits) = raw.split_at_checked(4)?;
    start.eq_ignore_ascii_case(b"TYPE").then(|| value::number(digits)).flatten()
}

pub(super) fn type_name(rtype: u16) -> String {
    by_number(rtype).map_or_else(|| format!("TYPE{rtype}"), |kind| kind.name.to_owned())
}

/// Mnemonics of DNSSEC algorithms (RFC 4034, appendix A.1, and IANA's registry).
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

/// Types of certificates (RFC 4398, section 2.1).
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

/// Keys of services (RFC 9460, section 14.3.2), by number.
const KEYS: [&str; 9] =
    ["mandatory", "alpn", "no-default-alpn", "port", "ipv4hint", "ech", "ipv6hint", "dohpath", "ohttp"];

/// What is wrong with a word, or that one is missing.
pub(super) type RdataError = String;

/// The words of a record's data as they are used up.
pub(super) struct RdataWords<'a, I> {
    pub(super) words: I,
    pub(super) origin: &'a [u8],
    pub(super) out: &'a mut Vec<u8>,
}

fn mnemonic<T: Copy + TryFrom<u64>>(all: &[(T, &str)], raw: &[u8]) -> Option<T> {
    let named = all.iter().find(|(_, name)| name.as_bytes().eq_ignore_ascii_case(raw));
    named.map(|(value, _)| *value).or_else(|| value::number(raw))
}

fn unexpected_word(word: ZoneWord<'_>, expected: &str) -> RdataError {
    format!("\"{}\" is not {expected}", String::from_utf8_lossy(word.raw))
}

impl<'a, I: Iterator<Item = ZoneWord<'a>> + Clone> RdataWords<'_, I> {
    /// Writes the data of a type.
    pub(super) fn data(&mut self, kind: &RecordType) -> Result<(), RdataError> {
        for field in kind.fields {
            self.field(*field)?;
        }
        match self.words.next() {
            None => Ok(()),
            Some(word) => Err(format!("\"{}\" is too much", String::from_utf8_lossy(word.raw))),
        }
    }

    /// Writes data given as `\# LENGTH HEX` (RFC 3597, section 5), whose first word was read.
    pub(super) fn unknown(&mut self) -> Result<(), RdataError> {
        let length: u16 = self.value("a length in bytes", value::number)?;
        let start = self.out.len();
        if self.words.clone().next().is_some() {
            self.joined("hexadecimal digits", value::hex)?;
        }
        let given = self.out.len() - start;
        if given == usize::from(length) {
            Ok(())
        } else {
            Err(format!("{length} bytes are announced, {given} given"))
        }
    }

    fn next(&mut self, expected: &str) -> Result<ZoneWord<'a>, RdataError> {
        self.words.next().ok_or_else(|| format!("{expected} is missing"))
    }

    fn value<T>(&mut self, expected: &str, parse: impl FnOnce(&[u8]) -> Option<T>) -> Result<T, RdataError> {
        let word = self.next(expected)?;
        parse(word.raw).ok_or_else(|| unexpected_word(word, expected))
    }

    fn parsed<T: std::str::FromStr>(&mut self, expected: &str) -> Result<T, RdataError> {
        self.value(expected, |raw| std::str::from_utf8(raw).ok()?.parse().ok())
    }

    /// Writes all words that are left as one.
    fn joined(
        &mut self,
        expected: &str,
        decode: impl Fn(&[u8], &mut Vec<u8>) -> bool,
    ) -> Result<(), RdataError> {
        let first = self.next(expected)?;
        let mut all = first.raw.to_vec();
        self.words.by_ref().for_each(|word| all.extend_from_slice(word.raw));
        if decode(&all, self.out) {
            Ok(())
        } else {
            Err(unexpected_word(ZoneWord { raw: &all, ..first }, expected))
        }
    }

    fn name(&mut self) -> Result<(), RdataError> {
        let word = self.next("a name")?;
        value::name(word.raw, word.quoted, self.origin, self.out)
            .map_err(|why| format!("{}: {why}", unexpected_word(word, "a name")))
    }

    fn text(&mut self) -> Result<(), RdataError> {
        let word = self.next("a text")?;
        value::text(word.raw, self.out).map_err(|why| format!("{}: {why}", unexpected_word(word, "a text")))
    }

    fn u8(&mut self, expected: &str) -> Result<u8, RdataError> {
        let number = self.value(expected, value::number)?;
        self.out.push(number);
        Ok(number)
    }

    fn put<const N: usize>(&mut self, bytes: [u8; N]) -> Result<(), RdataError> {
        self.out.extend_from_slice(&bytes);
        Ok(())
    }

    fn field(&mut self, field: RdataField) -> Result<(), RdataError> {
        match field {
            F::Name => self.name(),
            F::U8 => self.u8("a number up to 255").map(drop),
            F::U16 => {
                let number: u16 = self.value("a number up to 65535", value::number)?;
                self.put(number.to_be_bytes())
            }
            F::U32 => {
                let number: u32 = self.value("a number up to 4294967295", value::number)?;
                self.put(number.to_be_bytes())
            }
            F::Period => {
                let seconds = self.value("a time in seconds or with units, as 3600 or 1h", value::period)?;
                self.put(seconds.to_be_bytes())
            }
            F::Time => {
                let time = self.value("a time as YYYYMMDDHHMMSS or in seconds since 1970", value::time)?;
                self.put(time.to_be_bytes())
            }
            F::Ip4 => {
                let address: Ipv4Addr = self.parsed("an IPv4 address")?;
                self.put(address.octets())
            }
            F::Ip6 => {
                let address: Ipv6Addr = self.parsed("an IPv6 address")?;
                self.put(address.octets())
            }
            F::Text => self.text(),
            F::OptionalText => {
                if self.words.clone().next().is_some() {
                    self.text()
                } else {
                    Ok(())
                }
            }
            F::Texts => {
                self.text()?;
                while self.words.clone().next().is_some() {
                    self.text()?;
                }
                Ok(())
            }
            F::LongText => {
                let word = self.next("a text")?;
                value::bytes(word.raw, self.out)
                    .map_err(|why| format!("{}: {why}", unexpected_word(word, "a text")))
            }
            F::Tag => {
                let word = self.next("a tag")?;
                let right =
                    (1..=255).contains(&word.raw.len()) && word.raw.iter().all(u8::is_ascii_alphanumeric);
                if !right {
                    return Err(unexpected_word(word, "a tag of letters and digits"));
                }
                self.out.push(word.raw.len() as u8);
                self.out.extend_from_slice(word.raw);
                Ok(())
            }
            F::Hex => self.joined("pairs of hexadecimal digits", value::hex),
            F::Base64 => self.joined("base 64", value::base64),
            F::Salt => {
                let at = self.out.len();
                self.out.push(0);
                let word = self.next("a salt")?;
                if word.raw != b"-" && !value::hex(word.raw, self.out) {
                    return Err(unexpected_word(word, "a salt: hexadecimal digits or -"));
                }
                self.length_at(at)
            }
            F::Hash => {
                let at = self.out.len();
                self.out.push(0);
                let word = self.next("a hash")?;
                if !value::base32(word.raw, self.out) {
                    return Err(unexpected_word(word, "a hash in base 32"));
                }
                self.length_at(at)
            }
            F::Type => {
                let rtype = self.value("a type of record", number)?;
                self.put(rtype.to_be_bytes())
            }
            F::Types => self.types(),
            F::Algorithm => {
                let algorithm =
                    self.value("an algorithm's number or name", |raw| mnemonic(ALGORITHMS, raw))?;
                self.put([algorithm])
            }
            F::Certificate => {
                let certificate =
                    self.value("a certificate type's number or name", |raw| mnemonic(CERTIFICATES, raw))?;
                self.put(certificate.to_be_bytes())
            }
            F::Location => self.location(),
            F::Prefixes => self.prefixes(),
            F::Parameters => self.parameters(),
            F::Gateway => {
                let kind = self.u8("a type of gateway, 0 to 3")?;
                self.u8("an algorithm's number")?;
                self.gateway(kind)
            }
            F::Relay => {
                let discovery: u8 = self.value("the discovery bit, 0 or 1", value::number)?;
                let kind: u8 = self.value("a type of relay, 0 to 3", value::number)?;
                if discovery > 1 || kind > 3 {
                    return Err("the discovery bit is 0 or 1, the type of relay 0 to 3".into());
                }
                self.out.push(discovery << 7 | kind);
                if kind == 0 && self.words.clone().next().is_none() { Ok(()) } else { self.gateway(kind) }
            }
            F::Identity => self.identity(),
            F::Nsap => {
                let word = self.next("an NSAP address")?;
                let digits: Vec<u8> = word.raw.iter().copied().filter(|byte| *byte != b'.').collect();
                match digits.split_at_checked(2) {
                    Some((b"0x" | b"0X", digits)) if !digits.is_empty() && value::hex(digits, self.out) => {
                        Ok(())
                    }
                    _ => Err(unexpected_word(word, "0x and pairs of hexadecimal digits")),
                }
            }
            F::Eui(bytes) => {
                let word = self.next("an address")?;
                let pairs: Vec<&[u8]> = word.raw.split(|byte| *byte == b'-').collect();
                let right = pairs.len() == usize::from(bytes)
                    && pairs.iter().all(|pair| pair.len() == 2 && value::hex(pair, self.out));
                if right {
                    Ok(())
                } else {
                    Err(unexpected_word(word, "pairs of hexadecimal digits with - between"))
                }
            }
            F::Locator => {
                let word = self.next("four groups of hexadecimal digits")?;
                let groups: Vec<&[u8]> = word.raw.split(|byte| *byte == b':').collect();
                let group = |raw: &[u8]| u16::from_str_radix(std::str::from_utf8(raw).ok()?, 16).ok();
                let all: Option<Vec<u16>> = groups.iter().map(|raw| group(raw)).collect();
                let all = all
                    .filter(|all| all.len() == 4)
                    .ok_or_else(|| unexpected_word(word, "four groups of hexadecimal digits"))?;
                all.iter().for_each(|group| self.out.extend_from_slice(&group.to_be_bytes()));
                Ok(())
            }
            F::Services => {
                let protocol = self.value("a protocol: tcp, udp or a number", |raw| {
                    mnemonic(&[(6, "tcp"), (17, "udp")], raw)
                })?;
                self.out.push(protocol);
                let start = self.out.len();
                while self.words.clone().next().is_some() {
                    let port: u16 = self.value("a port's number", value::number)?;
                    let at = start + usize::from(port / 8);
                    if self.out.len() <= at {
                        self.out.resize(at + 1, 0);
                    }
                    self.out[at] |= 0x80 >> (port % 8);
                }
                Ok(())
            }
        }
    }

    /// Sets the length of what was written behind `at`.
    fn length_at(&mut self, at: usize) -> Result<(), RdataError> {
        let length = self.out.len() - at - 1;
        self.out[at] =
            u8::try_from(length).map_err(|_| format!("{length} bytes are too many: at most 255"))?;
        Ok(())
    }

    fn types(&mut self) -> Result<(), RdataError> {
        let mut types = Vec::new();
        while self.words.clone().next().is_some() {
            types.push(self.value("a type of record", number)?);
        }
        types.sort_unstable();
        for window in types.chunk_by(|a, b| a >> 8 == b >> 8) {
            let bytes = usize::from(window[window.len() - 1] & 0xff) / 8 + 1;
            let start = self.out.len() + 2;
            self.out.extend_from_slice(&[(window[0] >> 8) as u8, bytes as u8]);
            self.out.resize(start + bytes, 0);
            for rtype in window {
                self.out[start + usize::from(rtype & 0xff) / 8] |= 0x80 >> (rtype % 8);
            }
        }
        Ok(())
    }

    fn gateway(&mut self, kind: u8) -> Result<(), RdataError> {
        match kind {
            0 => {
                let word = self.next("a gateway of \".\"")?;
                if word.raw == b"." {
                    Ok(())
                } else {
                    Err(unexpected_word(word, "\".\", as gateways of type 0 are"))
                }
            }
            1 => self.field(F::Ip4),
            2 => self.field(F::Ip6),
            3 => self.name(),
            _ => Err("the type of gateway is 0 to 3".into()),
        }
    }

    /// Of HIP (RFC 8005): algorithm, identity tag, key, and servers.
    fn identity(&mut self) -> Result<(), RdataError> {
        let algorithm: u8 = self.value("an algorithm's number", value::number)?;
        let decoded = |word: ZoneWord<'_>, decode: fn(&[u8], &mut Vec<u8>) -> bool, expected| {
            let mut bytes = Vec::new();
            if decode(word.raw, &mut bytes) { Ok(bytes) } else { Err(unexpected_word(word, expected)) }
        };
        let tag =
            decoded(self.next("an identity tag")?, value::hex, "an identity tag in hexadecimal digits")?;
        let key = decoded(self.next("a key")?, value::base64, "a key in base 64")?;
        let length =
            u8::try_from(tag.len()).map_err(|_| "the identity tag is too long: at most 255 bytes")?;
        self.out.extend_from_slice(&[length, algorithm]);
        self.out.extend_from_slice(&(key.len() as u16).to_be_bytes());
        self.out.extend_from_slice(&tag);
        self.out.extend_from_slice(&key);
        while self.words.clone().next().is_some() {
            self.name()?;
        }
        Ok(())
    }

    /// Of LOC (RFC 1876, section 3).
    fn location(&mut self) -> Result<(), RdataError> {
        let mut angles = [0; 2];
        for (angle, (most, [plus, minus])) in angles.iter_mut().zip([(90, *b"NS"), (180, *b"EW")]) {
            let expected = "degrees, minutes, seconds and N or S, then the same and E or W";
            let (mut thousandths, mut parts) = (0i64, 0);
            *angle = loop {
                let word = self.next(expected)?;
                let sign = match word.raw {
                    [letter] if parts > 0 && letter.eq_ignore_ascii_case(&plus) => 1,
                    [letter] if parts > 0 && letter.eq_ignore_ascii_case(&minus) => -1,
                    raw => {
                        let unit = [3_600_000, 60_000, 1000]
                            .get(parts)
                            .ok_or_else(|| unexpected_word(word, expected))?;
                        let (value, limit) = match parts {
                            2 => (decimal(raw, 3), 59_999),
                            _ => (value::number(raw), if parts == 0 { most } else { 59 }),
                        };
                        let value = value
                            .filter(|value| *value <= limit)
                            .ok_or_else(|| unexpected_word(word, expected))?;
                        thousandths += if parts == 2 { value } else { value * unit };
                        parts += 1;
                        continue;
                    }
                };
                if thousandths > most * 3_600_000 {
                    return Err(format!("an angle is at most {most} degrees"));
                }
                break (0x8000_0000i64 + sign * thousandths) as u32;
            };
        }
        let meters = |raw: &[u8]| {
            let raw = raw.strip_suffix(b"m").or(raw.strip_suffix(b"M")).unwrap_or(raw);
            match raw.strip_prefix(b"-") {
                Some(raw) => decimal(raw, 2).map(|value| -value),
                None => decimal(raw, 2),
            }
        };
        let altitude = self
            .value("an altitude in meters, as -2.00m", |raw| u32::try_from(meters(raw)? + 10_000_000).ok())?;
        // The defaults of the RFC: 1 m, 10,000 m and 10 m.
        let mut sizes = [0x12, 0x16, 0x13];
        for size in &mut sizes {
            if self.words.clone().next().is_some() {
                *size = self.value("a size in meters up to 90000000, as 10m", |raw| {
                    let (mut left, mut power) = (meters(raw).filter(|size| *size >= 0)?, 0);
                    while left > 9 {
                        (left, power) = (left / 10, power + 1);
                    }
                    (power <= 9).then_some((left as u8) << 4 | power)
                })?;
            }
        }
        self.out.push(0);
        self.out.extend_from_slice(&sizes);
        for word in [angles[0], angles[1], altitude] {
            self.out.extend_from_slice(&word.to_be_bytes());
        }
        Ok(())
    }

    /// Of APL (RFC 3123): `[!]family:address/prefix`.
    fn prefixes(&mut self) -> Result<(), RdataError> {
        for word in self.words.by_ref() {
            let text = std::str::from_utf8(word.raw).unwrap_or_default();
            let (negated, text) = text.strip_prefix('!').map_or((0, text), |text| (0x80, text));
            let parsed = || {
                let (family, rest) = text.split_once(':')?;
                let (address, prefix) = rest.rsplit_once('/')?;
                let (bytes, most) = match family {
                    "1" => (address.parse::<Ipv4Addr>().ok()?.octets().to_vec(), 32),
                    "2" => (address.parse::<Ipv6Addr>().ok()?.octets().to_vec(), 128),
                    _ => return None,
                };
                let prefix = prefix.parse::<u8>().ok().filter(|prefix| *prefix <= most)?;
                Some((family.as_bytes()[0] - b'0', bytes, prefix))
            };
            let (family, mut bytes, prefix) = parsed().ok_or_else(|| {
                unexpected_word(word, "a prefix such as 1:192.0.2.0/24 or !2:2001:db8::/32")
            })?;
            bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1));
            self.out.extend_from_slice(&[0, family, prefix, negated | bytes.len() as u8]);
            self.out.extend_from_slice(&bytes);
        }
        Ok(())
    }

    /// Of SVCB and HTTPS (RFC 9460, section 2.1).
    fn parameters(&mut self) -> Result<(), RdataError> {
        let mut all: Vec<(u16, Vec<u8>)> = Vec::new();
        for word in self.words.by_ref() {
            let (key, given) = match word.raw.iter().position(|byte| *byte == b'=') {
                Some(at) => (&word.raw[..at], Some(&word.raw[at + 1..])),
                None => (word.raw, None),
            };
            let number = service_key(key).ok_or_else(|| unexpected_word(word, "a service parameter"))?;
            let data = parameter(number, given)
                .ok_or_else(|| unexpected_word(word, "a service parameter with a right value"))?;
            all.push((number, data));
        }
        all.sort();
        if all.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err("a service parameter is there twice".into());
        }
        for (key, data) in all {
            self.out.extend_from_slice(&key.to_be_bytes());
            self.out.extend_from_slice(&(data.len() as u16).to_be_bytes());
            self.out.extend_from_slice(&data);
        }
        Ok(())
    }
}

fn service_key(raw: &[u8]) -> Option<u16> {
    match KEYS.iter().position(|key| key.as_bytes() == raw) {
        Some(number) => Some(number as u16),
        None => value::number(raw.strip_prefix(b"key")?),
    }
}

/// The value of a service parameter in wire form.
fn parameter(key: u16, given: Option<&[u8]>) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    value::bytes(given.unwrap_or_default(), &mut text).ok()?;
    let listed = || text.split(|byte| *byte == b',');
    let mut data = Vec::new();
    match key {
        0 => {
            let mut keys = listed().map(service_key).collect::<Option<Vec<u16>>>()?;
            keys.sort_unstable();
            keys.iter().for_each(|key| data.extend_from_slice(&key.to_be_bytes()));
        }
        1 => {
            for item in items(&text) {
                data.push(u8::try_from(item.len()).ok().filter(|length| *length > 0)?);
                data.extend_from_slice(&item);
            }
        }
        2 | 8 => given.is_none().then_some(())?,
        3 => data.extend_from_slice(&value::number::<u16>(&text)?.to_be_bytes()),
        4 => {
            for item in listed() {
                data.extend_from_slice(&std::str::from_utf8(item).ok()?.parse::<Ipv4Addr>().ok()?.octets());
            }
        }
        5 => value::base64(&text, &mut data).then_some(())?,
        6 => {
            for item in listed() {
                data.extend_from_slice(&std::str::from_utf8(item).ok()?.parse::<Ipv6Addr>().ok()?.octets());
            }
        }
        _ => data = text,
    }
    Some(data)
}

/// The items of a list, in which `\,` is a comma and `\\` a backslash (RFC 9460, appendix A.1).
fn items(text: &[u8]) -> Vec<Vec<u8>> {
    let (mut all, mut escaped) = (vec![Vec::new()], false);
    for byte in text {
        let last = all.len() - 1;
        match byte {
            b'\\' if !escaped => escaped = true,
            b',' if !escaped => all.push(Vec::new()),
            _ => {
                all[last].push(*byte);
                escaped = false;
            }
        }
    }
    all
}

/// A decimal number with up to `places` digits behind the point, times 10 to their number.
fn decimal(raw: &[u8], places: usize) -> Option<i64> {
    let (whole, part) = match raw.iter().position(|byte| *byte == b'.') {
        Some(at) => (&raw[..at], &raw[at + 1..]),
        None => (raw, &[][..]),
    };
    if part.len() > places || whole.len() > 9 {
        return None;
    }
    let digits = whole.iter().chain(part).chain(std::iter::repeat_n(&b'0', places - part.len()));
    value::number(&digits.copied().collect::<Vec<u8>>())
}

/// Whether bytes can be the data of a type; anything can that of one that is not known.
pub(super) fn is_of_type(rtype: u16, data: &[u8]) -> bool {
    let Some(kind) = by_number(rtype) else { return true };
    let mut rest = Some(data);
    for field in kind.fields {
        rest = rest.and_then(|rest| skip_field(*field, rest));
    }
    rest.is_some_and(<[u8]>::is_empty)
}

/// What follows a field, if it can be one.
fn skip_field(field: RdataField, data: &[u8]) -> Option<&[u8]> {
    let counted = |data: &[u8]| Some(usize::from(*data.first()?) + 1);
    match field {
        F::Name => {
            let mut at = 0;
            loop {
                let length = usize::from(*data.get(at)?);
                at += length + 1;
                if length > 63 || at > super::super::query::LONGEST_NAME {
                    return None;
                }
                if length == 0 {
                    return data.get(at..);
                }
            }
        }
        F::U8 | F::Algorithm => data.get(1..),
        F::U16 | F::Type | F::Certificate => data.get(2..),
        F::U32 | F::Period | F::Time | F::Ip4 => data.get(4..),
        F::Locator => data.get(8..),
        F::Ip6 => data.get(16..),
        F::Eui(bytes) => data.get(usize::from(bytes)..),
        F::Text | F::Salt => data.get(counted(data)?..),
        F::Tag | F::Hash => data.get(counted(data).filter(|length| *length > 1)?..),
        F::OptionalText if data.is_empty() => Some(data),
        F::OptionalText => data.get(counted(data)?..),
        F::Texts => {
            let mut rest = data.get(counted(data)?..)?;
            while !rest.is_empty() {
                rest = rest.get(counted(rest)?..)?;
            }
            Some(rest)
        }
        F::Types => {
            let (mut rest, mut before) = (data, None);
            while let [window, length @ 1..=32, after @ ..] = rest {
                if before.is_some_and(|before| before >= *window) {
                    return None;
                }
                before = Some(*window);
                rest = after.get(usize::from(*length)..)?;
            }
            Some(rest)
        }
        F::Location => match data.first()? {
            0 => data.get(16..),
            _ => None,
        },
        F::Parameters => {
            let (mut rest, mut before) = (data, None);
            while let [key_high, key_low, high, low, after @ ..] = rest {
                let key = u16::from_be_bytes([*key_high, *key_low]);
                if before.is_some_and(|before| before >= key) {
                    return None;
                }
                before = Some(key);
                rest = after.get(usize::from(u16::from_be_bytes([*high, *low]))..)?;
            }
            Some(rest)
        }
        F::Prefixes => {
            let mut rest = data;
            while let [_, _, _, length, after @ ..] = rest {
                rest = after.get(usize::from(length & 0x7f)..)?;
            }
            Some(rest)
        }
        F::Gateway => {
            let rest = data.get(2..)?;
            relay(data[0], rest)
        }
        F::Relay => relay(data.first()? & 0x7f, data.get(1..)?),
        F::Identity => {
            let [tag, _, high, low, rest @ ..] = data else { return None };
            let key = usize::from(u16::from_be_bytes([*high, *low]));
            let mut rest = rest.get(usize::from(*tag) + key..)?;
            while !rest.is_empty() {
                rest = skip_field(F::Name, rest)?;
            }
            Some(rest)
        }
        F::Hex | F::Base64 | F::LongText | F::Nsap | F::Services => Some(&[]),
    }
}

fn relay(kind: u8, data: &[u8]) -> Option<&[u8]> {
    match kind {
        0 => Some(data),
        1 => data.get(4..),
        2 => data.get(16..),
        3 => skip_field(F::Name, data),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::lexer::{ZoneEntry, ZoneLexer};
    use super::*;

    fn made(rtype: u16, text: &str) -> Result<Vec<u8>, RdataError> {
        let mut entry = ZoneEntry::default();
        let _ = ZoneLexer::new(format!("{text}\n").as_bytes()).next(&mut entry);
        let mut out = Vec::new();
        let mut words = RdataWords { words: entry.words(), origin: b"\x01o\0", out: &mut out };
        words.data(by_number(rtype).expect("known")).map(|()| out)
    }

    #[test]
    fn kinds_are_sorted_and_their_examples_are_right() {
        assert!(KINDS.is_sorted_by(|a, b| a.rtype < b.rtype));
        for kind in KINDS {
            let data = made(kind.rtype, kind.example).unwrap_or_else(|why| panic!("{}: {why}", kind.name));
            assert!(is_of_type(kind.rtype, &data), "{}", kind.name);
        }
    }

    #[test]
    fn data_is_that_of_the_rfcs() {
        // RFC 1876, appendix A, with defaults.
        let loc = made(29, "42 21 54 N 71 6 18 W -24m 30m").expect("LOC");
        let angle = |at: usize| u32::from_be_bytes(loc[at..at + 4].try_into().expect("four bytes"));
        assert_eq!(loc[..4], [0, 0x33, 0x16, 0x13]);
        assert_eq!(
            (angle(4), angle(8), angle(12)),
            (0x8000_0000 + 152_514_000, 0x8000_0000 - 255_978_000, 9_997_600)
        );
        assert_eq!(made(15, "10 @"), Ok(b"\0\x0a\x01o\0".to_vec()));
        assert_eq!(
            made(47, "@ A TYPE1234"),
            Ok([&b"\x01o\0\0\x01\x40\x04\x1b"[..], &[0; 26], &[0x20]].concat())
        );
        assert_eq!(
            made(42, "1:10.0.0.0/8 !2:2001:db8::/32"),
            Ok(b"\0\x01\x08\x01\x0a\0\x02\x20\x84\x20\x01\x0d\xb8".to_vec())
        );
        assert_eq!(
            made(65, "1 . port=53 alpn=\"h2,a\\\\,b\""),
            Ok(b"\0\x01\0\0\x01\0\x07\x02h2\x03a,b\0\x03\0\x02\0\x35".to_vec())
        );
        assert_eq!(made(257, "0 issue \"a;b\""), Ok(b"\0\x05issuea;b".to_vec()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let all = [
            (1, "192.0.2.300", "IPv4"),
            (15, "10", "a name is missing"),
            (15, "10 a..b", "two dots"),
            (1, "192.0.2.1 x", "\"x\" is too much"),
            (6, "a b 1 2 3 4 1y", "1h"),
            (43, "1 13 2 0", "hexadecimal"),
            (29, "91 0 0 N 0 0 0 E 0m", "degrees"),
            (65, "1 . port=1 port=2", "twice"),
        ];
        for (rtype, text, part) in all {
            let why = made(rtype, text).expect_err(text);
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
