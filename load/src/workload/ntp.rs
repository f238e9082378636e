//! NTP client requests (RFC 5905), version 4.

use super::{EchoedTag, PreparedExchange, ReplyCode, ReplyMark, RequestOrder};

// Bytes of a header without extensions.
const HEADER_BYTES: usize = 48;

const VERSION: u8 = 4;

// Mode 3: client; mode 4: server (RFC 5905, 7.3).
const CLIENT: u8 = 3;
const SERVER: u8 = 4;

/// Requests as a client of version 4 sends them. The transmit timestamp is the tag: a
/// server copies it unchanged into the origin timestamp of its reply (RFC 5905, 7.3), and clients
/// fill it with random bits today. Replies are counted by stratum: 0 is a kiss-o'-death.
pub fn client() -> PreparedExchange {
    let mut request = vec![0; HEADER_BYTES];
    request[0] = VERSION << 3 | CLIENT;
    PreparedExchange {
        protocol: "ntp",
        requests: vec![request],
        order: RequestOrder::InTurn,
        tag: Some(EchoedTag { bytes: 8, request_offset: 40, reply_offset: 24 }),
        marks: vec![ReplyMark { offset: 0, mask: 0b111, value: SERVER }],
        shortest_reply_bytes: HEADER_BYTES,
        code: Some(ReplyCode { offset: 1, mask: 0xff, truncated: None, name: stratum_name }),
        verify: None,
        notes: Vec::new(),
    }
}

fn stratum_name(stratum: u8) -> Option<&'static str> {
    match stratum {
        0 => Some("kiss-o'-death"),
        1 => Some("primary"),
        2..=15 => Some("secondary"),
        16 => Some("unsynchronized"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_48_byte_client_packets() {
        let exchange = client();
        assert_eq!((exchange.requests[0].len(), exchange.requests[0][0]), (48, 0x23));
    }
}
