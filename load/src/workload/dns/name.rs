//! Domain names, from text to the wire.

// The most bytes of a label and of a name (RFC 1035, 2.3.4).
const LABEL_BYTES: usize = 63;
const NAME_BYTES: usize = 255;

// The wire form of a name, or the reason why it is invalid.
pub(super) fn encode_name(text: &str) -> Result<Vec<u8>, String> {
    if !text.is_ascii() {
        return Err("not ASCII: write other letters in their xn-- form or as \\DDD".to_owned());
    }
    let mut wire = Vec::with_capacity(text.len() + 2);
    let text = if text == "." { "" } else { text };
    let mut remaining = text.as_bytes();
    while !remaining.is_empty() {
        remaining = encode_label(remaining, &mut wire)?;
    }
    wire.push(0);
    if wire.len() > NAME_BYTES {
        return Err(format!("{} bytes on the wire: a name has at most {NAME_BYTES}", wire.len()));
    }
    Ok(wire)
}

// Writes the first label of `text` and returns the text behind its dot.
fn encode_label<'a>(mut text: &'a [u8], wire: &mut Vec<u8>) -> Result<&'a [u8], String> {
    let length_at = wire.len();
    wire.push(0);
    loop {
        let (byte, remaining) = match *text {
            [] => break,
            [b'.', ref remaining @ ..] => {
                text = remaining;
                break;
            }
            [b'\\', ref remaining @ ..] => parse_escape(remaining)?,
            [byte, ref remaining @ ..] => (byte, remaining),
        };
        wire.push(byte);
        text = remaining;
    }
    match wire.len() - length_at - 1 {
        0 => Err("empty label: two dots in a row, or one at the beginning".to_owned()),
        length if length > LABEL_BYTES => {
            Err(format!("label of {length} bytes: it has at most {LABEL_BYTES}"))
        }
        length => {
            wire[length_at] = length as u8;
            Ok(text)
        }
    }
}

// The byte of an escape, given the text behind its backslash (RFC 1035, 5.1).
fn parse_escape(text: &[u8]) -> Result<(u8, &[u8]), String> {
    let escape_error =
        || "escape: behind a backslash there is a character, or three digits up to 255".to_owned();
    match *text {
        [a, b, c, ref remaining @ ..] if [a, b, c].iter().all(u8::is_ascii_digit) => {
            let value = [a, b, c].iter().fold(0u16, |value, digit| value * 10 + u16::from(digit - b'0'));
            Ok((u8::try_from(value).map_err(|_| escape_error())?, remaining))
        }
        [byte, ref remaining @ ..] if !byte.is_ascii_digit() => Ok((byte, remaining)),
        _ => Err(escape_error()),
    }
}
