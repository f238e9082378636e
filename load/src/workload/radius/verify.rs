//! Whether a reply comes from a server that knows the secret, and is complete.

use std::fmt;

use super::packet::{AUTHENTICATOR_BYTES, HEADER_BYTES, kind, md5, message_authenticator};
use crate::workload::ReplyVerifier;

// Shortest and longest packet in bytes (RFC 2865, 3).
const PACKET_BYTES: std::ops::RangeInclusive<usize> = 20..=4_096;

/// Checks identifier, length, attributes, Response Authenticator and, if present,
/// Message-Authenticator.
pub(super) struct ReplyCheck {
    secret: Box<[u8]>,
}

impl ReplyCheck {
    pub(super) fn new(secret: &[u8]) -> Self {
        ReplyCheck { secret: secret.into() }
    }

    fn verify_message_authenticator(&self, request: &[u8], reply: &[u8], value_at: usize) -> bool {
        let value_end = value_at + AUTHENTICATOR_BYTES;
        // Computed over the reply with the request's authenticator in place of its own.
        let parts = [
            &reply[..4],
            &request[4..HEADER_BYTES],
            &reply[HEADER_BYTES..value_at],
            &[0; AUTHENTICATOR_BYTES],
            &reply[value_end..],
        ];
        reply[value_at..value_end] == message_authenticator(&self.secret, &parts)
    }
}

impl ReplyVerifier for ReplyCheck {
    fn verify(&self, request: &[u8], reply: &[u8]) -> bool {
        let (Some(header), Some(request_header)) =
            (reply.first_chunk::<HEADER_BYTES>(), request.get(..HEADER_BYTES))
        else {
            return false;
        };
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        // Bytes behind the packet are padding (RFC 2865, 3).
        let Some(reply) = reply.get(..length).filter(|_| PACKET_BYTES.contains(&length)) else {
            return false;
        };
        if header[1] != request_header[1] {
            return false;
        }
        let (reply_start, attributes) = (&reply[..4], &reply[HEADER_BYTES..]);
        if header[4..] != md5(&[reply_start, &request_header[4..], attributes, &self.secret]) {
            return false;
        }
        match find_message_authenticator(attributes) {
            Some(value_position) => value_position
                .iter()
                .all(|position| self.verify_message_authenticator(request, reply, HEADER_BYTES + position)),
            None => false,
        }
    }
}

// Positions of the values of Message-Authenticators; `None` if the attributes are malformed.
fn find_message_authenticator(attributes: &[u8]) -> Option<Option<usize>> {
    let mut value_position = None;
    let mut position = 0;
    while position < attributes.len() {
        let length = usize::from(*attributes.get(position + 1)?);
        if length < 2 || position + length > attributes.len() {
            return None;
        }
        if attributes[position] == kind::MESSAGE_AUTHENTICATOR {
            if length != 2 + AUTHENTICATOR_BYTES || value_position.is_some() {
                return None;
            }
            value_position = Some(position + 2);
        }
        position += length;
    }
    Some(value_position)
}

impl fmt::Debug for ReplyCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReplyCheck")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::radius::{PasswordMethod, access_requests};
    use proptest::prelude::*;

    /// RFC 2865, 7.1: the header of the request.
    const REQUEST_HEADER: [u8; 20] = [
        0x01, 0x00, 0x00, 0x38, 0x0f, 0x40, 0x3f, 0x94, 0x73, 0x97, 0x80, 0x57, 0xbd, 0x83, 0xd5, 0xcb, 0x98,
        0xf4, 0x22, 0x7a,
    ];
    const ACCEPT_REPLY: [u8; 38] = [
        0x02, 0x00, 0x00, 0x26, 0x86, 0xfe, 0x22, 0x0e, 0x76, 0x24, 0xba, 0x2a, 0x10, 0x05, 0xf6, 0xbf, 0x9b,
        0x55, 0xe0, 0xb2, 0x06, 0x06, 0x00, 0x00, 0x00, 0x01, 0x0f, 0x06, 0x00, 0x00, 0x00, 0x00, 0x0e, 0x06,
        0xc0, 0xa8, 0x01, 0x03,
    ];

    #[test]
    fn the_rfc_2865_reply_verifies_and_any_changed_reply_fails() {
        let check = ReplyCheck::new(b"xyzzy5461");
        assert!(check.verify(&REQUEST_HEADER, &ACCEPT_REPLY));
        assert!(check.verify(&REQUEST_HEADER, &[&ACCEPT_REPLY[..], &[0; 4]].concat()), "padding is ignored");
        assert!(!check.verify(&REQUEST_HEADER, &ACCEPT_REPLY[..37]));
        assert!(!ReplyCheck::new(b"other").verify(&REQUEST_HEADER, &ACCEPT_REPLY));
        for at in 0..ACCEPT_REPLY.len() {
            let mut changed_reply = ACCEPT_REPLY;
            changed_reply[at] ^= 1;
            assert!(!check.verify(&REQUEST_HEADER, &changed_reply), "byte {at}");
        }
    }

    /// A reply with a Message-Authenticator, signed as a server does.
    fn reply(request: &[u8], secret: &[u8], attributes: &[u8]) -> Vec<u8> {
        let length = (HEADER_BYTES + 18 + attributes.len()) as u16;
        let mut reply = vec![2, request[1]];
        reply.extend_from_slice(&length.to_be_bytes());
        reply.extend_from_slice(&request[4..20]);
        reply.extend_from_slice(attributes);
        reply.extend_from_slice(&[80, 18]);
        reply.extend_from_slice(&[0; 16]);
        let mac = message_authenticator(secret, &[&reply]);
        let at = reply.len() - 16;
        reply[at..].copy_from_slice(&mac);
        let authenticator = md5(&[&reply, secret]);
        reply[4..20].copy_from_slice(&authenticator);
        reply
    }

    #[test]
    fn a_wrong_message_authenticator_fails_verification() {
        let exchange = access_requests(b"s", "bob", b"hello", PasswordMethod::Pap).unwrap();
        let check = ReplyCheck::new(b"s");
        let request = &exchange.requests[7];
        let mut bytes = reply(request, b"s", &[18, 4, b'h', b'i']);
        assert!(check.verify(request, &bytes));
        assert!(
            !check.verify(&exchange.requests[7 + 256], &bytes),
            "a reply to another request with the same identifier"
        );
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        bytes[4..20].copy_from_slice(&request[4..20]);
        let authenticator = md5(&[&bytes, b"s"]);
        bytes[4..20].copy_from_slice(&authenticator);
        assert!(!check.verify(request, &bytes));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_fail_verification(
            bytes in prop::collection::vec(any::<u8>(), 0..80), length in 0..80u16,
        ) {
            let check = ReplyCheck::new(b"s");
            let mut bytes = bytes;
            if bytes.len() >= 20 {
                bytes[2..4].copy_from_slice(&length.to_be_bytes());
                bytes[1] = REQUEST_HEADER[1];
            }
            prop_assert!(!check.verify(&REQUEST_HEADER, &bytes));
            find_message_authenticator(&bytes);
        }
    }
}
