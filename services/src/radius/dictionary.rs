//! Attributes that a file of users may put into replies, and those of accounting records: names, numbers and forms of values
//! (RFC 2865, section 5; RFC 2866, section 5; RFC 2869; RFC 3162; RFC 8044).

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use self::ValueForm::{Integer, Ipv4, Ipv6, Named, Text};
use super::packet::VALUE_BYTES;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueForm {
    Text,
    Integer,
    /// An integer whose values have names: a list, starting with the name of 0. `-` stands for a value without a name.
    Named(&'static str),
    Ipv4,
    Ipv6,
}

const SERVICE_TYPES: ValueForm = Named(
    "- Login-User Framed-User Callback-Login-User Callback-Framed-User Outbound-User Administrative-User NAS-Prompt-User \
     Authenticate-Only",
);
const STATUS_TYPES: ValueForm =
    Named("- Start Stop Interim-Update - - - Accounting-On Accounting-Off - - - - - - Failed");
const CAUSES: ValueForm = Named(
    "- User-Request Lost-Carrier Lost-Service Idle-Timeout Session-Timeout Admin-Reset Admin-Reboot Port-Error NAS-Error \
     NAS-Request NAS-Reboot Port-Unneeded Port-Preempted Port-Suspended Service-Unavailable Callback User-Error Host-Request",
);

/// Attributes of replies.
const REPLY: &[(&str, u8, ValueForm)] = &[
    ("Service-Type", 6, SERVICE_TYPES),
    ("Framed-Protocol", 7, Named("- PPP SLIP")),
    ("Framed-IP-Address", 8, Ipv4),
    ("Framed-IP-Netmask", 9, Ipv4),
    ("Framed-Routing", 10, Integer),
    ("Filter-Id", 11, Text),
    ("Framed-MTU", 12, Integer),
    ("Framed-Compression", 13, Integer),
    ("Login-IP-Host", 14, Ipv4),
    ("Login-Service", 15, Integer),
    ("Login-TCP-Port", 16, Integer),
    ("Reply-Message", 18, Text),
    ("Framed-Route", 22, Text),
    ("Class", 25, Text),
    ("Session-Timeout", 27, Integer),
    ("Idle-Timeout", 28, Integer),
    ("Termination-Action", 29, Named("Default RADIUS-Request")),
    ("Port-Limit", 62, Integer),
    ("Acct-Interim-Interval", 85, Integer),
    ("Framed-Pool", 88, Text),
    ("Login-IPv6-Host", 98, Ipv6),
    ("Framed-IPv6-Route", 99, Text),
    ("Framed-IPv6-Pool", 100, Text),
    ("Framed-IPv6-Address", 168, Ipv6),
];

/// Further attributes of requests.
const REQUEST: &[(&str, u8, ValueForm)] = &[
    ("User-Name", 1, Text),
    ("NAS-IP-Address", 4, Ipv4),
    ("NAS-Port", 5, Integer),
    ("Callback-Number", 19, Text),
    ("Called-Station-Id", 30, Text),
    ("Calling-Station-Id", 31, Text),
    ("NAS-Identifier", 32, Text),
    ("Acct-Status-Type", 40, STATUS_TYPES),
    ("Acct-Delay-Time", 41, Integer),
    ("Acct-Input-Octets", 42, Integer),
    ("Acct-Output-Octets", 43, Integer),
    ("Acct-Session-Id", 44, Text),
    ("Acct-Authentic", 45, Named("- RADIUS Local Remote")),
    ("Acct-Session-Time", 46, Integer),
    ("Acct-Input-Packets", 47, Integer),
    ("Acct-Output-Packets", 48, Integer),
    ("Acct-Terminate-Cause", 49, CAUSES),
    ("Acct-Multi-Session-Id", 50, Text),
    ("Acct-Link-Count", 51, Integer),
    ("Acct-Input-Gigawords", 52, Integer),
    ("Acct-Output-Gigawords", 53, Integer),
    ("Event-Timestamp", 55, Integer),
    ("NAS-Port-Type", 61, Integer),
    ("Connect-Info", 77, Text),
    ("NAS-Port-Id", 87, Text),
    ("NAS-IPv6-Address", 95, Ipv6),
];

// Attributes that only the server or a client sets: User-Password, CHAP-Password, State, Proxy-State, CHAP-Challenge,
// EAP-Message, Message-Authenticator.
const RESERVED: [u8; 7] = [2, 3, 24, 33, 60, 79, 80];

/// A value in a file of users or in a record. Addresses, named values and bytes (hexadecimal digits after `0x`) are text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum AttributeValue {
    Text(String),
    Integer(i64),
}

use AttributeValue as Value;

/// The name and the value of an attribute, from which [`encode`] makes the same bytes. Bytes that do not have the form of the
/// attribute, and text that starts with `0x`, become hexadecimal digits.
pub(crate) fn decode(number: u8, bytes: &[u8]) -> (String, AttributeValue) {
    let found = REPLY.iter().chain(REQUEST).find(|(_, known, _)| *known == number);
    let Some((name, _, form)) = found else {
        return (format!("Attr-{number}"), Value::Text(hex_text(bytes)));
    };
    let integer = || Some(u32::from_be_bytes(bytes.try_into().ok()?));
    let value = match form {
        Text => std::str::from_utf8(bytes)
            .ok()
            .filter(|text| !text.starts_with("0x"))
            .map(|text| Value::Text(text.to_owned())),
        Integer => integer().map(|number| Value::Integer(number.into())),
        Named(names) => integer().map(|number| {
            let name = names.split(' ').nth(number as usize).filter(|name| *name != "-");
            name.map_or(Value::Integer(number.into()), |name| Value::Text(name.to_owned()))
        }),
        Ipv4 => <[u8; 4]>::try_from(bytes).ok().map(|v4| Value::Text(Ipv4Addr::from(v4).to_string())),
        Ipv6 => <[u8; 16]>::try_from(bytes).ok().map(|v6| Value::Text(Ipv6Addr::from(v6).to_string())),
    };
    ((*name).to_owned(), value.unwrap_or_else(|| Value::Text(hex_text(bytes))))
}

fn hex_text(bytes: &[u8]) -> String {
    let mut text = "0x".to_owned();
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The number and the bytes of an attribute of a reply, or an error message. `Attr-N` with number N has any bytes, as
/// hexadecimal digits after `0x`.
pub(crate) fn encode(name: &str, value: &AttributeValue) -> Result<(u8, Vec<u8>), String> {
    let found = REPLY.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name));
    let (number, bytes) = match (found, name.get(..5).filter(|start| start.eq_ignore_ascii_case("attr-"))) {
        (Some((_, number, form)), _) => (*number, encode_form(*form, value)?),
        (None, Some(_)) => {
            let number =
                name[5..].parse::<u8>().ok().filter(|number| *number > 0 && !RESERVED.contains(number));
            let wrong =
                "Attr-N takes an N of 1 to 255 that is not the server's own (2, 3, 24, 33, 60, 79, 80)";
            let digits = match value {
                Value::Text(text) => text.strip_prefix("0x"),
                Value::Integer(_) => None,
            };
            let digits = digits.ok_or("Attr-N takes hexadecimal digits after 0x, in quotes")?;
            (number.ok_or(wrong)?, hex_bytes(digits)?)
        }
        (None, None) => {
            let names: Vec<&str> = REPLY.iter().map(|(name, ..)| *name).collect();
            return Err(format!("no attribute of a reply; known are {} and Attr-N", names.join(", ")));
        }
    };
    match bytes.len() {
        0 => Err("empty: an attribute has at least one byte".to_owned()),
        1..=VALUE_BYTES => Ok((number, bytes)),
        length => Err(format!("{length} bytes: an attribute has at most {VALUE_BYTES}")),
    }
}

fn encode_form(form: ValueForm, value: &AttributeValue) -> Result<Vec<u8>, String> {
    match (form, value) {
        (Text, Value::Text(text)) => match text.strip_prefix("0x") {
            Some(digits) => hex_bytes(digits),
            None => Ok(text.as_bytes().to_vec()),
        },
        (Integer | Named(_), Value::Integer(number)) => match u32::try_from(*number) {
            Ok(number) => Ok(number.to_be_bytes().to_vec()),
            Err(_) => Err(format!("{number} is not within 0 to 4294967295")),
        },
        (Named(names), Value::Text(text)) => {
            let mut known = (0_u32..).zip(names.split(' ')).filter(|(_, name)| *name != "-");
            match known.clone().find(|(_, name)| name.eq_ignore_ascii_case(text)) {
                Some((number, _)) => Ok(number.to_be_bytes().to_vec()),
                None => {
                    let first = known.next().map_or("", |(_, name)| name);
                    let all = known.fold(first.to_owned(), |all, (_, name)| format!("{all}, {name}"));
                    Err(format!("\"{text}\" is none of {all}"))
                }
            }
        }
        (Ipv4, Value::Text(text)) => match text.parse::<Ipv4Addr>() {
            Ok(address) => Ok(address.octets().to_vec()),
            Err(_) => Err(format!("\"{text}\" is not an IPv4 address")),
        },
        (Ipv6, Value::Text(text)) => match text.parse::<Ipv6Addr>() {
            Ok(address) => Ok(address.octets().to_vec()),
            Err(_) => Err(format!("\"{text}\" is not an IPv6 address")),
        },
        (Integer, Value::Text(_)) => Err("takes a number, without quotes".to_owned()),
        (Text | Ipv4 | Ipv6, Value::Integer(_)) => Err("takes text, in quotes".to_owned()),
    }
}

fn hex_bytes(digits: &str) -> Result<Vec<u8>, String> {
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err("0x is followed by pairs of hexadecimal digits".to_owned());
    }
    let pairs = (0..digits.len()).step_by(2);
    Ok(pairs.filter_map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, value: &str) -> Result<(u8, Vec<u8>), String> {
        encode(name, &Value::Text(value.to_owned()))
    }

    fn integer(name: &str, value: i64) -> Result<(u8, Vec<u8>), String> {
        encode(name, &Value::Integer(value))
    }

    #[test]
    fn values_are_as_on_the_wire() {
        assert_eq!(text("reply-message", "hello"), Ok((18, b"hello".to_vec())));
        assert_eq!(text("Framed-IP-Address", "192.0.2.7"), Ok((8, vec![192, 0, 2, 7])));
        assert_eq!(integer("Session-Timeout", 3600), Ok((27, vec![0, 0, 14, 16])));
        assert_eq!(text("Service-Type", "Framed-User"), Ok((6, vec![0, 0, 0, 2])));
        assert_eq!(text("Termination-Action", "RADIUS-Request"), Ok((29, vec![0, 0, 0, 1])));
        assert_eq!(text("Class", "0x00ff"), Ok((25, vec![0, 255])));
        assert_eq!(text("Attr-26", "0x0000000901"), Ok((26, vec![0, 0, 0, 9, 1])));
        assert_eq!(text("Login-IPv6-Host", "::1").map(|(number, bytes)| (number, bytes[15])), Ok((98, 1)));
    }

    #[test]
    fn decoded_values_encode_to_the_same_bytes() {
        for (name, number, form) in REPLY {
            let bytes: &[u8] = match form {
                Text => b"any text",
                Integer | Named(_) => &[0, 0, 0, 1],
                Ipv4 => &[192, 0, 2, 1],
                Ipv6 => &[0x20, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            };
            let (decoded, value) = decode(*number, bytes);
            assert_eq!(decoded, *name);
            assert_eq!(encode(&decoded, &value), Ok((*number, bytes.to_vec())), "{name}");
        }
        assert_eq!(decode(18, &[0xff, 0]).1, Value::Text("0xff00".to_owned()));
        assert_eq!(decode(4, &[1, 2, 3]).1, Value::Text("0x010203".to_owned()));
        // Registered names (RFC 2866, section 5.1 and 5.10), and a number without one.
        for (number, value, name) in [(40, 8, "Accounting-Off"), (40, 15, "Failed"), (49, 18, "Host-Request")]
        {
            assert_eq!(decode(number, &[0, 0, 0, value]).1, Value::Text(name.to_owned()));
        }
        assert_eq!(decode(40, &[0, 0, 0, 5]).1, Value::Integer(5));
        assert_eq!(decode(40, &[0, 0, 0, 16]).1, Value::Integer(16));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (result, part) in [
            (integer("Framed-IP-Adress", 1), "known are Service-Type, "),
            (text("Framed-IP-Address", "x"), "not an IPv4 address"),
            (text("Framed-Protocol", "x"), "none of PPP, SLIP"),
            (text("Session-Timeout", "60"), "without quotes"),
            (integer("Session-Timeout", -1), "4294967295"),
            (text("Reply-Message", &"x".repeat(254)), "at most 253"),
            (text("Reply-Message", ""), "empty"),
            (text("Attr-80", "0x00"), "server's own"),
            (text("Attr-25", "00"), "after 0x"),
            (text("Attr-25", "0x0é"), "pairs"),
        ] {
            let error = result.unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
