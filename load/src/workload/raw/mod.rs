//! UDP payloads, unchanged, from a text of hexadecimal digits or a capture.

mod capture;
mod hex;

use super::error::SourceError;
use super::{EchoedTag, PreparedExchange, RequestOrder};

/// One request for each line of hexadecimal digits. Space between digits does not matter; `#` and
/// `;` start comments. A tag overwrites its place in the requests; without one, replies are matched
/// in the order of the requests (see [`PreparedExchange::tag`]). Any datagram of the service is a
/// reply, if it is long enough for the tag.
///
/// # Errors
///
/// A line that is no hexadecimal, an odd digit, a payload too short for the tag or too long for a
/// datagram, or none at all; `file` names `text` in errors.
pub fn from_hex(text: &str, file: &str, tag: Option<EchoedTag>) -> Result<PreparedExchange, SourceError> {
    let requests = hex::payloads(text, file, tag)?;
    Ok(exchange(requests, tag, Vec::new()))
}

/// One request for each UDP datagram of a capture, in its order, with any ports: pcap or pcapng, of
/// Ethernet (with VLAN tags or without), Linux "cooked" or bare IP packets. Other packets are left
/// out, and counted by reason in [`PreparedExchange::notes`]. A tag is as in [`from_hex`].
///
/// # Errors
///
/// No capture, another kind of link, or no datagram to send; `file` names the capture in errors.
pub fn from_pcap(bytes: &[u8], file: &str, tag: Option<EchoedTag>) -> Result<PreparedExchange, SourceError> {
    let (requests, skipped) = capture::payloads(bytes, file, tag)?;
    let notes = skipped.map(|note| format!("{file}: {note}")).into_iter().collect();
    Ok(exchange(requests, tag, notes))
}

/// Whether a file's bytes are a capture; otherwise it is text.
pub fn is_capture(bytes: &[u8]) -> bool {
    capture::is_capture(bytes)
}

fn exchange(requests: Vec<Vec<u8>>, tag: Option<EchoedTag>, notes: Vec<String>) -> PreparedExchange {
    PreparedExchange {
        protocol: "raw",
        requests,
        order: RequestOrder::InTurn,
        tag,
        marks: Vec::new(),
        shortest_reply_bytes: tag.map_or(0, |tag| tag.reply_offset + tag.bytes),
        code: None,
        verify: None,
        notes,
    }
}
