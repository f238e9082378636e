//! The check of data that a zone file gives as bytes (RFC 3597).

use super::super::super::rtype::name_at;
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
        F::Name => data.get(name_at(data, 0)?.end..),
        F::U8 | F::Algorithm => data.get(1..),
        F::U16 | F::Type | F::Certificate => data.get(2..),
        F::U32 | F::Period | F::Time | F::Ip4 => data.get(4..),
        F::Locator => data.get(8..),
        F::Ip6 => data.get(16..),
        F::Eui(bytes) => data.get(usize::from(bytes)..),
        F::Text | F::Salt => data.get(text_length(data)?..),
        F::Tag | F::Hash => data.get(text_length(data).filter(|length| *length > 1)?..),
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
        F::Gateway => {
            let remaining = data.get(2..)?;
            match data[0] {
                0 => Some(remaining),
                1 => remaining.get(4..),
                2 => remaining.get(16..),
                3 => skip_field(F::Name, remaining),
                _ => None,
            }
        }
        F::Hex | F::Base64 | F::LongText => Some(&[]),
    }
}
