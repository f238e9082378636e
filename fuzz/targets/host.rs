//! Gives any bytes to the parsers of the packet path. The first byte chooses the parser, the rest is what it reads.

#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_host::parse::PARSERS;

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = input.split_first() else {
        return;
    };
    if let Some((_, parser)) = PARSERS.get(usize::from(*choice) % PARSERS.len().max(1)) {
        parser(bytes);
    }
});
