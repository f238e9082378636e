//! Names of the kernel's drop reasons.
//!
//! The numbers of `enum skb_drop_reason` differ between kernels, so the names are read from the
//! type information (BTF) of the running kernel. The format is that of Documentation/bpf/btf.rst,
//! Linux 6.18.

use std::collections::BTreeMap;

const ENUM: &[u8] = b"skb_drop_reason";

// Prefixes of the names; some (`SKB_CONSUMED`, Linux 6.3) only have the second.
const PREFIXES: [&str; 2] = ["SKB_DROP_REASON_", "SKB_"];

const MAGIC: u16 = 0xeb9f;

/// Header of each type: name, kind and number of members, size or type.
const TYPE: usize = 12;

const KIND_ENUM: u32 = 6;

/// Names by number. `None` if the kernel has no reasons, as before Linux 5.17, or the data is not
/// BTF of this byte order.
pub fn names(btf: &[u8]) -> Option<BTreeMap<u32, String>> {
    if u16::from_ne_bytes(*btf.first_chunk()?) != MAGIC {
        return None;
    }
    let header = |word: usize| u32_at(btf, word * 4).and_then(|value| usize::try_from(value).ok());
    let section = |offset: usize, length: usize| {
        let begin = header(1)?.checked_add(header(offset)?)?;
        btf.get(begin..begin.checked_add(header(length)?)?)
    };
    let (mut types, strings) = (section(2, 3)?, section(4, 5)?);
    while types.len() >= TYPE {
        let kind = u32_at(types, 4)?;
        let members = usize::try_from(kind & 0xffff).ok()?;
        let (kind, body) = (kind >> 24 & 0x1f, &types[TYPE..]);
        let length = members_length(kind, members)?;
        if kind == KIND_ENUM && string(strings, u32_at(types, 0)?) == Some(ENUM) {
            return Some(reasons(body.get(..length)?, strings));
        }
        types = body.get(length..)?;
    }
    None
}

// Bytes after the header of a type; `None` for an unknown kind, because its length is unknown.
fn members_length(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        // int, variable, declaration tag
        1 | 14 | 17 => 4,
        // pointer, forward, typedef, volatile, const, restrict, function, float, type tag
        2 | 7..=12 | 16 | 18 => 0,
        // array
        3 => 12,
        // structure, union, section, 64-bit enum
        4 | 5 | 15 | 19 => members * 12,
        // enum, prototype
        KIND_ENUM | 13 => members * 8,
        _ => return None,
    })
}

fn reasons(members: &[u8], strings: &[u8]) -> BTreeMap<u32, String> {
    let pairs = members.chunks_exact(8).filter_map(|member| {
        let name = String::from_utf8_lossy(string(strings, u32_at(member, 0)?)?).into_owned();
        Some((u32_at(member, 4)?, short(&name).to_owned()))
    });
    pairs.collect()
}

// `NO_SOCKET` of `SKB_DROP_REASON_NO_SOCKET`.
fn short(name: &str) -> &str {
    PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
}

fn string(strings: &[u8], offset: u32) -> Option<&[u8]> {
    strings.get(usize::try_from(offset).ok()?..)?.split(|byte| *byte == 0).next()
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

#[cfg(test)]
mod tests;
