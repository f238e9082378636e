//! Record types: the form of their data in a zone file, and the check of data given as bytes.

mod check;
mod special_rdata;
mod words;

use super::value;
pub(super) use check::is_of_type;
pub(super) use words::RdataWords;

/// The form of a word or of several words, in the order of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RdataField {
    Name,
    U8,
    U16,
    U32,
    /// Seconds, or numbers with units.
    Period,
    Time,
    Ip4,
    Ip6,
    Text,
    /// One or more.
    Texts,
    /// A text without a length byte, to the end of the data.
    LongText,
    Tag,
    Hex,
    Base64,
    /// Hexadecimal digits with a length byte, or `-`.
    Salt,
    /// Base 32 with a length byte.
    Hash,
    Type,
    // A bitmap of types (RFC 4034, section 4.1.2).
    Types,
    Algorithm,
    Certificate,
    // RFC 1876, section 3.
    Location,
    // RFC 3123: `[!]family:address/prefix`.
    Prefixes,
    // Service parameters (RFC 9460, section 2.1).
    Parameters,
    // IPSECKEY (RFC 4025): type of gateway, algorithm, gateway.
    Gateway,
    /// This many bytes as pairs of hexadecimal digits separated by `-`.
    Eui(u8),
    /// Four groups of hexadecimal digits.
    Locator,
}

use RdataField as F;

#[derive(Debug)]
pub(super) struct RecordType {
    pub(super) rtype: u16,
    pub(super) name: &'static str,
    fields: &'static [RdataField],
    /// Correct data, for error messages.
    pub(super) example: &'static str,
}

const fn record_type(
    rtype: u16,
    name: &'static str,
    fields: &'static [RdataField],
    example: &'static str,
) -> RecordType {
    RecordType { rtype, name, fields, example }
}

// Sorted by number. Other types are written as in RFC 3597.
static TYPES: &[RecordType] = &[
    record_type(1, "A", &[F::Ip4], "192.0.2.1"),
    record_type(2, "NS", &[F::Name], "ns1.example.com."),
    record_type(3, "MD", &[F::Name], "mail.example.com."),
    record_type(4, "MF", &[F::Name], "mail.example.com."),
    record_type(5, "CNAME", &[F::Name], "www.example.com."),
    record_type(
        6,
        "SOA",
        &[F::Name, F::Name, F::U32, F::Period, F::Period, F::Period, F::Period],
        "ns1.example.com. hostmaster.example.com. 2026010100 2h 30m 2w 5m",
    ),
    record_type(7, "MB", &[F::Name], "mail.example.com."),
    record_type(8, "MG", &[F::Name], "user.example.com."),
    record_type(9, "MR", &[F::Name], "user.example.com."),
    record_type(12, "PTR", &[F::Name], "www.example.com."),
    record_type(13, "HINFO", &[F::Text, F::Text], "\"PC\" \"Linux\""),
    record_type(14, "MINFO", &[F::Name, F::Name], "owner.example.com. errors.example.com."),
    record_type(15, "MX", &[F::U16, F::Name], "10 mail.example.com."),
    record_type(16, "TXT", &[F::Texts], "\"v=spf1 -all\""),
    record_type(17, "RP", &[F::Name, F::Name], "admin.example.com. about.example.com."),
    record_type(18, "AFSDB", &[F::U16, F::Name], "1 afs.example.com."),
    record_type(19, "X25", &[F::Text], "311061700956"),
    record_type(21, "RT", &[F::U16, F::Name], "10 relay.example.com."),
    record_type(23, "NSAP-PTR", &[F::Name], "host.example.com."),
    record_type(24, "SIG", SIGNATURE, SIGNATURE_EXAMPLE),
    record_type(25, "KEY", KEY, KEY_EXAMPLE),
    record_type(26, "PX", &[F::U16, F::Name, F::Name], "10 map822.example.com. mapx400.example.com."),
    record_type(27, "GPOS", &[F::Text, F::Text, F::Text], "-32.6882 116.8652 10.0"),
    record_type(28, "AAAA", &[F::Ip6], "2001:db8::1"),
    record_type(29, "LOC", &[F::Location], "52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m"),
    record_type(33, "SRV", &[F::U16, F::U16, F::U16, F::Name], "10 20 5060 sip.example.com."),
    record_type(
        35,
        "NAPTR",
        &[F::U16, F::U16, F::Text, F::Text, F::Text, F::Name],
        "100 10 \"S\" \"SIP+D2U\" \"\" _sip._udp.example.com.",
    ),
    record_type(36, "KX", &[F::U16, F::Name], "10 kx.example.com."),
    record_type(37, "CERT", &[F::Certificate, F::U16, F::Algorithm, F::Base64], "PKIX 12345 8 MIIB"),
    record_type(39, "DNAME", &[F::Name], "example.net."),
    record_type(42, "APL", &[F::Prefixes], "1:192.0.2.0/24 !1:192.0.2.64/28"),
    record_type(43, "DS", DELEGATION, DELEGATION_EXAMPLE),
    record_type(44, "SSHFP", &[F::U8, F::U8, F::Hex], "4 2 0123456789abcdef"),
    record_type(45, "IPSECKEY", &[F::U8, F::Gateway, F::Base64], "10 1 2 192.0.2.38 AQNRU3mG"),
    record_type(46, "RRSIG", SIGNATURE, SIGNATURE_EXAMPLE),
    record_type(47, "NSEC", &[F::Name, F::Types], "next.example.com. A MX RRSIG NSEC"),
    record_type(48, "DNSKEY", KEY, KEY_EXAMPLE),
    record_type(49, "DHCID", &[F::Base64], "AAIBY2/AuCccgoJbsaxcQc9TUapptP69lOjxfNuVAA2kjEA="),
    record_type(
        50,
        "NSEC3",
        &[F::U8, F::U8, F::U16, F::Salt, F::Hash, F::Types],
        "1 0 0 - 2t7b4g4vsa5smi47k61mv5bv1a22bojr A RRSIG",
    ),
    record_type(51, "NSEC3PARAM", &[F::U8, F::U8, F::U16, F::Salt], "1 0 0 -"),
    record_type(52, "TLSA", &[F::U8, F::U8, F::U8, F::Hex], "3 1 1 0123456789abcdef"),
    record_type(53, "SMIMEA", &[F::U8, F::U8, F::U8, F::Hex], "3 0 0 0123456789abcdef"),
    record_type(59, "CDS", DELEGATION, DELEGATION_EXAMPLE),
    record_type(60, "CDNSKEY", KEY, KEY_EXAMPLE),
    record_type(61, "OPENPGPKEY", &[F::Base64], "mQENBFVHm5sBCADR"),
    record_type(62, "CSYNC", &[F::U32, F::U16, F::Types], "66 3 A NS AAAA"),
    record_type(
        63,
        "ZONEMD",
        &[F::U32, F::U8, F::U8, F::Hex],
        "2026010100 1 1 0123456789abcdef0123456789abcdef",
    ),
    record_type(64, "SVCB", SERVICE, SERVICE_EXAMPLE),
    record_type(65, "HTTPS", SERVICE, SERVICE_EXAMPLE),
    record_type(99, "SPF", &[F::Texts], "\"v=spf1 -all\""),
    record_type(104, "NID", &[F::U16, F::Locator], "10 0014:4fff:ff20:ee64"),
    record_type(105, "L32", &[F::U16, F::Ip4], "10 192.0.2.0"),
    record_type(106, "L64", &[F::U16, F::Locator], "10 2001:0db8:1140:1000"),
    record_type(107, "LP", &[F::U16, F::Name], "10 l64.example.com."),
    record_type(108, "EUI48", &[F::Eui(6)], "00-00-5e-00-53-2a"),
    record_type(109, "EUI64", &[F::Eui(8)], "00-00-5e-ef-10-00-00-2a"),
    record_type(256, "URI", &[F::U16, F::U16, F::LongText], "10 1 \"https://www.example.com/\""),
    record_type(257, "CAA", &[F::U8, F::Tag, F::LongText], "0 issue \"ca.example.net\""),
    record_type(258, "AVC", &[F::Texts], "\"app-name:WOLFGANG|app-class:OAM\""),
    record_type(261, "RESINFO", &[F::Texts], "qnamemin exterr=15-17"),
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

pub(super) fn by_number(rtype: u16) -> Option<&'static RecordType> {
    TYPES.binary_search_by_key(&rtype, |kind| kind.rtype).ok().map(|index| &TYPES[index])
}

// Types whose data has no form of its own here: their names occur in NSEC and RRSIG records.
const NAMES_ONLY: [(u16, &str); 5] =
    [(11, "WKS"), (20, "ISDN"), (22, "NSAP"), (55, "HIP"), (260, "AMTRELAY")];

fn type_names() -> impl Iterator<Item = (u16, &'static str)> {
    TYPES.iter().map(|kind| (kind.rtype, kind.name)).chain(NAMES_ONLY)
}

// The number of a type by its name, or of `TYPE123` (RFC 3597, section 5).
pub(super) fn number(raw: &[u8]) -> Option<u16> {
    if let Some((number, _)) = type_names().find(|(_, name)| name.as_bytes().eq_ignore_ascii_case(raw)) {
        return Some(number);
    }
    let (start, digits) = raw.split_at_checked(4)?;
    start.eq_ignore_ascii_case(b"TYPE").then(|| value::number(digits)).flatten()
}

pub(super) fn type_name(rtype: u16) -> String {
    let name = type_names().find(|(number, _)| *number == rtype);
    name.map_or_else(|| format!("TYPE{rtype}"), |(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::lexer::{ZoneEntry, ZoneLexer};
    use super::*;

    fn wire_data(rtype: u16, text: &str) -> Result<Vec<u8>, String> {
        let mut entry = ZoneEntry::default();
        let _ = ZoneLexer::new(format!("{text}\n").as_bytes()).next(&mut entry);
        let mut out = Vec::new();
        let mut words = RdataWords { words: entry.words(), origin: b"\x01o\0", out: &mut out };
        words.data(by_number(rtype).expect("known")).map(|()| out)
    }

    #[test]
    fn record_types_are_sorted_and_their_examples_encode() {
        assert!(TYPES.is_sorted_by(|a, b| a.rtype < b.rtype));
        for kind in TYPES {
            let data =
                wire_data(kind.rtype, kind.example).unwrap_or_else(|why| panic!("{}: {why}", kind.name));
            assert!(is_of_type(kind.rtype, &data), "{}", kind.name);
        }
    }

    #[test]
    fn record_data_is_encoded_per_rfc() {
        // RFC 1876, appendix A, with defaults.
        let loc = wire_data(29, "42 21 54 N 71 6 18 W -24m 30m").expect("LOC");
        let angle = |at: usize| u32::from_be_bytes(loc[at..at + 4].try_into().expect("four bytes"));
        assert_eq!(loc[..4], [0, 0x33, 0x16, 0x13]);
        assert_eq!(
            (angle(4), angle(8), angle(12)),
            (0x8000_0000 + 152_514_000, 0x8000_0000 - 255_978_000, 9_997_600)
        );
        assert_eq!(wire_data(15, "10 @"), Ok(b"\0\x0a\x01o\0".to_vec()));
        assert_eq!(wire_data(47, "@ A WKS"), Ok(b"\x01o\0\0\x02\x40\x10".to_vec()));
        assert_eq!(
            wire_data(47, "@ A TYPE1234"),
            Ok([&b"\x01o\0\0\x01\x40\x04\x1b"[..], &[0; 26], &[0x20]].concat())
        );
        assert_eq!(
            wire_data(42, "1:10.0.0.0/8 !2:2001:db8::/32"),
            Ok(b"\0\x01\x08\x01\x0a\0\x02\x20\x84\x20\x01\x0d\xb8".to_vec())
        );
        assert_eq!(
            wire_data(65, "1 . port=53 alpn=\"h2,a\\\\,b\""),
            Ok(b"\0\x01\0\0\x01\0\x07\x02h2\x03a,b\0\x03\0\x02\0\x35".to_vec())
        );
        assert_eq!(wire_data(257, "0 issue \"a;b\""), Ok(b"\0\x05issuea;b".to_vec()));
    }

    #[test]
    fn errors_name_the_invalid_part_of_record_data() {
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
            let why = wire_data(rtype, text).expect_err(text);
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
