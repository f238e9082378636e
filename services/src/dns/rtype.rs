//! Numbers of record types, and the positions of names in their data.

use std::ops::Range;

// Longest name in wire form (RFC 1035, section 3.1).
pub(crate) const LONGEST_NAME: usize = 255;

// Longer labels are pointers or undefined (RFC 1035, section 4.1.4).
const LONGEST_LABEL: usize = 63;

pub(crate) const A: u16 = 1;
pub(crate) const NS: u16 = 2;
pub(crate) const CNAME: u16 = 5;
pub(crate) const SOA: u16 = 6;
pub(crate) const MB: u16 = 7;
pub(crate) const PTR: u16 = 12;
pub(crate) const MX: u16 = 15;
pub(crate) const TXT: u16 = 16;
pub(crate) const AAAA: u16 = 28;
pub(crate) const SRV: u16 = 33;
pub(crate) const KX: u16 = 36;
pub(crate) const DNAME: u16 = 39;
pub(crate) const OPT: u16 = 41;
pub(crate) const DS: u16 = 43;
pub(crate) const RRSIG: u16 = 46;
pub(crate) const NSEC: u16 = 47;
pub(crate) const DNSKEY: u16 = 48;
pub(crate) const NSEC3: u16 = 50;
pub(crate) const IXFR: u16 = 251;
pub(crate) const AXFR: u16 = 252;
pub(crate) const ANY: u16 = 255;

// Whether names in the data may be compressed: only in the types of RFC 1035 (RFC 3597, section 4).
pub(crate) fn is_compressed(rtype: u16) -> bool {
    matches!(rtype, 2..=9 | PTR | 14 | MX)
}

/// Whether the first name in the data is a host whose addresses belong to the additional section.
pub(crate) fn names_host(rtype: u16) -> bool {
    matches!(rtype, NS | MB | MX | SRV | KX)
}

// The names in the data that are compressed or looked up: at most two, adjacent.
pub(crate) fn names(rtype: u16, data: &[u8]) -> [Option<Range<usize>>; 2] {
    let start = match rtype {
        2..=9 | PTR | 14 => 0,
        MX | KX => 2,
        SRV => 6,
        _ => return [None, None],
    };
    let first = name_at(data, start);
    let second = match (rtype, &first) {
        (SOA | 14, Some(first)) => name_at(data, first.end),
        _ => None,
    };
    [first, second]
}

/// The range of the uncompressed name at `start`; `None` if it is compressed, too long or
/// incomplete.
pub(crate) fn name_at(data: &[u8], start: usize) -> Option<Range<usize>> {
    let mut position = start;
    loop {
        let length = usize::from(*data.get(position)?);
        position += length + 1;
        if length > LONGEST_LABEL || position - start > LONGEST_NAME {
            return None;
        }
        if length == 0 {
            return Some(start..position);
        }
    }
}
