//! The check of data that a zone file gives as bytes (RFC 3597).

use super::super::super::rtype::LONGEST_NAME;
use super::{F, RdataField, by_number};

/// Whether bytes have the form of a type's data. True for types that are not in the table.
pub(in super::super) fn is_of_type(rtype: u16, data: &[u8]) -> bool {
    let Some(kind) = by_number(rtype) else { return true };
    let mut rest = Some(data);
    for field in kind.fields {
        rest = rest.and_then(|rest| skip_field(*field, rest));
    }
    rest.is_some_and(<[u8]>::is_empty)
}

// The bytes after a field; `None` if they do not begin with such a field.
fn skip_field(field: RdataField, data: &[u8]) -> Option<&[u8]> {
    let counted = |data: &[u8]| Some(usize::from(*data.first()?) + 1);
    match field {
        F::Name => {
            let mut at = 0;
            loop {
                let length = usize::from(*data.get(at)?);
                at += length + 1;
                if length > 63 || at > LONGEST_NAME {
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
        F::Gateway => skip_gateway(*data.first()?, data.get(2..)?),
        F::Relay => skip_gateway(data.first()? & 0x7f, data.get(1..)?),
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

fn skip_gateway(kind: u8, data: &[u8]) -> Option<&[u8]> {
    match kind {
        0 => Some(data),
        1 => data.get(4..),
        2 => data.get(16..),
        3 => skip_field(F::Name, data),
        _ => None,
    }
}
