//! The check of data that a zone file gives as bytes (RFC 3597).

use super::super::super::rtype::LONGEST_NAME;
use super::{F, RdataField, by_number};

/// Whether bytes have the form of a type's data. True for types that are not in the table.
pub(in super::super) fn is_of_type(rtype: u16, data: &[u8]) -> bool {
    let Some(kind) = by_number(rtype) else { return true };
    let mut remaining = Some(data);
    for field in kind.fields {
        remaining = remaining.and_then(|remaining| skip_field(*field, remaining));
    }
    remaining.is_some_and(<[u8]>::is_empty)
}

// The bytes after a field; `None` if they do not begin with such a field.
fn skip_field(field: RdataField, data: &[u8]) -> Option<&[u8]> {
    let text_length = |data: &[u8]| Some(usize::from(*data.first()?) + 1);
    match field {
        F::Name => {
            let mut offset = 0;
            loop {
                let length = usize::from(*data.get(offset)?);
                offset += length + 1;
                if length > 63 || offset > LONGEST_NAME {
                    return None;
                }
                if length == 0 {
                    return data.get(offset..);
                }
            }
        }
        F::U8 | F::Algorithm => data.get(1..),
        F::U16 | F::Type | F::Certificate => data.get(2..),
        F::U32 | F::Period | F::Time | F::Ip4 => data.get(4..),
        F::Locator => data.get(8..),
        F::Ip6 => data.get(16..),
        F::Eui(bytes) => data.get(usize::from(bytes)..),
        F::Text | F::Salt => data.get(text_length(data)?..),
        F::Tag | F::Hash => data.get(text_length(data).filter(|length| *length > 1)?..),
        F::OptionalText if data.is_empty() => Some(data),
        F::OptionalText => data.get(text_length(data)?..),
        F::Texts => {
            let mut remaining = data.get(text_length(data)?..)?;
            while !remaining.is_empty() {
                remaining = remaining.get(text_length(remaining)?..)?;
            }
            Some(remaining)
        }
        F::Types => {
            let (mut remaining, mut previous) = (data, None);
            while let [window, length @ 1..=32, after @ ..] = remaining {
                if previous.is_some_and(|previous| previous >= *window) {
                    return None;
                }
                previous = Some(*window);
                remaining = after.get(usize::from(*length)..)?;
            }
            Some(remaining)
        }
        F::Location => match data.first()? {
            0 => data.get(16..),
            _ => None,
        },
        F::Parameters => {
            let (mut remaining, mut previous) = (data, None);
            while let [key_high, key_low, high, low, after @ ..] = remaining {
                let key = u16::from_be_bytes([*key_high, *key_low]);
                if previous.is_some_and(|previous| previous >= key) {
                    return None;
                }
                previous = Some(key);
                remaining = after.get(usize::from(u16::from_be_bytes([*high, *low]))..)?;
            }
            Some(remaining)
        }
        F::Prefixes => {
            let mut remaining = data;
            while let [_, _, _, length, after @ ..] = remaining {
                remaining = after.get(usize::from(length & 0x7f)..)?;
            }
            Some(remaining)
        }
        F::Gateway => skip_gateway(*data.first()?, data.get(2..)?),
        F::Relay => skip_gateway(data.first()? & 0x7f, data.get(1..)?),
        F::Identity => {
            let [tag, _, high, low, remaining @ ..] = data else { return None };
            let key = usize::from(u16::from_be_bytes([*high, *low]));
            let mut remaining = remaining.get(usize::from(*tag) + key..)?;
            while !remaining.is_empty() {
                remaining = skip_field(F::Name, remaining)?;
            }
            Some(remaining)
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
