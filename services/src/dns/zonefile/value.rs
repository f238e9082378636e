//! Words of a zone file: names in wire form, texts and periods.

use domain::base::name::Name;

use super::super::rtype::LONGEST_NAME;

const LONGEST_LABEL: usize = 63;

/// The first byte of `raw` without its escape, and the length of the escape.
pub(super) fn unescape_byte(raw: &[u8]) -> Result<(u8, usize), &'static str> {
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

/// A name in wire form as text, with a dot at its end.
pub(crate) fn display_name(name: &[u8]) -> String {
    Name::from_slice(name).map(|name| name.fmt_with_dot().to_string()).unwrap_or_default()
}

/// Appends a text.
pub(super) fn bytes(raw: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    let mut remaining = raw;
    while !remaining.is_empty() {
        let (byte, length) = unescape_byte(remaining)?;
        out.push(byte);
        remaining = &remaining[length..];
    }
    Ok(())
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
        assert_eq!(absolute_name("\\@.\\065\\.").as_deref(), Ok("@.A\\..o."));
        assert_eq!(absolute_name(".").as_deref(), Ok("."));
        for text in
            ["a..b", ".a", "hostmaster@o.", "a..", "..", "\\256", "\\1a", &"a".repeat(64), &"a.".repeat(128)]
        {
            assert!(absolute_name(text).is_err(), "{text}");
        }
    }
}
