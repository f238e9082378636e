//! The ethtool(8) names of flow types and hash functions (linux/ethtool.h).

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_functions_have_ethtool_names() {
        assert_eq!(hash_function(1), "toeplitz");
        assert_eq!(hash_function(2), "xor");
        assert_eq!(hash_function(4), "crc32");
        assert_eq!(hash_function(0), "unknown");
        assert_eq!(hash_function(16), "function 4");
    }
}
