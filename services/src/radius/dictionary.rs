//! Names, numbers and how values are written, of the attributes that a file of users may have in replies and of those that
//! records of accounting have (RFC 2865, section 5; RFC 2866, section 5; RFC 2869; RFC 3162; RFC 8044).

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use super::packet::VALUE_BYTES;

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueForm {
    Text,
    Integer,
    Ipv4,
    Ipv6,
}

/// Of an attribute's values that have names, those.
type ValueNames = &'static [(&'static str, u32)];

const SERVICE_TYPES: ValueNames = &[
    ("Login-User", 1),
    ("Framed-User", 2),
    ("Callback-Login-User", 3),
    ("Callback-Framed-User", 4),
    ("Outbound-User", 5),
    ("Administrative-User", 6),
    ("NAS-Prompt-User", 7),
    ("Authenticate-Only", 8),
];
const PROTOCOLS: ValueNames = &[("PPP", 1), ("SLIP", 2)];
const TERMINATIONS: ValueNames = &[("Default", 0), ("RADIUS-Request", 1)];

const ATTRIBUTES: &[(&str, u8, ValueForm, ValueNames)] = &[
    ("Service-Type", 6, ValueForm::Integer, SERVICE_TYPES),
    ("Framed-Protocol", 7, ValueForm::Integer, PROTOCOLS),
    ("Framed-IP-Address", 8, ValueForm::Ipv4, &[]),
    ("Framed-IP-Netmask", 9, ValueForm::Ipv4, &[]),
    ("Framed-Routing", 10, ValueForm::Integer, &[]),
    ("Filter-Id", 11, ValueForm::Text, &[]),
    ("Framed-MTU", 12, ValueForm::Integer, &[]),
    ("Framed-Compression", 13, ValueForm::Integer, &[]),
    ("Login-IP-Host", 14, ValueForm::Ipv4, &[]),
    ("Login-Service", 15, ValueForm::Integer, &[]),
    ("Login-TCP-Port", 16, ValueForm::Integer, &[]),
    ("Reply-Message", 18, ValueForm::Text, &[]),
    ("Framed-Route", 22, ValueForm::Text, &[]),
    ("Class", 25, ValueForm::Text, &[]),
    ("Session-Timeout", 27, ValueForm::Integer, &[]),
    ("Idle-Timeout", 28, ValueForm::Integer, &[]),
    ("Termination-Action", 29, ValueForm::Integer, TERMINATIONS),
    ("Port-Limit", 62, ValueForm::Integer, &[]),
    ("Acct-Interim-Interval", 85, ValueForm::Integer, &[]),
    ("Framed-Pool", 88, ValueForm::Text, &[]),
    ("Login-IPv6-Host", 98, ValueForm::Ipv6, &[]),
    ("Framed-IPv6-Route", 99, ValueForm::Text, &[]),
    ("Framed-IPv6-Pool", 100, ValueForm::Text, &[]),
    ("Framed-IPv6-Address", 168, ValueForm::Ipv6, &[]),
];

const STATUS_TYPES: ValueNames = &[
    ("Start", 1),
    ("Stop", 2),
    ("Interim-Update", 3),
    ("Accounting-On", 7),
    ("Accounting-Off", 8),
    ("Failed", 15),
];
const AUTHENTICS: ValueNames = &[("RADIUS", 1), ("Local", 2), ("Remote", 3)];
const CAUSES: ValueNames = &[
    ("User-Request", 1),
    ("Lost-Carrier", 2),
    ("Lost-Service", 3),
    ("Idle-Timeout", 4),
    ("Session-Timeout", 5),
    ("Admin-Reset", 6),
    ("Admin-Reboot", 7),
    ("Port-Error", 8),
    ("NAS-Error", 9),
    ("NAS-Request", 10),
    ("NAS-Reboot", 11),
    ("Port-Unneeded", 12),
    ("Port-Preempted", 13),
    ("Port-Suspended", 14),
    ("Service-Unavailable", 15),
    ("Callback", 16),
    ("User-Error", 17),
    ("Host-Request", 18),
];

/// What requests have besides.
const ASKED: &[(&str, u8, ValueForm, ValueNames)] = &[
    ("User-Name", 1, ValueForm::Text, &[]),
    ("NAS-IP-Address", 4, ValueForm::Ipv4, &[]),
    ("NAS-Port", 5, ValueForm::Integer, &[]),
    ("Callback-Number", 19, ValueForm::Text, &[]),
    ("Called-Station-Id", 30, ValueForm::Text, &[]),
    ("Calling-Station-Id", 31, ValueForm::Text, &[]),
    ("NAS-Identifier", 32, ValueForm::Text, &[]),
    ("Acct-Status-Type", 40, ValueForm::Integer, STATUS_TYPES),
    ("Acct-Delay-Time", 41, ValueForm::Integer, &[]),
    ("Acct-Input-Octets", 42, ValueForm::Integer, &[]),
    ("Acct-Output-Octets", 43, ValueForm::Integer, &[]),
    ("Acct-Session-Id", 44, ValueForm::Text, &[]),
    ("Acct-Authentic", 45, ValueForm::Integer, AUTHENTICS),
    ("Acct-Session-Time", 46, ValueForm::Integer, &[]),
    ("Acct-Input-Packets", 47, ValueForm::Integer, &[]),
    ("Acct-Output-Packets", 48, ValueForm::Integer, &[]),
    ("Acct-Terminate-Cause", 49, ValueForm::Integer, CAUSES),
    ("Acct-Multi-Session-Id", 50, ValueForm::Text, &[]),
    ("Acct-Link-Count", 51, ValueForm::Integer, &[]),
    ("Acct-Input-Gigawords", 52, ValueForm::Integer, &[]),
    ("Acct-Output-Gigawords", 53, ValueForm::Integer, &[]),
    ("Event-Timestamp", 55, ValueForm::Integer, &[]),
    ("NAS-Port-Type", 61, ValueForm::Integer, &[]),
    ("Connect-Info", 77, ValueForm::Text, &[]),
    ("NAS-Port-Id", 87, ValueForm::Text, &[]),
    ("NAS-IPv6-Address", 95, ValueForm::Ipv6, &[]),
];

/// Numbers that a server sets or a request has, and that a file cannot: User-Password, CHAP-Password, State, Proxy-State,
/// CHAP-Challenge, EAP-Message, Message-Authenticator.
const OWN: [u8; 7] = [2, 3, 24, 33, 60, 79, 80];

/// What a file has as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DictionaryValue<'a> {
    Text(&'a str),
    Integer(i64),
}

/// A value as it is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum AttributeValue {
    /// Also an address, a value that has a name, and bytes as hexadecimal digits after `0x`.
    Text(String),
    Integer(u32),
}

/// The name and the value of an attribute, such that [`encode`] makes the same bytes of them where it knows the name. What is not as
/// its form has it is told as bytes, and so is text that would be taken for those.
pub(crate) fn decode(number: u8, bytes: &[u8]) -> (String, AttributeValue) {
    let found = ATTRIBUTES.iter().chain(ASKED).find(|(_, known, ..)| *known == number);
    let Some((name, _, form, names)) = found else {
        return (format!("Attr-{number}"), AttributeValue::Text(digits(bytes)));
    };
    let value = match form {
        ValueForm::Text => std::str::from_utf8(bytes)
            .ok()
            .filter(|text| !text.starts_with("0x"))
            .map(|text| AttributeValue::Text(text.to_owned())),
        ValueForm::Integer => bytes.try_into().ok().map(|bytes| {
            let number = u32::from_be_bytes(bytes);
            match names.iter().find(|(_, named)| *named == number) {
                Some((name, _)) => AttributeValue::Text((*name).to_owned()),
                None => AttributeValue::Integer(number),
            }
        }),
        ValueForm::Ipv4 => {
            <[u8; 4]>::try_from(bytes).ok().map(|v4| AttributeValue::Text(Ipv4Addr::from(v4).to_string()))
        }
        ValueForm::Ipv6 => {
            <[u8; 16]>::try_from(bytes).ok().map(|v6| AttributeValue::Text(Ipv6Addr::from(v6).to_string()))
        }
    };
    ((*name).to_owned(), value.unwrap_or_else(|| AttributeValue::Text(digits(bytes))))
}

fn digits(bytes: &[u8]) -> String {
    let mut text = "0x".to_owned();
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The number and the bytes of an attribute, or what is wrong with it. `Attr-N`, with N the number, takes any bytes as
/// hexadecimal digits after `0x`.
pub(crate) fn encode(name: &str, value: &DictionaryValue<'_>) -> Result<(u8, Vec<u8>), String> {
    let found = ATTRIBUTES.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name));
    let (number, bytes) = match (found, name.get(..5).filter(|start| start.eq_ignore_ascii_case("attr-"))) {
        (Some((_, number, form, names)), _) => (*number, known(*form, names, value)?),
        (None, Some(_)) => {
            let number = name[5..].parse::<u8>().ok().filter(|number| *number > 0 && !OWN.contains(number));
            let wrong =
                "Attr-N takes an N of 1 to 255 that is not the server's own (2, 3, 24, 33, 60, 79, 80)";
            (number.ok_or(wrong)?, any(value)?)
        }
        (None, None) => {
            let names: Vec<&str> = ATTRIBUTES.iter().map(|(name, ..)| *name).collect();
            return Err(format!("no attribute of a reply; known are {} and Attr-N", names.join(", ")));
        }
    };
    match bytes.len() {
        0 => Err("empty: an attribute has at least one byte".to_owned()),
        1..=VALUE_BYTES => Ok((number, bytes)),
        length => Err(format!("{length} bytes: an attribute has at most {VALUE_BYTES}")),
    }
}

fn known(form: ValueForm, names: ValueNames, value: &DictionaryValue<'_>) -> Result<Vec<u8>, String> {
    match (form, value) {
        (ValueForm::Text, DictionaryValue::Text(text)) => match text.strip_prefix("0x") {
            Some(digits) => hexadecimal(digits),
            None => Ok(text.as_bytes().to_vec()),
        },
        (ValueForm::Integer, DictionaryValue::Integer(number)) => match u32::try_from(*number) {
            Ok(number) => Ok(number.to_be_bytes().to_vec()),
            Err(_) => Err(format!("{number} is not within 0 to 4294967295")),
        },
        (ValueForm::Integer, DictionaryValue::Text(text)) if !names.is_empty() => {
            let found = names.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
            let all = || names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            found
                .map(|(_, number)| number.to_be_bytes().to_vec())
                .ok_or_else(|| format!("\"{text}\" is none of {}", all()))
        }
        (ValueForm::Ipv4, DictionaryValue::Text(text)) => match text.parse::<Ipv4Addr>() {
            Ok(address) => Ok(address.octets().to_vec()),
            Err(_) => Err(format!("\"{text}\" is not an IPv4 address")),
        },
        (ValueForm::Ipv6, DictionaryValue::Text(text)) => match text.parse::<Ipv6Addr>() {
            Ok(address) => Ok(address.octets().to_vec()),
            Err(_) => Err(format!("\"{text}\" is not an IPv6 address")),
        },
        (ValueForm::Integer, DictionaryValue::Text(_)) => Err("takes a number, without quotes".to_owned()),
        (ValueForm::Text | ValueForm::Ipv4 | ValueForm::Ipv6, DictionaryValue::Integer(_)) => {
            Err("takes text, in quotes".to_owned())
        }
    }
}

fn any(value: &DictionaryValue<'_>) -> Result<Vec<u8>, String> {
    match value {
        DictionaryValue::Text(text) => text.strip_prefix("0x").map_or_else(
            || Err("Attr-N takes hexadecimal digits after 0x, in quotes".to_owned()),
            hexadecimal,
        ),
        DictionaryValue::Integer(_) => Err("Attr-N takes hexadecimal digits after 0x, in quotes".to_owned()),
    }
}

fn hexadecimal(digits: &str) -> Result<Vec<u8>, String> {
    let wrong = || "0x is followed by pairs of hexadecimal digits".to_owned();
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| wrong()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_as_on_the_wire() {
        let text = |name: &str, value: &str| encode(name, &DictionaryValue::Text(value));
        let integer = |name: &str, value: i64| encode(name, &DictionaryValue::Integer(value));
        assert_eq!(text("reply-message", "hello"), Ok((18, b"hello".to_vec())));
        assert_eq!(text("Framed-IP-Address", "192.0.2.7"), Ok((8, vec![192, 0, 2, 7])));
        assert_eq!(integer("Session-Timeout", 3600), Ok((27, vec![0, 0, 14, 16])));
        assert_eq!(text("Service-Type", "Framed-User"), Ok((6, vec![0, 0, 0, 2])));
        assert_eq!(text("Class", "0x00ff"), Ok((25, vec![0, 255])));
        assert_eq!(text("Attr-26", "0x0000000901"), Ok((26, vec![0, 0, 0, 9, 1])));
        assert_eq!(text("Login-IPv6-Host", "::1").map(|(number, bytes)| (number, bytes[15])), Ok((98, 1)));
    }

    #[test]
    fn what_is_told_means_the_same_bytes() {
        for (name, number, form, names) in ATTRIBUTES {
            let bytes: &[u8] = match form {
                ValueForm::Text => b"any text",
                ValueForm::Integer => &[0, 0, 0, 1],
                ValueForm::Ipv4 => &[192, 0, 2, 1],
                ValueForm::Ipv6 => &[0x20, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            };
            let (told, value) = decode(*number, bytes);
            assert_eq!(told, *name);
            let written = match &value {
                AttributeValue::Text(text) => DictionaryValue::Text(text),
                AttributeValue::Integer(number) => DictionaryValue::Integer((*number).into()),
            };
            assert_eq!(encode(&told, &written), Ok((*number, bytes.to_vec())), "{name} {names:?}");
        }
        assert_eq!(decode(18, &[0xff, 0]).1, AttributeValue::Text("0xff00".to_owned()));
        assert_eq!(decode(4, &[1, 2, 3]).1, AttributeValue::Text("0x010203".to_owned()));
    }

    #[test]
    fn wrong_ones_say_what_is_wrong() {
        let wrong = |name: &str, value: DictionaryValue<'_>| encode(name, &value).unwrap_err();
        assert!(wrong("Framed-IP-Adress", DictionaryValue::Integer(1)).contains("known are Service-Type, "));
        assert!(wrong("Framed-IP-Address", DictionaryValue::Text("x")).contains("not an IPv4 address"));
        assert!(wrong("Session-Timeout", DictionaryValue::Text("60")).contains("without quotes"));
        assert!(wrong("Session-Timeout", DictionaryValue::Integer(-1)).contains("4294967295"));
        assert!(wrong("Reply-Message", DictionaryValue::Text(&"x".repeat(254))).contains("at most 253"));
        assert!(wrong("Reply-Message", DictionaryValue::Text("")).contains("empty"));
        assert!(wrong("Attr-80", DictionaryValue::Text("0x00")).contains("server's own"));
        assert!(wrong("Attr-25", DictionaryValue::Text("00")).contains("after 0x"));
        assert!(wrong("Attr-25", DictionaryValue::Text("0x0é")).contains("pairs"));
    }
}
