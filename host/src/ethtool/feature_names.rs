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
pub(crate) fn with_ethtool_names(features: BTreeMap<String, bool>) -> BTreeMap<String, bool> {
    let mut named_features = BTreeMap::new();
    for (name, on) in features {
        let group = NAMES.iter().find(|(_, pattern)| matches(pattern, &name));
        if let Some((alias, pattern)) = group {
            *named_features.entry((*alias).to_owned()).or_insert(false) |= on;
            if !pattern.contains('*') {
                continue;
            }
        }
        named_features.insert(name, on);
    }
    named_features
}

/// Whether the kernel's feature name belongs to this ethtool name.
pub(crate) fn covers_kernel_name(ethtool_name: &str, kernel_name: &str) -> bool {
    match NAMES.iter().find(|(alias, _)| *alias == ethtool_name) {
        Some((_, pattern)) => matches(pattern, kernel_name),
        None => ethtool_name == kernel_name,
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
    fn kernel_features_are_shown_under_ethtool_names() {
        let kernel = [
            ("rx-gro", true),
            ("rx-gro-hw", false),
            ("tx-tcp-segmentation", false),
            ("tx-tcp6-segmentation", true),
            ("tx-checksum-ipv4", false),
            ("rx-udp-gro-forwarding", false),
        ];
        let features =
            with_ethtool_names(kernel.into_iter().map(|(name, on)| (name.to_owned(), on)).collect());
        let features: Vec<(&str, bool)> = features.iter().map(|(name, on)| (name.as_str(), *on)).collect();
        assert_eq!(
            features,
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
