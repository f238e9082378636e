//! `struct ethtool_rx_flow_spec`, and the ethtool(8) names of flow types and hash functions
//! (linux/ethtool.h).

use crate::ethtool::NtupleRule;
use crate::netlink::attribute::word;

/// Offsets of the flow's values, their mask, the action and the rule's index.
pub(super) const VALUES: usize = 4;
pub(super) const MASK: usize = 76;
pub(super) const RING_COOKIE: usize = 152;
pub(super) const LOCATION: usize = 160;

// Flags in the flow type: more fields to match, and an RSS context instead of a queue.
const FLOW_FLAGS: u32 = 0xe000_0000;
pub(super) const FLOW_CONTEXT: u32 = 0x2000_0000;

/// Actions other than a queue: drop (all ones) or wake the machine (all but the last).
pub(super) const DROP: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;

/// Flow types with ports: number, and offset of the destination port in the values.
const PORTS: [(u32, usize); 6] = [(1, 10), (2, 10), (3, 10), (5, 34), (6, 34), (7, 34)];

const FLOWS: [(u32, &str); 17] = [
    (1, "tcp4"),
    (2, "udp4"),
    (3, "sctp4"),
    (4, "ah-esp4"),
    (5, "tcp6"),
    (6, "udp6"),
    (7, "sctp6"),
    (8, "ah-esp6"),
    (9, "ah4"),
    (10, "esp4"),
    (11, "ah6"),
    (12, "esp6"),
    (13, "ip4"),
    (14, "ip6"),
    (16, "ipv4"),
    (17, "ipv6"),
    (18, "ether"),
];

pub(super) fn flow_number(name: &str) -> Option<u32> {
    FLOWS.iter().find(|(_, flow)| *flow == name).map(|(number, _)| *number)
}

// `None` if the flow has further fields to match.
pub(super) fn flow_name(number: u32) -> Option<&'static str> {
    FLOWS.iter().find(|(flow, _)| *flow == number).map(|(_, name)| *name)
}

// The first hash function in use. There is one bit per function, in the order of the kernel's
// `rss_hash_func_strings` (net/ethtool/common.c).
pub(super) fn hash_function(bits: u8) -> String {
    match bits.trailing_zeros() {
        _ if bits == 0 => "unknown".to_owned(),
        0 => "toeplitz".to_owned(),
        1 => "xor".to_owned(),
        2 => "crc32".to_owned(),
        bit => format!("function {bit}"),
    }
}

// `None` if it is incomplete.
pub(crate) fn read_rule(spec: &[u8]) -> Option<NtupleRule> {
    let kind = word(spec, 0)?;
    let cookie = u64::from_ne_bytes(*spec.get(RING_COOKIE..)?.first_chunk()?);
    let location = word(spec, LOCATION)?;
    let number = kind & !FLOW_FLAGS;
    let flow = FLOWS.iter().find(|(flow, _)| *flow == number);
    let has_queue = cookie != DROP && cookie != WAKE;
    let has_context = has_queue && kind & FLOW_CONTEXT != 0;
    Some(NtupleRule {
        location,
        flow: flow.map_or_else(|| format!("flow {number}"), |(_, name)| (*name).to_owned()),
        // A cookie of more than 32 bits refers to a virtual function.
        queue: (has_queue && !has_context).then(|| u32::try_from(cookie).ok()).flatten(),
        rss_context: has_context,
        destination_port: destination_port(number, spec),
    })
}

// A port that a rule matches completely; `None` if it matches several.
fn destination_port(flow: u32, spec: &[u8]) -> Option<u16> {
    let (_, offset) = PORTS.iter().find(|(number, _)| *number == flow)?;
    let port = |base: usize| Some(u16::from_be_bytes(*spec.get(base + offset..)?.first_chunk()?));
    (port(MASK)? == u16::MAX).then(|| port(VALUES)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(kind: u32, cookie: u64) -> Vec<u8> {
        let mut bytes = vec![0; 168];
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[RING_COOKIE..RING_COOKIE + 8].copy_from_slice(&cookie.to_ne_bytes());
        bytes[LOCATION..LOCATION + 4].copy_from_slice(&2045_u32.to_ne_bytes());
        bytes
    }

    /// A destination port with its mask, as in `ethtool -N eth0 flow-type udp4 dst-port 53`.
    fn with_port(mut bytes: Vec<u8>, offset: usize, port: u16, mask: u16) -> Vec<u8> {
        bytes[VALUES + offset..][..2].copy_from_slice(&port.to_be_bytes());
        bytes[MASK + offset..][..2].copy_from_slice(&mask.to_be_bytes());
        bytes
    }

    #[test]
    fn flow_spec_is_read_with_queue_and_destination_port() {
        let rule = read_rule(&with_port(spec(2, 7), 10, 53, 0xffff)).expect("a rule");
        assert_eq!((rule.location, rule.flow.as_str(), rule.queue), (2045, "udp4", Some(7)));
        assert_eq!((rule.destination_port, rule.rss_context), (Some(53), false));
        // FLOW_EXT is also set for rules on a VLAN; the flow is the same.
        let rule = read_rule(&with_port(spec(0x8000_0006, 3), 34, 123, 0xffff)).expect("a rule");
        assert_eq!((rule.flow.as_str(), rule.queue, rule.destination_port), ("udp6", Some(3), Some(123)));
    }

    #[test]
    fn flow_spec_with_masked_port_has_no_destination_port() {
        let rule = read_rule(&with_port(spec(2, 7), 10, 0x1000, 0xf000)).expect("a rule");
        assert_eq!(rule.destination_port, None);
        assert_eq!(read_rule(&spec(18, 0)).expect("a rule").destination_port, None);
    }

    #[test]
    fn drop_wake_context_and_function_rules_have_no_queue() {
        for (kind, cookie, context) in
            [(2, DROP, false), (2, WAKE, false), (2 | FLOW_CONTEXT, 0, true), (2, 3 << 32 | 1, false)]
        {
            let rule = read_rule(&spec(kind, cookie)).expect("a rule");
            assert_eq!((rule.queue, rule.rss_context), (None, context), "{kind:x} {cookie:x}");
        }
    }

    #[test]
    fn truncated_flow_specs_are_none() {
        let whole = with_port(spec(2, 7), 10, 53, 0xffff);
        for length in 0..LOCATION + 4 {
            assert_eq!(read_rule(&whole[..length]), None, "{length}");
        }
    }

    #[test]
    fn hash_functions_have_ethtool_names() {
        assert_eq!(hash_function(1), "toeplitz");
        assert_eq!(hash_function(2), "xor");
        assert_eq!(hash_function(4), "crc32");
        assert_eq!(hash_function(0), "unknown");
        assert_eq!(hash_function(16), "function 4");
    }
}
