//! Words of a zone file in wire form: names, numbers and texts.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::super::rtype::LONGEST_NAME;

const LONGEST_LABEL: usize = 63;

/// The first byte of `raw` without its escape, and the length of the escape.
fn unescape_byte(raw: &[u8]) -> Result<(u8, usize), &'static str> {
    match raw {
        [b'\\', a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', ..] => {
            let value = [a, b, c].iter().fold(0u16, |total, digit| total * 10 + u16::from(**digit - b'0'));
            let byte = u8::try_from(value).map_err(|_| "an escape is \\000 to \\255")?;
            Ok((byte, 4))
        }
        [b'\\', digit, ..] if digit.is_ascii_digit() => Err("an escape has three digits, as in \\032"),
        [b'\\', byte, ..] => Ok((*byte, 2)),
        [b'\\'] => Err("\"\\\" at the end escapes nothing"),
        [byte, ..] => Ok((*byte, 1)),
        [] => Err("nothing"),
    }
}

// Appends a name, relative to `origin` unless it ends with a dot.
pub(super) fn name(raw: &[u8], quoted: bool, origin: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    let start = out.len();
    match raw {
        b"@" if !quoted => out.extend_from_slice(origin),
        b"." => out.push(0),
        b"" => return Err("a name is missing"),
        _ => {
            let (mut remaining, mut absolute) = (raw, false);
            while !remaining.is_empty() {
                let length_at = out.len();
                out.push(0);
                absolute = false;
                while !remaining.is_empty() {
                    if remaining[0] == b'.' {
                        absolute = true;
                        remaining = &remaining[1..];
                        break;
                    }
                    if remaining[0] == b'@' {
                        return Err(
                            "@ stands alone for the origin; write \\@ for the letter, and a dot in the SOA's mailbox",
                        );
                    }
                    let (byte, bytes) = unescape_byte(remaining)?;
                    out.push(byte);
                    remaining = &remaining[bytes..];
                }
                match out.len() - length_at - 1 {
                    0 => {
                        return Err(
                            "a name has no empty labels, but there are two dots in a row or one in front",
                        );
                    }
                    length @ 1..=LONGEST_LABEL => out[length_at] = length as u8,
                    _ => return Err("a label has at most 63 bytes"),
                }
            }
            out.extend_from_slice(if absolute { &[0] } else { origin });
        }
    }
    if out.len() - start > LONGEST_NAME { Err("a name has at most 255 bytes") } else { Ok(()) }
}

/// A name in the form of a zone file, absolute.
pub(crate) fn display_name(name: &[u8]) -> String {
    let (mut text, mut remaining) = (String::new(), name);
    while let Some((&length, after)) = remaining.split_first()
        && length > 0
    {
        let (label, next) = after.split_at(usize::from(length).min(after.len()));
        for &byte in label {
            match byte {
                b'.' | b'\\' | b'"' | b';' | b'(' | b')' | b'@' | b'$' => {
                    text.push('\\');
                    text.push(byte.into());
                }
                0x21..=0x7e => text.push(byte.into()),
                _ => text.push_str(&format!("\\{byte:03}")),
            }
        }
        text.push('.');
        remaining = next;
    }
    if text.is_empty() { ".".into() } else { text }
}

/// Appends a text without a length byte.
pub(super) fn bytes(raw: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    let mut remaining = raw;
    while !remaining.is_empty() {
        let (byte, length) = unescape_byte(remaining)?;
        out.push(byte);
        remaining = &remaining[length..];
    }
    Ok(())
}

// Appends a text of at most 255 bytes after a length byte.
pub(super) fn text(raw: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    let length_at = out.len();
    out.push(0);
    bytes(raw, out)?;
    out[length_at] = u8::try_from(out.len() - length_at - 1)
        .map_err(|_| "a text has at most 255 bytes; write more as several texts in quotes")?;
    Ok(())
}

pub(super) fn number<T: TryFrom<u64>>(raw: &[u8]) -> Option<T> {
    if raw.is_empty() || raw.len() > 19 {
        return None;
    }
    let mut digits = raw.iter().map(|byte| byte.is_ascii_digit().then(|| u64::from(byte - b'0')));
    let value = digits.try_fold(0u64, |total, digit| Some(total * 10 + digit?))?;
    T::try_from(value).ok()
}

/// Seconds, or numbers with units: `3600`, `1h`, `1h30m`, `2W`.
pub(super) fn period(raw: &[u8]) -> Option<u32> {
    let (mut total, mut value, mut digits) = (0u64, 0u64, false);
    for byte in raw {
        let seconds = match byte.to_ascii_lowercase() {
            digit @ b'0'..=b'9' => {
                value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
                digits = true;
                continue;
            }
            b's' => 1,
            b'm' => 60,
            b'h' => 3600,
            b'd' => 86_400,
            b'w' => 604_800,
            _ => return None,
        };
        if !digits {
            return None;
        }
        total = total.checked_add(value.checked_mul(seconds)?)?;
        (value, digits) = (0, false);
    }
    (!raw.is_empty()).then_some(())?;
    u32::try_from(total.checked_add(value)?).ok()
}

/// Appends bytes from pairs of hexadecimal digits; false for other text.
pub(super) fn hex(raw: &[u8], out: &mut Vec<u8>) -> bool {
    let digit = |byte: &u8| (*byte as char).to_digit(16);
    let (pairs, odd_digit) = raw.as_chunks::<2>();
    for [high, low] in pairs {
        let (Some(high), Some(low)) = (digit(high), digit(low)) else { return false };
        out.push((high << 4 | low) as u8);
    }
    odd_digit.is_empty()
}

/// Appends bytes from base 64 (RFC 4648, section 4), with or without padding.
pub(super) fn base64(raw: &[u8], out: &mut Vec<u8>) -> bool {
    let decoded = STANDARD.decode(raw).or_else(|_| STANDARD_NO_PAD.decode(raw)).unwrap_or_default();
    out.extend_from_slice(&decoded);
    !decoded.is_empty()
}

/// Appends bytes from base 32 with extended hexadecimal digits, without padding (RFC 4648, section 7).
pub(super) fn base32(raw: &[u8], out: &mut Vec<u8>) -> bool {
    let (mut pending_bits, mut count) = (0u32, 0);
    for byte in raw {
        let Some(value) = (*byte as char).to_digit(32) else { return false };
        pending_bits = pending_bits << 5 | value;
        count += 5;
        if count >= 8 {
            count -= 8;
            out.push((pending_bits >> count) as u8);
            pending_bits &= (1 << count) - 1;
        }
    }
    // The remaining bits must be 0.
    !raw.is_empty() && count < 5 && pending_bits == 0
}

// Seconds since 1970 modulo 2^32, given as such or as a time such as 20300101000000 (RFC 4034, section 3.2).
pub(super) fn time(raw: &[u8]) -> Option<u32> {
    if raw.len() != 14 {
        return number(raw);
    }
    let part = |range: std::ops::Range<usize>| number::<i64>(&raw[range]);
    let (year, month, day) = (part(0..4)?, part(4..6)?, part(6..8)?);
    let (hour, minute, second) = (part(8..10)?, part(10..12)?, part(12..14)?);
    let is_valid =
        (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 61;
    is_valid.then_some(())?;
    // Days since 1970, with years from March to February.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_parse_with_units() {
        for (text, seconds) in [("0", 0), ("3600", 3600), ("1h", 3600), ("1H30m", 5400), ("2w1d", 1_296_000)]
        {
            assert_eq!(period(text.as_bytes()), Some(seconds), "{text}");
        }
        for text in ["", "h", "1x", "1hh", "-1", "99999999999w", "4294967296"] {
            assert_eq!(period(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn names_are_relative_unless_they_end_with_a_dot() {
        let absolute_name = |text: &str| {
            let mut out = Vec::new();
            name(text.as_bytes(), false, b"\x01o\0", &mut out).map(|()| display_name(&out))
        };
        assert_eq!(absolute_name("a.b").as_deref(), Ok("a.b.o."));
        assert_eq!(absolute_name("a.b.").as_deref(), Ok("a.b."));
        assert_eq!(absolute_name("@").as_deref(), Ok("o."));
        assert_eq!(absolute_name("\\@.\\065\\.").as_deref(), Ok("\\@.A\\..o."));
        assert_eq!(absolute_name(".").as_deref(), Ok("."));
        for text in
            ["a..b", ".a", "hostmaster@o.", "a..", "..", "\\256", "\\1a", &"a".repeat(64), &"a.".repeat(128)]
        {
            assert!(absolute_name(text).is_err(), "{text}");
        }
    }

    #[test]
    fn base64_base32_hex_and_times_decode_per_rfc() {
        let bytes_of = |decode: fn(&[u8], &mut Vec<u8>) -> bool, text: &str| {
            let mut out = Vec::new();
            decode(text.as_bytes(), &mut out).then_some(out)
        };
        assert_eq!(bytes_of(base64, "Zm9vYg=="), Some(b"foob".to_vec()));
        assert_eq!(bytes_of(base64, "Zm9vYmE"), Some(b"fooba".to_vec()));
        assert_eq!(bytes_of(base64, "Zm9vY"), None);
        assert_eq!(bytes_of(base32, "CPNMUOJ1E8"), Some(b"foobar".to_vec()));
        assert_eq!((bytes_of(hex, "0aF"), bytes_of(hex, "0aFf")), (None, Some(vec![10, 255])));
        assert_eq!((time(b"20300101000000"), time(b"19700101000000")), (Some(1_893_456_000), Some(0)));
        assert_eq!((time(b"20301301000000"), time(b"7")), (None, Some(7)));
    }
}
