//! `struct ethtool_rx_flow_spec` as text: `flow-type udp4 dst-port 53 action 3`, as in `ethtool
//! -N`.
//!
//! Rules for frames by address, and for flows with ports, have words if they match whole fields.
//! Any other rule is `raw` and its bytes, so that it can be restored.

use std::net::IpAddr;

use super::flow_spec::{DROP, FLOW_CONTEXT, LOCATION, MASK, RING_COOKIE, VALUES, flow_name, flow_number};

pub(crate) const SPEC_BYTES: usize = 168;

// The location is not part of a rule's text.
const LOCATION_BYTES: std::ops::Range<usize> = LOCATION..LOCATION + 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuleSpec {
    /// The structure with a location of zero.
    pub(crate) bytes: Vec<u8>,
    // The RSS context; `None` if the rule has a queue.
    pub(crate) context: Option<u32>,
}

/// A field of a flow: name, offset and length.
struct FlowField {
    name: &'static str,
    at: usize,
    bytes: usize,
}

const fn field(name: &'static str, at: usize, bytes: usize) -> FlowField {
    FlowField { name, at, bytes }
}

// `struct ethtool_tcpip4_spec` and `ethtool_tcpip6_spec`.
const FIELDS_4: [FlowField; 4] =
    [field("src-ip", 0, 4), field("dst-ip", 4, 4), field("src-port", 8, 2), field("dst-port", 10, 2)];
const FIELDS_6: [FlowField; 4] =
    [field("src-ip", 0, 16), field("dst-ip", 16, 16), field("src-port", 32, 2), field("dst-port", 34, 2)];

// `struct ethhdr`.
const FIELDS_ETHER: [FlowField; 2] = [field("src", 6, MAC_BYTES), field("dst", 0, MAC_BYTES)];
const MAC_BYTES: usize = 6;

fn fields(flow: &str) -> Option<&'static [FlowField]> {
    match flow {
        "ether" => Some(&FIELDS_ETHER),
        "tcp4" | "udp4" | "sctp4" => Some(&FIELDS_4),
        "tcp6" | "udp6" | "sctp6" => Some(&FIELDS_6),
        _ => None,
    }
}

impl RuleSpec {
    // `None` if the structure is incomplete.
    pub(crate) fn of(spec: &[u8], context: u32) -> Option<Self> {
        let mut bytes = spec.get(..SPEC_BYTES)?.to_vec();
        bytes.get_mut(LOCATION_BYTES)?.fill(0);
        let kind = u32::from_ne_bytes(*bytes.first_chunk()?);
        Some(Self { bytes, context: (kind & FLOW_CONTEXT != 0).then_some(context) })
    }

    pub(crate) fn with_location(&self, location: u32) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        if let Some(target) = bytes.get_mut(LOCATION_BYTES) {
            target.copy_from_slice(&location.to_ne_bytes());
        }
        bytes
    }

    pub(crate) fn text(&self) -> String {
        // The words, if they describe the rule completely.
        match self.words() {
            Some(words) if Self::parse(&words).as_ref() == Some(self) => words,
            _ => self.raw(),
        }
    }

    fn raw(&self) -> String {
        let hexadecimal: String = self.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let context = self.context.map(|context| format!(" context {context}")).unwrap_or_default();
        format!("raw {hexadecimal}{context}")
    }

    fn words(&self) -> Option<String> {
        let flow = flow_name(u32::from_ne_bytes(*self.bytes.first_chunk()?))?;
        let mut words = format!("flow-type {flow}");
        for field in fields(flow)? {
            let part = |base: usize| self.bytes.get(base + field.at..base + field.at + field.bytes);
            if part(MASK)?.iter().all(|byte| *byte == 0xff) {
                words += &format!(" {} {}", field.name, format_field(part(VALUES)?)?);
            }
        }
        let action = match u64::from_ne_bytes(*self.bytes.get(RING_COOKIE..)?.first_chunk()?) {
            DROP => "-1".to_owned(),
            queue => queue.to_string(),
        };
        Some(format!("{words} action {action}"))
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["raw", bytes] => Self::parse_raw(bytes, None),
            ["raw", bytes, "context", context] => Self::parse_raw(bytes, Some(context.parse().ok()?)),
            ["flow-type", flow, pairs @ ..] => Self::parse_words(flow, pairs),
            _ => None,
        }
    }

    fn parse_raw(hexadecimal: &str, context: Option<u32>) -> Option<Self> {
        let digits: Vec<u32> = hexadecimal.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
        let byte = |pair: &[u32]| u8::try_from(pair.first()? * 16 + pair.get(1)?).ok();
        let bytes: Vec<u8> = digits.chunks(2).map(byte).collect::<Option<_>>()?;
        let rule = Self::of(&bytes, context.unwrap_or_default())?;
        (bytes.len() == SPEC_BYTES && rule.bytes == bytes && rule.context == context).then_some(rule)
    }

    fn parse_words(flow: &str, pairs: &[&str]) -> Option<Self> {
        let mut bytes = vec![0; SPEC_BYTES];
        write_bytes(&mut bytes, 0, &flow_number(flow)?.to_ne_bytes())?;
        let fields = fields(flow)?;
        let mut action = None;
        let mut names = Vec::new();
        for pair in pairs.chunks(2) {
            let [name, value] = pair else { return None };
            if names.contains(name) {
                return None;
            }
            names.push(name);
            if *name == "action" {
                action = Some(if *value == "-1" { DROP } else { u64::from(value.parse::<u32>().ok()?) });
                continue;
            }
            let field = fields.iter().find(|field| field.name == *name)?;
            write_bytes(&mut bytes, VALUES + field.at, &field.value(value)?)?;
            write_bytes(&mut bytes, MASK + field.at, &vec![0xff; field.bytes])?;
        }
        write_bytes(&mut bytes, RING_COOKIE, &action?.to_ne_bytes())?;
        // A rule without a field would match every packet of the type.
        (names.len() > 1).then_some(Self { bytes, context: None })
    }
}

impl FlowField {
    fn value(&self, word: &str) -> Option<Vec<u8>> {
        let bytes = match (self.bytes, word.parse::<IpAddr>()) {
            (2, _) => word.parse::<u16>().ok()?.to_be_bytes().to_vec(),
            (MAC_BYTES, _) => mac_address(word)?.to_vec(),
            (_, Ok(IpAddr::V4(address))) => address.octets().to_vec(),
            (_, Ok(IpAddr::V6(address))) => address.octets().to_vec(),
            _ => return None,
        };
        (bytes.len() == self.bytes).then_some(bytes)
    }
}

// Such as `52:54:00:12:34:56`.
fn mac_address(word: &str) -> Option<[u8; MAC_BYTES]> {
    let is_byte =
        |part: &str| (1..=2).contains(&part.len()) && part.bytes().all(|digit| digit.is_ascii_hexdigit());
    let bytes: Option<Vec<u8>> = word
        .split(':')
        .map(|part| is_byte(part).then(|| u8::from_str_radix(part, 16).ok()).flatten())
        .collect();
    bytes?.try_into().ok()
}

fn format_field(value: &[u8]) -> Option<String> {
    Some(match value.len() {
        2 => u16::from_be_bytes(*value.first_chunk()?).to_string(),
        4 => IpAddr::from(*value.first_chunk::<4>()?).to_string(),
        MAC_BYTES => value.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"),
        _ => IpAddr::from(*value.first_chunk::<16>()?).to_string(),
    })
}

fn write_bytes(bytes: &mut [u8], offset: usize, value: &[u8]) -> Option<()> {
    bytes.get_mut(offset..offset + value.len())?.copy_from_slice(value);
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sys::ethtool::flow_spec::read_rule;

    #[test]
    fn rule_text_round_trips_and_its_flow_spec_is_read() {
        for text in [
            "flow-type udp4 dst-port 53 action 3",
            "flow-type udp6 src-ip 2001:db8::1 dst-port 53 action 0",
            "flow-type tcp4 src-ip 192.0.2.1 dst-ip 192.0.2.2 src-port 1 dst-port 2 action -1",
            "flow-type ether dst 52:54:00:12:34:56 action 2",
        ] {
            assert_eq!(RuleSpec::parse(text).expect(text).text(), text);
        }
        let rule = RuleSpec::parse("flow-type udp4 dst-port 53 action 3").expect("a rule");
        let read = read_rule(&rule.with_location(7)).expect("a rule");
        assert_eq!((read.location, read.flow.as_str(), read.queue), (7, "udp4", Some(3)));
        assert_eq!(read.destination_port, Some(53));
    }

    #[test]
    fn rules_without_a_text_form_are_kept_as_raw_bytes() {
        let mut spec =
            RuleSpec::parse("flow-type udp4 dst-port 53 action 3").expect("a rule").with_location(9);
        // A port with half of its bits masked.
        spec[MASK + 10] = 0;
        let rule = RuleSpec::of(&spec, 0).expect("a rule");
        assert!(rule.text().starts_with("raw 02000000"), "{}", rule.text());
        assert_eq!(RuleSpec::parse(&rule.text()), Some(rule));
        spec[..4].copy_from_slice(&(2 | FLOW_CONTEXT).to_ne_bytes());
        let in_context = RuleSpec::of(&spec, 4).expect("a rule");
        assert!(in_context.text().ends_with(" context 4"), "{}", in_context.text());
        assert_eq!(RuleSpec::parse(&in_context.text()), Some(in_context));
    }

    #[test]
    fn invalid_rule_texts_are_rejected() {
        for text in [
            "",
            "flow-type udp4 action 3",
            "flow-type udp4 dst-port 53",
            "flow-type udp5 dst-port 53 action 3",
            "flow-type ether action 3",
            "flow-type ether dst 52:54:00:12:34 action 3",
            "flow-type ether dst 52:54:00:12:34:+6 action 3",
            "flow-type udp4 dst-port 53 dst-port 54 action 3",
            "flow-type udp4 dst-ip ::1 action 3",
            "flow-type udp4 dst-port 65536 action 3",
            "flow-type udp4 dst-port 53 action -2",
            "raw 00",
        ] {
            assert_eq!(RuleSpec::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_flow_specs_round_trip_through_text(bytes in proptest::collection::vec(any::<u8>(), SPEC_BYTES), context: u32) {
            let rule = RuleSpec::of(&bytes, context).expect("a rule");
            prop_assert_eq!(RuleSpec::parse(&rule.text()), Some(rule));
        }
    }
}
