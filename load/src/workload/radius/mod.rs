//! RADIUS Access-Requests (RFC 2865), with a Message-Authenticator (RFC 3579).

mod packet;
mod verify;

use std::sync::Arc;

use super::error::SourceError;
use super::{EchoedTag, PreparedExchange, ReplyCode, RequestOrder};
use packet::{AUTHENTICATOR_BYTES, HEADER_BYTES, PacketBuilder, kind};
use verify::ReplyCheck;

// Prepared requests, each with its own authenticator, so that a server that remembers recent
// requests does not treat one as a retransmission.
const REQUESTS: usize = 16_384;

// The most bytes of an attribute's value (RFC 2865, 5), and of a User-Password (5.2).
const VALUE_BYTES: usize = 253;
const PASSWORD_BYTES: usize = 128;

/// How the password is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PasswordMethod {
    /// User-Password, hidden with the secret (RFC 2865, 5.2).
    #[default]
    Pap,
    /// CHAP-Password; the request's authenticator is the challenge (RFC 2865, 5.3).
    Chap,
}

/// Access-Requests of one user: 16384 of them, with random authenticators, each the next
/// identifier. Replies are distinguished by the identifier, so that a flow has at most 256 requests
/// in flight. A reply counts if its length and its Response Authenticator are right, and its
/// Message-Authenticator if it has one. Replies are counted by packet type.
///
/// # Errors
///
/// No secret or user, or a secret, user or password that is too long.
pub fn access_requests(
    secret: &[u8],
    user: &str,
    password: &[u8],
    method: PasswordMethod,
) -> Result<PreparedExchange, SourceError> {
    check(secret, user, password)?;
    let requests = (0..REQUESTS).map(|number| {
        let mut authenticator = [0; AUTHENTICATOR_BYTES];
        fastrand::fill(&mut authenticator);
        access_request(number as u8, authenticator, secret, user, password, method)
    });
    Ok(PreparedExchange {
        protocol: "radius",
        requests: requests.collect(),
        order: RequestOrder::ByTag,
        tag: Some(EchoedTag { bytes: 1, request_offset: 1, reply_offset: 1 }),
        marks: Vec::new(),
        shortest_reply_bytes: HEADER_BYTES,
        code: Some(ReplyCode { offset: 0, mask: 0xff, truncated: None, name: kind_name }),
        verify: Some(Arc::new(ReplyCheck::new(secret))),
        notes: Vec::new(),
    })
}

fn access_request(
    identifier: u8,
    authenticator: [u8; AUTHENTICATOR_BYTES],
    secret: &[u8],
    user: &str,
    password: &[u8],
    method: PasswordMethod,
) -> Vec<u8> {
    let mut packet = PacketBuilder::new(kind::ACCESS_REQUEST, identifier, authenticator);
    // Servers may demand it since 2024 (CVE-2024-3596). The first attribute, so that anything an
    // attacker appends comes after it (draft-ietf-radext-deprecating-radius).
    packet.attribute(kind::MESSAGE_AUTHENTICATOR, &[0; AUTHENTICATOR_BYTES]);
    packet.attribute(kind::USER_NAME, user.as_bytes());
    match method {
        PasswordMethod::Pap => {
            packet.attribute(kind::USER_PASSWORD, &packet::hide_password(password, secret, authenticator));
        }
        PasswordMethod::Chap => {
            packet
                .attribute(kind::CHAP_PASSWORD, &packet::chap_password(identifier, password, authenticator));
        }
    }
    // A request has to have this or the address (RFC 2865, 4.1).
    packet.attribute(kind::NAS_IDENTIFIER, b"linerate");
    packet.finish(secret)
}

fn check(secret: &[u8], user: &str, password: &[u8]) -> Result<(), SourceError> {
    let check_length = |option, bytes: usize, min: usize, max: usize| match bytes {
        bytes if bytes < min => Err(SourceError::option(option, "empty: give at least one byte")),
        bytes if bytes > max => {
            Err(SourceError::option(option, format!("{bytes} bytes: it has at most {max}")))
        }
        _ => Ok(()),
    };
    check_length("RADIUS secret", secret.len(), 1, usize::MAX)?;
    check_length("RADIUS user", user.len(), 1, VALUE_BYTES)?;
    check_length("RADIUS password", password.len(), 0, PASSWORD_BYTES)
}

// Packet types that answer an Access-Request (RFC 2865, 3; Protocol-Error: RFC 7930).
fn kind_name(kind: u8) -> Option<&'static str> {
    match kind {
        2 => Some("Access-Accept"),
        3 => Some("Access-Reject"),
        11 => Some("Access-Challenge"),
        52 => Some("Protocol-Error"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_distinct_authenticators_and_their_number_as_identifier() {
        let exchange = access_requests(b"s3cret", "bob", b"hello", PasswordMethod::Pap).unwrap();
        assert_eq!(exchange.requests.len(), REQUESTS);
        let authenticators: std::collections::HashSet<&[u8]> =
            exchange.requests.iter().map(|request| &request[4..20]).collect();
        assert_eq!(authenticators.len(), REQUESTS);
        assert!(exchange.requests.iter().all(|request| request.len() == 71));
        assert!(!format!("{exchange:?}").contains("s3cret"));
        // `RequestOrder::ByTag` requires it.
        assert!(REQUESTS.is_power_of_two());
        let mut identifiers = (0..).zip(&exchange.requests);
        assert!(identifiers.all(|(number, request): (usize, _)| request[1] == number as u8));
    }

    #[test]
    fn errors_name_the_invalid_radius_option() {
        let long = "x".repeat(254);
        for (result, message) in [
            (access_requests(b"", "bob", b"", PasswordMethod::Pap), "RADIUS secret: empty"),
            (access_requests(b"s", "", b"", PasswordMethod::Pap), "RADIUS user: empty"),
            (
                access_requests(b"s", &long, b"", PasswordMethod::Pap),
                "RADIUS user: 254 bytes: it has at most 253",
            ),
            (access_requests(b"s", "bob", &[1; 129], PasswordMethod::Pap), "RADIUS password: 129 bytes"),
        ] {
            let error = result.unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    /// RFC 2865, 7.1: user nemo, password arctangent, secret xyzzy5461.
    #[test]
    fn a_hidden_password_equals_the_rfc_2865_example() {
        let authenticator =
            [0x0f, 0x40, 0x3f, 0x94, 0x73, 0x97, 0x80, 0x57, 0xbd, 0x83, 0xd5, 0xcb, 0x98, 0xf4, 0x22, 0x7a];
        let hidden =
            [0x0d, 0xbe, 0x70, 0x8d, 0x93, 0xd4, 0x13, 0xce, 0x31, 0x96, 0xe4, 0x3f, 0x78, 0x2a, 0x0a, 0xee];
        assert_eq!(packet::hide_password(b"arctangent", b"xyzzy5461", authenticator), hidden);
    }

    /// RFC 2865, 7.2: user flopsy, CHAP password arctangent, identifier 0x16.
    #[test]
    fn a_chap_request_has_the_password_of_the_rfc_2865_example() {
        let challenge =
            [0x2a, 0xee, 0x86, 0xf0, 0x8d, 0x0d, 0x55, 0x96, 0x9c, 0xa5, 0x97, 0x8e, 0x0d, 0x33, 0x67, 0xa2];
        let value = packet::chap_password(0x16, b"arctangent", challenge);
        assert_eq!(
            value,
            [
                0x16, 0xe9, 0x75, 0x57, 0xc3, 0x16, 0x18, 0x58, 0x95, 0xf2, 0x93, 0xff, 0x63, 0x44, 0x07,
                0x72, 0x75
            ]
        );
        let request = access_request(0x16, challenge, b"s", "bob", b"arctangent", PasswordMethod::Chap);
        assert_eq!(request[43..62], [&[kind::CHAP_PASSWORD, 19][..], &value].concat());
    }
}
