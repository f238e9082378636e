//! Record types by name (IANA, DNS Parameters).

const TYPES: [(&str, u16); 58] = [
    ("A", 1),
    ("NS", 2),
    ("CNAME", 5),
    ("SOA", 6),
    ("NULL", 10),
    ("WKS", 11),
    ("PTR", 12),
    ("HINFO", 13),
    ("MINFO", 14),
    ("MX", 15),
    ("TXT", 16),
    ("RP", 17),
    ("AFSDB", 18),
    ("X25", 19),
    ("ISDN", 20),
    ("RT", 21),
    ("SIG", 24),
    ("KEY", 25),
    ("PX", 26),
    ("AAAA", 28),
    ("LOC", 29),
    ("SRV", 33),
    ("NAPTR", 35),
    ("KX", 36),
    ("CERT", 37),
    ("A6", 38),
    ("DNAME", 39),
    ("APL", 42),
    ("DS", 43),
    ("SSHFP", 44),
    ("IPSECKEY", 45),
    ("RRSIG", 46),
    ("NSEC", 47),
    ("DNSKEY", 48),
    ("DHCID", 49),
    ("NSEC3", 50),
    ("NSEC3PARAM", 51),
    ("TLSA", 52),
    ("SMIMEA", 53),
    ("HIP", 55),
    ("CDS", 59),
    ("CDNSKEY", 60),
    ("OPENPGPKEY", 61),
    ("CSYNC", 62),
    ("ZONEMD", 63),
    ("SVCB", 64),
    ("HTTPS", 65),
    ("SPF", 99),
    ("NID", 104),
    ("L32", 105),
    ("L64", 106),
    ("LP", 107),
    ("EUI48", 108),
    ("EUI64", 109),
    ("ANY", 255),
    ("URI", 256),
    ("CAA", 257),
    ("DLV", 32_769),
];

/// The number of a type, or why it is not accepted.
pub(super) fn parse_type(text: &str) -> Result<u16, &'static str> {
    let upper = text.to_ascii_uppercase();
    if let Some((_, number)) = TYPES.iter().find(|(name, _)| *name == upper) {
        return Ok(*number);
    }
    let number = match upper.as_str() {
        "AXFR" => 252,
        "IXFR" => 251,
        "OPT" => 41,
        other => {
            let digits =
                other.strip_prefix("TYPE").filter(|suffix| suffix.bytes().all(|byte| byte.is_ascii_digit()));
            let unknown_type = "no record type: write a name such as A, AAAA or MX, or TYPE and its number";
            digits.and_then(|digits| digits.parse().ok()).ok_or(unknown_type)?
        }
    };
    match number {
        251 | 252 => Err("zone transfers go over TCP: ask for something else"),
        0 | 41 | 249 | 250 => Err("no record type to ask for: it stands for no data in a zone"),
        number => Ok(number),
    }
}
