//! NTP client requests (RFC 5905), versions 3 and 4.

use super::error::SourceError;
use super::{EchoedTag, PreparedExchange, ReplyCode, ReplyMark, RequestOrder};

// Bytes of a header without extensions.
const HEADER_BYTES: usize = 48;

// Mode 3: client; mode 4: server (RFC 5905, 7.3).
const CLIENT: u8 = 3;
const SERVER: u8 = 4;

/// Requests as a client of `version` (3 or 4) sends them. The transmit timestamp is the tag: a
/// server copies it unchanged into the origin timestamp of its reply (RFC 5905, 7.3), and clients
/// fill it with random bits today. Replies are counted by stratum: 0 is a kiss-o'-death.
///
/// # Errors
/// Another version.
pub fn client(version: u8) -> Result<PreparedExchange, SourceError> {
    if !matches!(version, 3 | 4) {
        return Err(SourceError::option("NTP version", format!("{version} is neither 3 nor 4")));
    }
    let mut request = vec![0; HEADER_BYTES];
    request[0] = version << 3 | CLIENT;
    Ok(PreparedExchange {
        protocol: "ntp",
        requests: vec![request],
        order: RequestOrder::InTurn,
        tag: Some(EchoedTag { bytes: 8, request_offset: 40, reply_offset: 24 }),
        marks: vec![ReplyMark { offset: 0, mask: 0b111, value: SERVER }],
        shortest_reply_bytes: HEADER_BYTES,
        code: Some(ReplyCode { offset: 1, mask: 0xff, truncated: None, name: stratum_name }),
        verify: None,
        notes: Vec::new(),
    })
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
    use crate::workload::LoadWorkload;
    use std::sync::Arc;

    #[test]
    fn requests_are_48_byte_client_packets() {
        let exchange = client(4).unwrap();
        assert_eq!((exchange.requests[0].len(), exchange.requests[0][0]), (48, 0x23));
        assert_eq!(client(3).unwrap().requests[0][0], 0x1b);
        let workload = LoadWorkload::Exchange(Arc::new(exchange));
        workload.check().unwrap();
        assert_eq!(
            workload.to_string(),
            "ntp: 1 request of 48 bytes, matched by 8 bytes at offset 40 (in replies 24)"
        );
    }

    #[test]
    fn ntp_versions_other_than_3_and_4_are_refused() {
        assert_eq!(client(5).unwrap_err().to_string(), "NTP version: 5 is neither 3 nor 4");
    }
}
