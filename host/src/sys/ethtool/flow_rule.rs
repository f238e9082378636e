//! Rules that direct flows to queues: `struct ethtool_rx_flow_spec` (linux/ethtool.h), and its text
//! as in `ethtool -N`: `flow-type udp4 dst-port 53 action 3`.
//!
//! Rules for frames by address, and for flows with ports, have words if they match whole fields.
//! Any other rule is `raw` and its bytes, so that it can be restored.

use std::net::IpAddr;

use super::flow_names::{flow_name, flow_number};
use super::hexadecimal;
use crate::ethtool::NtupleRule;

pub(super) const SPEC_BYTES: usize = 168;

/// Offsets of the flow's values, their mask, the action and the rule's index.
const VALUES: usize = 4;
const MASK: usize = 76;
const RING_COOKIE: usize = 152;
pub(super) const LOCATION: usize = 160;

// Flags in the flow type: more fields to match, and an RSS context instead of a queue.
const FLOW_FLAGS: u32 = 0xe000_0000;
const FLOW_CONTEXT: u32 = 0x2000_0000;

/// Actions other than a queue: drop (all ones) or wake the machine (all but the last).
const DROP: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuleSpec {
    /// The structure with a location of zero, which is not part of a rule's text.
    bytes: [u8; SPEC_BYTES],
    // The RSS context; `None` if the rule has a queue.
    pub(super) context: Option<u32>,
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
    [field("src-ip", 0, 4), field("dst-ip", 4, 4), field("src-port", 8, 2), field(DESTINATION_PORT, 10, 2)];
const FIELDS_6: [FlowField; 4] = [
    field("src-ip", 0, 16),
    field("dst-ip", 16, 16),
    field("src-port", 32, 2),
    field(DESTINATION_PORT, 34, 2),
];
const DESTINATION_PORT: &str = "dst-port";

// `struct ethhdr`.
const FIELDS_ETHER: [FlowField; 2] = [field("src", 6, MAC_BYTES), field("dst", 0, MAC_BYTES)];
const MAC_BYTES: usize = 6;

fn fields(flow: &str) -> &'static [FlowField] {
    match flow {
        "ether" => &FIELDS_ETHER,
        "tcp4" | "udp4" | "sctp4" => &FIELDS_4,
        "tcp6" | "udp6" | "sctp6" => &FIELDS_6,
        _ => &[],
    }
}

impl RuleSpec {
    // `None` if the structure is incomplete.
    pub(crate) fn of(spec: &[u8], context: u32) -> Option<Self> {
        let mut rule = Self { bytes: *spec.first_chunk()?, context: None };
        rule.write(LOCATION, &[0; 4]);
        rule.context = (rule.kind() & FLOW_CONTEXT != 0).then_some(context);
        Some(rule)
    }

    pub(super) fn with_location(&self, location: u32) -> [u8; SPEC_BYTES] {
        let mut rule = self.clone();
        rule.write(LOCATION, &location.to_ne_bytes());
        rule.bytes
    }

    /// The rule at this index of the list of rules.
    pub(crate) fn listed(&self, location: u32) -> NtupleRule {
        let number = self.kind() & !FLOW_FLAGS;
        let flow = flow_name(number).map_or_else(|| format!("flow {number}"), str::to_owned);
        let cookie = self.cookie();
        let has_queue = cookie != DROP && cookie != WAKE;
        let has_context = has_queue && self.context.is_some();
        let port = fields(&flow).iter().find(|field| field.name == DESTINATION_PORT);
        let destination_port = port
            .filter(|port| self.matches_all_of(port))
            .map(|port| u16::from_be_bytes(self.array(VALUES + port.at)));
        NtupleRule {
            location,
            // A cookie of more than 32 bits refers to a virtual function.
            queue: (has_queue && !has_context).then(|| u32::try_from(cookie).ok()).flatten(),
            rss_context: has_context,
            destination_port,
            flow,
        }
    }

    fn kind(&self) -> u32 {
        u32::from_ne_bytes(self.array(0))
    }

    fn cookie(&self) -> u64 {
        u64::from_ne_bytes(self.array(RING_COOKIE))
    }

    fn array<const N: usize>(&self, offset: usize) -> [u8; N] {
        std::array::from_fn(|index| self.bytes[offset + index])
    }

    fn matches_all_of(&self, field: &FlowField) -> bool {
        self.bytes[MASK + field.at..][..field.bytes].iter().all(|byte| *byte == 0xff)
    }

    fn write(&mut self, offset: usize, value: &[u8]) {
        self.bytes[offset..offset + value.len()].copy_from_slice(value);
    }

    pub(crate) fn text(&self) -> String {
        // The words, if they describe the rule completely.
        match self.words() {
            Some(words) if Self::parse(&words).as_ref() == Some(self) => words,
            _ => {
                let context = self.context.map(|context| format!(" context {context}")).unwrap_or_default();
                format!("raw {}{context}", hexadecimal(&self.bytes))
            }
        }
    }

    fn words(&self) -> Option<String> {
        let flow = flow_name(self.kind())?;
        let mut words = format!("flow-type {flow}");
        for field in fields(flow).iter().filter(|field| self.matches_all_of(field)) {
            words += &format!(" {} {}", field.name, self.value(field));
        }
        let action = match self.cookie() {
            DROP => "-1".to_owned(),
            queue => queue.to_string(),
        };
        Some(format!("{words} action {action}"))
    }

    fn value(&self, field: &FlowField) -> String {
        let at = VALUES + field.at;
        match field.bytes {
            2 => u16::from_be_bytes(self.array(at)).to_string(),
            4 => IpAddr::from(self.array::<4>(at)).to_string(),
            MAC_BYTES => self.array::<MAC_BYTES>(at).map(|byte| format!("{byte:02x}")).join(":"),
            _ => IpAddr::from(self.array::<16>(at)).to_string(),
        }
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
        (rule.bytes[..] == bytes && rule.context == context).then_some(rule)
    }

    fn parse_words(flow: &str, pairs: &[&str]) -> Option<Self> {
        let mut rule = Self { bytes: [0; SPEC_BYTES], context: None };
        rule.write(0, &flow_number(flow)?.to_ne_bytes());
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
            let field = fields(flow).iter().find(|field| field.name == *name)?;
            rule.write(VALUES + field.at, &field.parse(value)?);
            rule.write(MASK + field.at, &vec![0xff; field.bytes]);
        }
        rule.write(RING_COOKIE, &action?.to_ne_bytes());
        // A rule without a field would match every packet of the type.
        (names.len() > 1).then_some(rule)
    }
}

impl FlowField {
    fn parse(&self, word: &str) -> Option<Vec<u8>> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
        let listed = |text: &str| RuleSpec::parse(text).expect("a rule").listed(2045);
        let rule = listed("flow-type udp4 dst-port 53 action 7");
        assert_eq!((rule.location, rule.flow.as_str(), rule.queue), (2045, "udp4", Some(7)));
        assert_eq!((rule.destination_port, rule.rss_context), (Some(53), false));
        assert_eq!(listed("flow-type udp6 dst-port 123 action 3").destination_port, Some(123));
        assert_eq!(listed("flow-type ether dst 52:54:00:12:34:56 action 2").destination_port, None);
    }

    /// A rule with this flow type and action.
    fn rule(kind: u32, cookie: u64) -> RuleSpec {
        let mut rule = RuleSpec::parse("flow-type udp4 dst-port 53 action 3").expect("a rule");
        rule.write(0, &kind.to_ne_bytes());
        rule.write(RING_COOKIE, &cookie.to_ne_bytes());
        RuleSpec::of(&rule.with_location(9), 4).expect("a rule")
    }

    #[test]
    fn rules_without_a_text_form_are_kept_as_raw_bytes() {
        let mut half_masked = rule(2, 3);
        half_masked.write(MASK + 10, &[0]);
        assert_eq!(half_masked.listed(9).destination_port, None);
        // FLOW_EXT is also set for rules on a VLAN; the flow is the same.
        let on_vlan = rule(0x8000_0002, 3);
        assert_eq!((on_vlan.listed(9).flow.as_str(), on_vlan.listed(9).destination_port), ("udp4", Some(53)));
        let in_context = rule(2 | FLOW_CONTEXT, 0);
        assert!(in_context.text().ends_with(" context 4"), "{}", in_context.text());
        for rule in [half_masked, on_vlan, in_context] {
            assert!(rule.text().starts_with("raw 02000"), "{}", rule.text());
            assert_eq!(RuleSpec::parse(&rule.text()), Some(rule));
        }
    }

    #[test]
    fn drop_wake_context_and_function_rules_have_no_queue() {
        for (kind, cookie, context) in
            [(2, DROP, false), (2, WAKE, false), (2 | FLOW_CONTEXT, 0, true), (2, 3 << 32 | 1, false)]
        {
            let rule = rule(kind, cookie).listed(9);
            assert_eq!((rule.queue, rule.rss_context), (None, context), "{kind:x} {cookie:x}");
        }
    }

    #[test]
    fn invalid_rule_texts_are_rejected() {
        for text in [
            "",
            "flow-type udp4 action 3",
            "flow-type udp4 dst-port 53",
            "flow-type udp5 dst-port 53 action 3",
            "flow-type ip4 dst-port 53 action 3",
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
        assert_eq!(RuleSpec::of(&[0; SPEC_BYTES - 1], 0), None);
    }

    proptest! {
        #[test]
        fn arbitrary_flow_specs_round_trip_through_text(bytes in proptest::collection::vec(any::<u8>(), SPEC_BYTES), context: u32) {
            let rule = RuleSpec::of(&bytes, context).expect("a rule");
            prop_assert_eq!(RuleSpec::parse(&rule.text()), Some(rule));
        }
    }
}
