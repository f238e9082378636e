//! Every parser of this crate by name, for the fuzzer: bytes from anywhere get an answer or an error, never a panic.

use std::borrow::Cow;

use crate::persist::PersistedSettings;
use crate::{TunePlan, TuneProfile, arbiter, journal};

/// A parser, whatever its answer.
pub type Parser = fn(&[u8]);

pub const PARSERS: &[(&str, Parser)] = &[
    ("journal", journal::any_bytes),
    ("owners' files", |bytes| arbiter::any_text(&text(bytes))),
    ("persisted settings", |bytes| drop(PersistedSettings::parse(&text(bytes), "/x"))),
    ("plan", |bytes| drop(TunePlan::parse(&text(bytes), "x"))),
    ("profile", |bytes| drop(TuneProfile::parse(&text(bytes), "x"))),
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
        fn any_bytes_are_an_answer_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for (_, parser) in PARSERS {
                parser(&bytes);
            }
        }
    }
}
