//! Passes any bytes to the parsers of the packet path, of tunes and of traces. The first byte
//! chooses the parser, the rest is its input.

#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_host::parse::PARSERS as HOST;
use linerate_trace::parse::PARSERS as TRACE;
use linerate_tune::parse::PARSERS as TUNE;

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = input.split_first() else {
        return;
    };
    let choice = usize::from(*choice) % (HOST.len() + TUNE.len() + TRACE.len()).max(1);
    if let Some((_, parser)) = HOST.iter().chain(TUNE).chain(TRACE).nth(choice) {
        parser(bytes);
    }
});
