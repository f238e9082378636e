//! Kernel modules. They are read first, because a request to netfilter can load a module.

use std::collections::BTreeSet;

use crate::{Host, Known};

const LOADED: &str = "/proc/modules";
const RELEASE: &str = "/proc/sys/kernel/osrelease";

/// Prefixes of netfilter's modules.
const NETFILTER: [&str; 11] = [
    "arp_tables",
    "arptable_",
    "ebtable",
    "ip6_tables",
    "ip6table_",
    "ip_tables",
    "ip_vs",
    "iptable_",
    "nf",
    "x_tables",
    "xt_",
];

pub(super) struct KernelModules {
    /// `None` if the kernel has no modules.
    loaded: Known<Option<BTreeSet<String>>>,
    builtin: Known<BTreeSet<String>>,
}

impl KernelModules {
    pub(super) fn read(host: &Host) -> Self {
        let builtin_path =
            host.read(RELEASE).map(|release| format!("/lib/modules/{}/modules.builtin", release.trim()));
        let builtin = builtin_path.and_then(|path| host.read(&path));
        Self {
            loaded: host.read_optional(LOADED, parse_loaded_modules),
            builtin: builtin.map(|text| parse_builtin_modules(&text)).into(),
        }
    }

    /// Whether the module is loaded or built in, or there are no modules, so that a request loads
    /// nothing.
    pub(super) fn is_available(&self, module: &str) -> Known<bool> {
        match (&self.loaded, &self.builtin) {
            (Known::Value(None), _) => Known::Value(true),
            (Known::Value(Some(loaded)), _) if loaded.contains(module) => Known::Value(true),
            (Known::Value(Some(_)), Known::Value(builtin)) => Known::Value(builtin.contains(module)),
            (Known::Unknown { why }, _) | (_, Known::Unknown { why }) => Known::unknown(why.clone()),
        }
    }

    /// Why the module's part of the kernel must not be queried; `None` if a query loads nothing.
    pub(super) fn skip_reason(&self, module: &str) -> Option<String> {
        let load_note = "asking would load it, and nothing is changed here";
        match self.is_available(module) {
            Known::Value(true) => None,
            Known::Value(false) => Some(format!("the module {module} is not loaded; {load_note}")),
            Known::Unknown { why } => {
                Some(format!("whether the module {module} is there is unknown ({why}); {load_note}"))
            }
        }
    }

    pub(super) fn netfilter_modules(self) -> Known<Option<BTreeSet<String>>> {
        let is_netfilter = |name: &String| NETFILTER.iter().any(|prefix| name.starts_with(prefix));
        self.loaded.map(|loaded| loaded.map(|names| names.into_iter().filter(is_netfilter).collect()))
    }
}

/// Names in `/proc/modules`: the first word of each line, followed by its size.
pub(crate) fn parse_loaded_modules(text: &str) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next().map(str::parse::<u64>)) {
            (Some(name), Some(Ok(_))) => drop(names.insert(name.to_owned())),
            (None, _) => {}
            _ => return Err(format!("line {}: '{line}' is no module", index + 1)),
        }
    }
    Ok(names)
}

/// Names in `modules.builtin`, one path per line; dashes become underscores.
pub(crate) fn parse_builtin_modules(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(|line| line.trim().rsplit('/').next()?.strip_suffix(".ko"))
        .map(|name| name.replace('-', "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(files: &[(&str, &str)]) -> KernelModules {
        KernelModules::read(&Host::scripted(files.iter().copied()))
    }

    const LINES: &str = "nf_tables 315392 2 nft_chain_nat,nft_ct, Live 0x0000000000000000\nixgbe 348160 0 - Live 0x0\nip_vs 180224 0 - Live 0x0\n";

    #[test]
    fn modules_are_available_if_loaded_or_built_in() {
        let builtin = "kernel/net/netfilter/nfnetlink.ko\nkernel/crypto/ghash-generic.ko\n";
        let modules = modules(&[
            (LOADED, LINES),
            (RELEASE, "6.1.0-18-amd64\n"),
            ("/lib/modules/6.1.0-18-amd64/modules.builtin", builtin),
        ]);
        for module in ["nf_tables", "nfnetlink", "ghash_generic"] {
            assert_eq!(modules.is_available(module), Known::Value(true), "{module}");
            assert_eq!(modules.skip_reason(module), None);
        }
        assert_eq!(modules.is_available("nfnetlink_hook"), Known::Value(false));
        assert!(
            modules
                .skip_reason("nfnetlink_hook")
                .is_some_and(|why| why.starts_with("the module nfnetlink_hook is not"))
        );
        let netfilter_modules = modules.netfilter_modules().into_value().flatten().expect("modules");
        assert_eq!(netfilter_modules.into_iter().collect::<Vec<_>>(), ["ip_vs", "nf_tables"]);
    }

    #[test]
    fn every_module_counts_as_available_without_proc_modules() {
        assert_eq!(modules(&[]).is_available("nf_tables"), Known::Value(true));
        assert_eq!(modules(&[]).netfilter_modules(), Known::Value(None));
    }

    #[test]
    fn unloaded_modules_are_unknown_without_modules_builtin() {
        let modules = modules(&[(LOADED, LINES), (RELEASE, "6.1\n")]);
        assert_eq!(modules.is_available("nf_tables"), Known::Value(true));
        assert!(modules.is_available("ip_tables").why_contains("/lib/modules/6.1/modules.builtin"));
    }

    #[test]
    fn malformed_proc_modules_error_names_the_line() {
        assert_eq!(
            parse_loaded_modules("ixgbe 1 0\n\nnonsense\n"),
            Err("line 3: 'nonsense' is no module".to_owned())
        );
        assert!(
            modules(&[(LOADED, "x y\n")])
                .is_available("x")
                .why()
                .is_some_and(|why| why.starts_with("/proc/modules: line 1"))
        );
    }
}
