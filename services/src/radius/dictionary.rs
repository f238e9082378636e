//! Attributes that a file of users may put into replies: names, numbers and forms of values (RFC 2865, section 5; RFC 2869;
//! RFC 3162; RFC 8044).

use std::net::{Ipv4Addr, Ipv6Addr};

use toml::Value;

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
    ("DNS-Server-IPv6-Address", 169, Ipv6),
    ("Delegated-IPv6-Prefix-Pool", 171, Text),
    ("Stateful-IPv6-Address-Pool", 172, Text),
];

// Attributes that only the server or a client sets: User-Password, CHAP-Password, State, Proxy-State, CHAP-Challenge,
// EAP-Message, Message-Authenticator.
const RESERVED: [u8; 7] = [2, 3, 24, 33, 60, 79, 80];

/// The number and the bytes of an attribute of a reply, or an error message. Addresses, named values
/// and bytes (hexadecimal digits after `0x`) are text. `Attr-N` with number N has any bytes.
pub(crate) fn encode(name: &str, value: &Value) -> Result<(u8, Vec<u8>), String> {
    if !matches!(value, Value::String(_) | Value::Integer(_)) {
        return Err(format!("a {} is no value", value.type_str()));
    }
    let known_attribute = REPLY.iter().find(|(known_name, ..)| known_name.eq_ignore_ascii_case(name));
    let (number, bytes) = match (
        known_attribute,
        name.get(..5).filter(|prefix| prefix.eq_ignore_ascii_case("attr-")),
    ) {
        (Some((_, number, form)), _) => (*number, encode_form(*form, value)?),
        (None, Some(_)) => {
            let number =
                name[5..].parse::<u8>().ok().filter(|number| *number > 0 && !RESERVED.contains(number));
            let number_error =
                "Attr-N requires an N of 1 to 255 that is not the server's own (2, 3, 24, 33, 60, 79, 80)";
            let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
            let digits = digits.ok_or("Attr-N requires hexadecimal digits after 0x, in quotes")?;
            (number.ok_or(number_error)?, hex_bytes(digits)?)
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

fn encode_form(form: ValueForm, value: &Value) -> Result<Vec<u8>, String> {
    match (form, value) {
        (Text, Value::String(text)) => match text.strip_prefix("0x") {
            Some(digits) => hex_bytes(digits),
            None => Ok(text.as_bytes().to_vec()),
        },
        (Integer | Named(_), Value::Integer(number)) => match u32::try_from(*number) {
            Ok(number) => Ok(number.to_be_bytes().to_vec()),
            Err(_) => Err(format!("{number} is not within 0 to 4294967295")),
        },
        (Named(names), Value::String(text)) => {
            let known_names = (0_u32..).zip(names.split(' ')).filter(|(_, name)| *name != "-");
            match known_names.clone().find(|(_, name)| name.eq_ignore_ascii_case(text)) {
                Some((number, _)) => Ok(number.to_be_bytes().to_vec()),
                None => {
                    let names: Vec<&str> = known_names.map(|(_, name)| name).collect();
                    Err(format!("\"{text}\" is none of {}", names.join(", ")))
                }
            }
        }
        (Ipv4, Value::String(text)) => match text.parse::<Ipv4Addr>() {
            Ok(address) => Ok(address.octets().to_vec()),
            Err(_) => Err(format!("\"{text}\" is not an IPv4 address")),
        },
        (Ipv6, Value::String(text)) => match text.parse::<Ipv6Addr>() {
            Ok(address) => Ok(address.octets().to_vec()),
            Err(_) => Err(format!("\"{text}\" is not an IPv6 address")),
        },
        (Integer | Named(_), _) => Err("requires a number, without quotes".to_owned()),
        (Text | Ipv4 | Ipv6, _) => Err("requires text, in quotes".to_owned()),
    }
}

fn hex_bytes(digits: &str) -> Result<Vec<u8>, String> {
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err("0x is followed by pairs of hexadecimal digits".to_owned());
    }
    let pairs = (0..digits.len()).step_by(2);
    Ok(pairs.filter_map(|index| u8::from_str_radix(&digits[index..index + 2], 16).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, value: &str) -> Result<(u8, Vec<u8>), String> {
        encode(name, &Value::String(value.to_owned()))
    }

    fn integer(name: &str, value: i64) -> Result<(u8, Vec<u8>), String> {
        encode(name, &Value::Integer(value))
    }

    #[test]
    fn attribute_values_encode_to_their_wire_format() {
        assert_eq!(text("reply-message", "hello"), Ok((18, b"hello".to_vec())));
        assert_eq!(text("Framed-IP-Address", "192.0.2.7"), Ok((8, vec![192, 0, 2, 7])));
        assert_eq!(integer("Session-Timeout", 3600), Ok((27, vec![0, 0, 14, 16])));
        assert_eq!(text("Service-Type", "Framed-User"), Ok((6, vec![0, 0, 0, 2])));
        assert_eq!(text("Termination-Action", "RADIUS-Request"), Ok((29, vec![0, 0, 0, 1])));
        assert_eq!(text("Class", "0x00ff"), Ok((25, vec![0, 255])));
        assert_eq!(text("Attr-26", "0x0000000901"), Ok((26, vec![0, 0, 0, 9, 1])));
        assert_eq!(text("DNS-Server-IPv6-Address", "::1").map(|(number, _)| number), Ok(169));
        assert_eq!(text("Delegated-IPv6-Prefix-Pool", "a"), Ok((171, b"a".to_vec())));
        assert_eq!(text("Stateful-IPv6-Address-Pool", "a"), Ok((172, b"a".to_vec())));
        assert_eq!(text("Login-IPv6-Host", "::1").map(|(number, bytes)| (number, bytes[15])), Ok((98, 1)));
    }

    #[test]
    fn errors_name_the_invalid_attribute_or_value() {
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
