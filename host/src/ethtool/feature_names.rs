//! Features whose `ethtool -k` name differs from the kernel's.

use std::collections::BTreeMap;

/// The ethtool name, and the kernel's (netdev_features_strings of net/ethtool/common.c); a star
/// matches any text. An ethtool name for several features is on if one of them is on.
const NAMES: [(&str, &str); 12] = [
    ("rx-checksumming", "rx-checksum"),
    ("tx-checksumming", "tx-checksum-*"),
    ("scatter-gather", "tx-scatter-gather*"),
    ("tcp-segmentation-offload", "tx-tcp*-segmentation"),
    ("udp-fragmentation-offload", "tx-udp-fragmentation"),
    ("generic-segmentation-offload", "tx-generic-segmentation"),
    ("generic-receive-offload", "rx-gro"),
    ("large-receive-offload", "rx-lro"),
    ("rx-vlan-offload", "rx-vlan-hw-parse"),
    ("tx-vlan-offload", "tx-vlan-hw-insert"),
    ("ntuple-filters", "rx-ntuple-filter"),
    ("receive-hashing", "rx-hashing"),
];

/// Adds the ethtool names. They replace the kernel's names that stand for one feature.
pub(crate) fn shown(features: BTreeMap<String, bool>) -> BTreeMap<String, bool> {
    let mut shown = BTreeMap::new();
    for (name, on) in features {
        let group = NAMES.iter().find(|(_, pattern)| matches(pattern, &name));
        if let Some((alias, pattern)) = group {
            *shown.entry((*alias).to_owned()).or_insert(false) |= on;
            if !pattern.contains('*') {
                continue;
            }
        }
        shown.insert(name, on);
    }
    shown
}

/// Whether the kernel's feature name belongs to this ethtool name.
pub(crate) fn is_of(shown: &str, kernel: &str) -> bool {
    match NAMES.iter().find(|(alias, _)| *alias == shown) {
        Some((_, pattern)) => matches(pattern, kernel),
        None => shown == kernel,
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => name.strip_prefix(start).is_some_and(|rest| rest.ends_with(end)),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_typed_finds_the_kernels() {
        assert!(is_of("generic-receive-offload", "rx-gro") && !is_of("generic-receive-offload", "rx-gro-hw"));
        assert!(is_of("tcp-segmentation-offload", "tx-tcp6-segmentation") && is_of("rx-gro-hw", "rx-gro-hw"));
    }

    #[test]
    fn features_have_the_names_that_are_typed() {
        let kernel = [
            ("rx-gro", true),
            ("rx-gro-hw", false),
            ("tx-tcp-segmentation", false),
            ("tx-tcp6-segmentation", true),
            ("tx-checksum-ipv4", false),
            ("rx-udp-gro-forwarding", false),
        ];
        let shown = shown(kernel.into_iter().map(|(name, on)| (name.to_owned(), on)).collect());
        let shown: Vec<(&str, bool)> = shown.iter().map(|(name, on)| (name.as_str(), *on)).collect();
        assert_eq!(
            shown,
            [
                ("generic-receive-offload", true),
                ("rx-gro-hw", false),
                ("rx-udp-gro-forwarding", false),
                ("tcp-segmentation-offload", true),
                ("tx-checksum-ipv4", false),
                ("tx-checksumming", false),
                ("tx-tcp-segmentation", false),
                ("tx-tcp6-segmentation", true),
            ]
        );
    }
}
