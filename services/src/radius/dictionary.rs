//! Names, numbers and how values are written, of the attributes that a file of users may have in replies and of those that
//! records of accounting have (RFC 2865, section 5; RFC 2866, section 5; RFC 2869; RFC 3162; RFC 8044).

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use super::packet::VALUE_BYTES;

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Integer,
    Ipv4,
    Ipv6,
}

/// Of an attribute's values that have names, those.
type Names = &'static [(&'static str, u32)];

const SERVICE_TYPES: Names = &[
    ("Login-User", 1),
    ("Framed-User", 2),
    ("Callback-Login-User", 3),
    ("Callback-Framed-User", 4),
    ("Outbound-User", 5),
    ("Administrative-User", 6),
    ("NAS-Prompt-User", 7),
    ("Authenticate-Only", 8),
];
const PROTOCOLS: Names = &[("PPP", 1), ("SLIP", 2)];
const TERMINATIONS: Names = &[("Default", 0), ("RADIUS-Request", 1)];

const ATTRIBUTES: &[(&str, u8, Form, Names)] = &[
    ("Service-Type", 6, Form::Integer, SERVICE_TYPES),
    ("Framed-Protocol", 7, Form::Integer, PROTOCOLS),
    ("Framed-IP-Address", 8, Form::Ipv4, &[]),
    ("Framed-IP-Netmask", 9, Form::Ipv4, &[]),
    ("Framed-Routing", 10, Form::Integer, &[]),
    ("Filter-Id", 11, Form::Text, &[]),
    ("Framed-MTU", 12, Form::Integer, &[]),
    ("Framed-Compression", 13, Form::Integer, &[]),
    ("Login-IP-Host", 14, Form::Ipv4, &[]),
    ("Login-Service", 15, Form::Integer, &[]),
    ("Login-TCP-Port", 16, Form::Integer, &[]),
    ("Reply-Message", 18, Form::Text, &[]),
    ("Framed-Route", 22, Form::Text, &[]),
    ("Class", 25, Form::Text, &[]),
    ("Session-Timeout", 27, Form::Integer, &[]),
    ("Idle-Timeout", 28, Form::Integer, &[]),
    ("Termination-Action", 29, Form::Integer, TERMINATIONS),
    ("Port-Limit", 62, Form::Integer, &[]),
    ("Acct-Interim-Interval", 85, Form::Integer, &[]),
    ("Framed-Pool", 88, Form::Text, &[]),
    ("Login-IPv6-Host", 98, Form::Ipv6, &[]),
    ("Framed-IPv6-Route", 99, Form::Text, &[]),
    ("Framed-IPv6-Pool", 100, Form::Text, &[]),
    ("Framed-IPv6-Address", 168, Form::Ipv6, &[]),
];

const STATUS_TYPES: Names = &[
    ("Start", 1),
    ("Stop", 2),
    ("Interim-Update", 3),
    ("Accounting-On", 7),
    ("Accounting-Off", 8),
    ("Failed", 15),
];
const AUTHENTICS: Names = &[("RADIUS", 1), ("Local", 2), ("Remote", 3)];
const CAUSES: Names = &[
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
const ASKED: &[(&str, u8, Form, Names)] = &[
    ("User-Name", 1, Form::Text, &[]),
    ("NAS-IP-Address", 4, Form::Ipv4, &[]),
    ("NAS-Port", 5, Form::Integer, &[]),
    ("Callback-Number", 19, Form::Text, &[]),
    ("Called-Station-Id", 30, Form::Text, &[]),
    ("Calling-Station-Id", 31, Form::Text, &[]),
    ("NAS-Identifier", 32, Form::Text, &[]),
    ("Acct-Status-Type", 40, Form::Integer, STATUS_TYPES),
    ("Acct-Delay-Time", 41, Form::Integer, &[]),
    ("Acct-Input-Octets", 42, Form::Integer, &[]),
    ("Acct-Output-Octets", 43, Form::Integer, &[]),
    ("Acct-Session-Id", 44, Form::Text, &[]),
    ("Acct-Authentic", 45, Form::Integer, AUTHENTICS),
    ("Acct-Session-Time", 46, Form::Integer, &[]),
    ("Acct-Input-Packets", 47, Form::Integer, &[]),
    ("Acct-Output-Packets", 48, Form::Integer, &[]),
    ("Acct-Terminate-Cause", 49, Form::Integer, CAUSES),
    ("Acct-Multi-Session-Id", 50, Form::Text, &[]),
    ("Acct-Link-Count", 51, Form::Integer, &[]),
    ("Acct-Input-Gigawords", 52, Form::Integer, &[]),
    ("Acct-Output-Gigawords", 53, Form::Integer, &[]),
    ("Event-Timestamp", 55, Form::Integer, &[]),
    ("NAS-Port-Type", 61, Form::Integer, &[]),
    ("Connect-Info", 77, Form::Text, &[]),
    ("NAS-Port-Id", 87, Form::Text, &[]),
    ("NAS-IPv6-Address", 95, Form::Ipv6, &[]),
];

/// Numbers that a server sets or a request has, and that a file cannot: User-Password, CHAP-Password, State, Proxy-State,
/// CHAP-Challenge, EAP-Message, Message-Authenticator.
const OWN: [u8; 7] = [2, 3, 24, 33, 60, 79, 80];

/// What a file has as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Written<'a> {
    Text(&'a str),
    Integer(i64),
}

/// A value as it is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Value {
    /// Also an address, a value that has a name, and bytes as hexadecimal digits after `0x`.
    Text(String),
    Integer(u32),
}

/// The name and the value of an attribute, such that [`encode`] makes the same bytes of them where it knows the name. What is not as
/// its form has it is told as bytes, and so is text that would be taken for those.
pub(crate) fn decode(number: u8, bytes: &[u8]) -> (String, Value) {
    let found = ATTRIBUTES.iter().chain(ASKED).find(|(_, known, ..)| *known == number);
    let Some((name, _, form, names)) = found else {
        return (format!("Attr-{number}"), Value::Text(digits(bytes)));
    };
    let value = match form {
        Form::Text => std::str::from_utf8(bytes)
            .ok()
            .filter(|text| !text.starts_with("0x"))
            .map(|text| Value::Text(text.to_owned())),
        Form::Integer => bytes.try_into().ok().map(|bytes| {
            let number = u32::from_be_bytes(bytes);
            match names.iter().find(|(_, named)| *named == number) {
                Some((name, _)) => Value::Text((*name).to_owned()),
                None => Value::Integer(number),
            }
        }),
        Form::Ipv4 => <[u8; 4]>::try_from(bytes).ok().map(|v4| Value::Text(Ipv4Addr::from(v4).to_string())),
        Form::Ipv6 => <[u8; 16]>::try_from(bytes).ok().map(|v6| Value::Text(Ipv6Addr::from(v6).to_string())),
    };
    ((*name).to_owned(), value.unwrap_or_else(|| Value::Text(digits(bytes))))
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
pub(crate) fn encode(name: &str, value: &Written<'_>) -> Result<(u8, Vec<u8>), String> {
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

fn known(form: Form, names: Names, value: &Written<'_>) -> Result<Vec<u8>, String> {
    match (form, value) {
        (Form::Text, Written::Text(text)) => match text.strip_prefix("0x") {
            Some(digits) => hexadecimal(digits),
            None => Ok(text.as_bytes().to_vec()),
        },
        (Form::Integer, Written::Integer(number)) => match u32::try_from(*number) {
            Ok(number) => Ok(number.to_be_bytes().to_vec()),
            Err(_) => Err(format!("{number} is not within 0 to 4294967295")),
        },
        (Form::Integer, Written::Text(text)) if !names.is_empty() => {
            let found = names.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
            let all = || names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            found
                .map(|(_, number)| number.to_be_bytes().to_vec())
                .ok_or_else(|| format!("\"{text}\" is none of {}", all()))
        }
        (Form::Ipv4, Written::Text(text)) => match text.parse::<Ipv4Addr>() {
            Ok(address) => Ok(address.octets().to_vec()),
            Err(_) => Err(format!("\"{text}\" is not an IPv4 address")),
        },
        (Form::Ipv6, Written::Text(text)) => match text.parse::<Ipv6Addr>() {
            Ok(address) => Ok(address.octets().to_vec()),
            Err(_) => Err(format!("\"{text}\" is not an IPv6 address")),
        },
        (Form::Integer, Written::Text(_)) => Err("takes a number, without quotes".to_owned()),
        (Form::Text | Form::Ipv4 | Form::Ipv6, Written::Integer(_)) => {
            Err("takes text, in quotes".to_owned())
        }
    }
}

fn any(value: &Written<'_>) -> Result<Vec<u8>, String> {
    match value {
        Written::Text(text) => text.strip_prefix("0x").map_or_else(
            || Err("Attr-N takes hexadecimal digits after 0x, in quotes".to_owned()),
            hexadecimal,
        ),
        Written::Integer(_) => Err("Attr-N takes hexadecimal digits after 0x, in quotes".to_owned()),
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
        let text = |name: &str, value: &str| encode(name, &Written::Text(value));
        let integer = |name: &str, value: i64| encode(name, &Written::Integer(value));
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
                Form::Text => b"any text",
                Form::Integer => &[0, 0, 0, 1],
                Form::Ipv4 => &[192, 0, 2, 1],
                Form::Ipv6 => &[0x20, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            };
            let (told, value) = decode(*number, bytes);
            assert_eq!(told, *name);
            let written = match &value {
                Value::Text(text) => Written::Text(text),
                Value::Integer(number) => Written::Integer((*number).into()),
            };
            assert_eq!(encode(&told, &written), Ok((*number, bytes.to_vec())), "{name} {names:?}");
        }
        assert_eq!(decode(18, &[0xff, 0]).1, Value::Text("0xff00".to_owned()));
        assert_eq!(decode(4, &[1, 2, 3]).1, Value::Text("0x010203".to_owned()));
    }

    #[test]
    fn wrong_ones_say_what_is_wrong() {
        let wrong = |name: &str, value: Written<'_>| encode(name, &value).unwrap_err();
        assert!(wrong("Framed-IP-Adress", Written::Integer(1)).contains("known are Service-Type, "));
        assert!(wrong("Framed-IP-Address", Written::Text("x")).contains("not an IPv4 address"));
        assert!(wrong("Session-Timeout", Written::Text("60")).contains("without quotes"));
        assert!(wrong("Session-Timeout", Written::Integer(-1)).contains("4294967295"));
        assert!(wrong("Reply-Message", Written::Text(&"x".repeat(254))).contains("at most 253"));
        assert!(wrong("Reply-Message", Written::Text("")).contains("empty"));
        assert!(wrong("Attr-80", Written::Text("0x00")).contains("server's own"));
        assert!(wrong("Attr-25", Written::Text("00")).contains("after 0x"));
        assert!(wrong("Attr-25", Written::Text("0x0é")).contains("pairs"));
    }
}
