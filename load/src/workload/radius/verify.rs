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

    fn message_authenticator_holds(&self, request: &[u8], reply: &[u8], value_at: usize) -> bool {
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
        let (Some(header), Some(asked)) = (reply.first_chunk::<HEADER_BYTES>(), request.get(..HEADER_BYTES))
        else {
            return false;
        };
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        // Bytes behind the packet are padding (RFC 2865, 3).
        let Some(reply) = reply.get(..length).filter(|_| PACKET_BYTES.contains(&length)) else {
            return false;
        };
        if header[1] != asked[1] {
            return false;
        }
        let (kept, attributes) = (&reply[..4], &reply[HEADER_BYTES..]);
        if header[4..] != md5(&[kept, &asked[4..], attributes, &self.secret]) {
            return false;
        }
        match message_authenticators(attributes) {
            Some(found) => {
                found.iter().all(|at| self.message_authenticator_holds(request, reply, HEADER_BYTES + at))
            }
            None => false,
        }
    }
}

// Positions of the values of Message-Authenticators; `None` if the attributes are malformed.
fn message_authenticators(attributes: &[u8]) -> Option<Option<usize>> {
    let mut found = None;
    let mut at = 0;
    while at < attributes.len() {
        let length = usize::from(*attributes.get(at + 1)?);
        if length < 2 || at + length > attributes.len() {
            return None;
        }
        if attributes[at] == kind::MESSAGE_AUTHENTICATOR {
            if length != 2 + AUTHENTICATOR_BYTES || found.is_some() {
                return None;
            }
            found = Some(at + 2);
        }
        at += length;
    }
    Some(found)
}

impl fmt::Debug for ReplyCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReplyCheck")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::radius::{RadiusOptions, access_requests};
    use proptest::prelude::*;

    /// RFC 2865, 7.1: the reply to the request whose authenticator this is.
    const ASKED: [u8; 20] = [
        0x01, 0x00, 0x00, 0x38, 0x0f, 0x40, 0x3f, 0x94, 0x73, 0x97, 0x80, 0x57, 0xbd, 0x83, 0xd5, 0xcb, 0x98,
        0xf4, 0x22, 0x7a,
    ];
    const ANSWERED: [u8; 38] = [
        0x02, 0x00, 0x00, 0x26, 0x86, 0xfe, 0x22, 0x0e, 0x76, 0x24, 0xba, 0x2a, 0x10, 0x05, 0xf6, 0xbf, 0x9b,
        0x55, 0xe0, 0xb2, 0x06, 0x06, 0x00, 0x00, 0x00, 0x01, 0x0f, 0x06, 0x00, 0x00, 0x00, 0x00, 0x0e, 0x06,
        0xc0, 0xa8, 0x01, 0x03,
    ];

    #[test]
    fn the_standards_reply_is_right_and_no_changed_one() {
        let check = ReplyCheck::new(b"xyzzy5461");
        assert!(check.verify(&ASKED, &ANSWERED));
        assert!(check.verify(&ASKED, &[&ANSWERED[..], &[0; 4]].concat()), "padding is none of its business");
        assert!(!check.verify(&ASKED, &ANSWERED[..37]));
        assert!(!ReplyCheck::new(b"other").verify(&ASKED, &ANSWERED));
        for at in 0..ANSWERED.len() {
            let mut changed = ANSWERED;
            changed[at] ^= 1;
            assert!(!check.verify(&ASKED, &changed), "byte {at}");
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
    fn a_wrong_message_authenticator_is_told_though_the_rest_is_right() {
        let exchange = access_requests(b"s", "bob", b"hello", &RadiusOptions::default()).unwrap();
        let check = ReplyCheck::new(b"s");
        let request = &exchange.requests[7];
        let mut bytes = reply(request, b"s", &[18, 4, b'h', b'i']);
        assert!(check.verify(request, &bytes));
        assert!(
            !check.verify(&exchange.requests[7 + 256], &bytes),
            "of another request with this identifier"
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
        fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..80), length in 0..80u16) {
            let check = ReplyCheck::new(b"s");
            let mut bytes = bytes;
            if bytes.len() >= 20 {
                bytes[2..4].copy_from_slice(&length.to_be_bytes());
                bytes[1] = ASKED[1];
            }
            prop_assert!(!check.verify(&ASKED, &bytes));
            message_authenticators(&bytes);
        }
    }
}
