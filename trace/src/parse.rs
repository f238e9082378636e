//! Every parser of this crate by name, for the fuzzer: arbitrary bytes return an answer or an
//! error, never a panic.

use linerate_host::parse::Parser;

use crate::cost::cgroup;
use crate::drops::reason;
use crate::flame::profile::any_profile;
use crate::flame::sample::any_mappings;
use crate::symbols::any_symbols;

pub const PARSERS: &[(&str, Parser)] = &[
    ("cost: /proc/PID/cgroup", |bytes| drop(cgroup::parse(&String::from_utf8_lossy(bytes)))),
    ("flame: saved profile", any_profile),
    ("flame: /proc/PID/maps", |bytes| any_mappings(&String::from_utf8_lossy(bytes))),
    ("symbols: /proc/kallsyms", |bytes| any_symbols(&String::from_utf8_lossy(bytes))),
    ("drops: names of reasons in the kernel's types", |bytes| drop(reason::names(bytes))),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parsers_never_panic_on_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for (_, parser) in PARSERS {
                parser(&bytes);
            }
        }
    }
}
