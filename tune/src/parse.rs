//! All parsers of this crate, for the fuzzer: no input makes them panic.

use std::borrow::Cow;

use linerate_host::parse::Parser;

use crate::persist::PersistedSettings;
use crate::{TunePlan, TuneProfile, boost, conflicts, journal};

pub const PARSERS: &[(&str, Parser)] = &[
    ("journal", journal::any_bytes),
    ("owners' files", |bytes| conflicts::any_text(&text(bytes))),
    ("persisted settings", |bytes| drop(PersistedSettings::parse(&text(bytes), "/x"))),
    ("plan", |bytes| drop(TunePlan::parse(&text(bytes), "x"))),
    ("profile", |bytes| drop(TuneProfile::parse(&text(bytes), "x"))),
    // The last, because the first byte of a fuzz seed is the position of its parser.
    ("control group, status and namespace of a process", |bytes| boost::discovery::any_text(&text(bytes))),
];

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parsing_arbitrary_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for (_, parser) in PARSERS {
                parser(&bytes);
            }
        }
    }
}
