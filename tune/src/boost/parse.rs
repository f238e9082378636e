//! Every parser of this crate by name, for the fuzzer: bytes from anywhere get an answer or an error, never a panic.

use linerate_host::parse::Parser;

use crate::boost::sight::any_text;

pub const PARSERS: &[(&str, Parser)] = &[("control group, status and namespace of a process", |bytes| {
    any_text(&String::from_utf8_lossy(bytes));
})];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for (_, parser) in PARSERS {
                parser(&bytes);
            }
        }
    }
}
