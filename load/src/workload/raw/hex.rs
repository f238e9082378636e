//! Hexadecimal digits, one payload per line.

use crate::header::MAX_PAYLOAD_BYTES;
use crate::workload::EchoedTag;
use crate::workload::error::SourceError;

pub(super) fn payloads(text: &str, file: &str, tag: Option<EchoedTag>) -> Result<Vec<Vec<u8>>, SourceError> {
    let mut payloads = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let line_error = |item: &str, problem: &str| SourceError::line(file, line, item, problem);
        let digits: String = text.split(['#', ';']).next().unwrap_or_default().split_whitespace().collect();
        if digits.is_empty() {
            continue;
        }
        let payload = parse_hex(&digits).map_err(|(item, problem)| line_error(&item, problem))?;
        let length = payload.len();
        let min_length = tag.map_or(1, |tag| tag.request_offset + tag.bytes);
        if length < min_length {
            return Err(line_error(&digits, &format!("{length} bytes: the tag ends at byte {min_length}")));
        }
        if length > MAX_PAYLOAD_BYTES {
            let excerpt = digits.get(..16).unwrap_or(&digits);
            let problem = format!("{length} bytes: a UDP datagram holds {MAX_PAYLOAD_BYTES}");
            return Err(line_error(&format!("{excerpt}..."), &problem));
        }
        payloads.push(payload);
    }
    if payloads.is_empty() {
        return Err(SourceError::file(file, "no payload: give at least one line of hexadecimal digits"));
    }
    Ok(payloads)
}

// The bytes of some digits, or the wrong digits and their fault.
fn parse_hex(digits: &str) -> Result<Vec<u8>, (String, &'static str)> {
    let values = digits.chars().map(|digit| {
        let value = digit.to_digit(16).ok_or((digit.to_string(), "no hexadecimal digit"))?;
        Ok(value as u8)
    });
    let values: Vec<u8> = values.collect::<Result<_, _>>()?;
    let (pairs, odd_digit) = values.as_chunks::<2>();
    if !odd_digit.is_empty() {
        let last_digit = digits.chars().next_back().map(String::from).unwrap_or_default();
        return Err((last_digit, "an odd digit at the end: a byte has two"));
    }
    Ok(pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use crate::workload::EchoedTag;
    use crate::workload::raw::from_hex;
    use proptest::prelude::*;

    const TAG: EchoedTag = EchoedTag { bytes: 2, request_offset: 1, reply_offset: 3 };

    #[test]
    fn each_hex_line_becomes_one_payload() {
        let text = "# two requests\n00 01fF ; the first\n\n\t0a0b0c0d\n";
        let exchange = from_hex(text, "h", Some(TAG)).unwrap();
        assert_eq!(exchange.requests, [vec![0, 1, 255], vec![10, 11, 12, 13]]);
        assert_eq!(exchange.shortest_reply_bytes, 5);
        assert!(from_hex("00", "h", None).unwrap().tag.is_none());
    }

    #[test]
    fn errors_name_line_and_item_of_invalid_payloads() {
        let long = "00".repeat(65_508);
        for (text, message) in [
            ("00 01 02\n00 0x 01", "h, line 2: \"x\": no hexadecimal digit"),
            ("000102\n\n00 1", "h, line 3: \"1\": an odd digit"),
            ("0001", "h, line 1: \"0001\": 2 bytes: the tag ends at byte 3"),
            ("# nothing\n", "h: no payload"),
            ("caf\u{e9}", "h, line 1: \"\u{e9}\": no hexadecimal digit"),
            (&long, "line 1: \"0000000000000000...\": 65508 bytes: a UDP datagram holds 65507"),
        ] {
            let error = from_hex(text, "h", Some(TAG)).unwrap_err().to_string();
            assert!(error.contains(message), "\"{error}\" does not contain \"{message}\"");
        }
    }

    proptest! {
        #[test]
        fn written_payloads_parse_to_the_same_bytes(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 1..10),
        ) {
            let text: Vec<String> = payloads
                .iter()
                .map(|payload| payload.iter().map(|byte| format!("{byte:02x} ")).collect())
                .collect();
            prop_assert_eq!(from_hex(&text.join("\n"), "h", None).unwrap().requests, payloads);
        }

        #[test]
        fn parsing_arbitrary_text_never_panics(text in "\\PC{0,100}") {
            let _ = from_hex(&text, "h", Some(TAG));
        }
    }
}
