//! Data with a format of its own: LOC, APL, SVCB and HTTPS.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::super::lexer::ZoneWord;
use super::super::value;
use super::words::{RdataError, RdataWords, parse_text, unexpected_word};

// Service parameter keys (RFC 9460, section 14.3.2) by number.
const SERVICE_KEYS: [&str; 9] =
    ["mandatory", "alpn", "no-default-alpn", "port", "ipv4hint", "ech", "ipv6hint", "dohpath", "ohttp"];

impl<'a, I: Iterator<Item = ZoneWord<'a>> + Clone> RdataWords<'_, I> {
    pub(super) fn location(&mut self) -> Result<(), RdataError> {
        let mut angles = [0; 2];
        for (angle, (max_degrees, [plus, minus])) in angles.iter_mut().zip([(90, *b"NS"), (180, *b"EW")]) {
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
                            _ => (value::number(raw), if parts == 0 { max_degrees } else { 59 }),
                        };
                        let value = value
                            .filter(|value| *value <= limit)
                            .ok_or_else(|| unexpected_word(word, expected))?;
                        thousandths += if parts == 2 { value } else { value * unit };
                        parts += 1;
                        continue;
                    }
                };
                if thousandths > max_degrees * 3_600_000 {
                    return Err(format!("an angle is at most {max_degrees} degrees"));
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
        // The RFC's defaults: 1 m, 10,000 m and 10 m.
        let mut sizes = [0x12, 0x16, 0x13];
        for size in &mut sizes {
            if self.has_more() {
                *size = self.value("a size in meters up to 90000000, as 10m", |raw| {
                    let (mut mantissa, mut exponent) = (meters(raw).filter(|size| *size >= 0)?, 0);
                    while mantissa > 9 {
                        (mantissa, exponent) = (mantissa / 10, exponent + 1);
                    }
                    (exponent <= 9).then_some((mantissa as u8) << 4 | exponent)
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

    pub(super) fn prefixes(&mut self) -> Result<(), RdataError> {
        for word in self.words.by_ref() {
            let text = std::str::from_utf8(word.raw).unwrap_or_default();
            let (negated, text) = text.strip_prefix('!').map_or((0, text), |text| (0x80, text));
            let parse_prefix = || {
                let (family, address_text) = text.split_once(':')?;
                let (address, prefix) = address_text.rsplit_once('/')?;
                let (bytes, max_prefix) = match family {
                    "1" => (address.parse::<Ipv4Addr>().ok()?.octets().to_vec(), 32),
                    "2" => (address.parse::<Ipv6Addr>().ok()?.octets().to_vec(), 128),
                    _ => return None,
                };
                let prefix = prefix.parse::<u8>().ok().filter(|prefix| *prefix <= max_prefix)?;
                Some((family.as_bytes()[0] - b'0', bytes, prefix))
            };
            let (family, mut bytes, prefix) = parse_prefix().ok_or_else(|| {
                unexpected_word(word, "a prefix such as 1:192.0.2.0/24 or !2:2001:db8::/32")
            })?;
            bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |index| index + 1));
            self.out.extend_from_slice(&[0, family, prefix, negated | bytes.len() as u8]);
            self.out.extend_from_slice(&bytes);
        }
        Ok(())
    }

    pub(super) fn parameters(&mut self) -> Result<(), RdataError> {
        let mut encoded_parameters: Vec<(u16, Vec<u8>)> = Vec::new();
        for word in self.words.by_ref() {
            let (key, raw_value) = match word.raw.iter().position(|byte| *byte == b'=') {
                Some(equals_at) => (&word.raw[..equals_at], Some(&word.raw[equals_at + 1..])),
                None => (word.raw, None),
            };
            let number = service_key(key).ok_or_else(|| unexpected_word(word, "a service parameter"))?;
            let data = parameter(number, raw_value)
                .ok_or_else(|| unexpected_word(word, "a service parameter with a right value"))?;
            encoded_parameters.push((number, data));
        }
        encoded_parameters.sort();
        if encoded_parameters.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err("a service parameter is there twice".into());
        }
        for (key, data) in encoded_parameters {
            self.out.extend_from_slice(&key.to_be_bytes());
            self.out.extend_from_slice(&(data.len() as u16).to_be_bytes());
            self.out.extend_from_slice(&data);
        }
        Ok(())
    }
}

fn service_key(raw: &[u8]) -> Option<u16> {
    match SERVICE_KEYS.iter().position(|key| key.as_bytes() == raw) {
        Some(number) => Some(number as u16),
        None => value::number(raw.strip_prefix(b"key")?),
    }
}

/// The value of a service parameter in wire form.
fn parameter(key: u16, raw_value: Option<&[u8]>) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    value::bytes(raw_value.unwrap_or_default(), &mut text).ok()?;
    let list_items = || text.split(|byte| *byte == b',');
    let mut data = Vec::new();
    match key {
        0 => {
            let mut keys = list_items().map(service_key).collect::<Option<Vec<u16>>>()?;
            keys.sort_unstable();
            keys.iter().for_each(|key| data.extend_from_slice(&key.to_be_bytes()));
        }
        1 => {
            for item in items(&text) {
                data.push(u8::try_from(item.len()).ok().filter(|length| *length > 0)?);
                data.extend_from_slice(&item);
            }
        }
        2 | 8 => raw_value.is_none().then_some(())?,
        3 => data.extend_from_slice(&value::number::<u16>(&text)?.to_be_bytes()),
        4 => {
            for item in list_items() {
                data.extend_from_slice(&parse_text::<Ipv4Addr>(item)?.octets());
            }
        }
        5 => value::base64(&text, &mut data).then_some(())?,
        6 => {
            for item in list_items() {
                data.extend_from_slice(&parse_text::<Ipv6Addr>(item)?.octets());
            }
        }
        _ => data = text,
    }
    Some(data)
}

// The items of a list, in which `\,` is a comma and `\\` a backslash (RFC 9460, appendix A.1).
fn items(text: &[u8]) -> Vec<Vec<u8>> {
    let (mut list, mut escaped) = (vec![Vec::new()], false);
    for byte in text {
        let last = list.len() - 1;
        match byte {
            b'\\' if !escaped => escaped = true,
            b',' if !escaped => list.push(Vec::new()),
            _ => {
                list[last].push(*byte);
                escaped = false;
            }
        }
    }
    list
}

/// A decimal number with up to `decimals` digits after the point, in units of the last place.
fn decimal(raw: &[u8], decimals: usize) -> Option<i64> {
    let (whole, fraction) = match raw.iter().position(|byte| *byte == b'.') {
        Some(dot_at) => (&raw[..dot_at], &raw[dot_at + 1..]),
        None => (raw, &[][..]),
    };
    if fraction.len() > decimals || whole.len() > 9 {
        return None;
    }
    let digits = whole.iter().chain(fraction).chain(std::iter::repeat_n(&b'0', decimals - fraction.len()));
    value::number(&digits.copied().collect::<Vec<u8>>())
}
