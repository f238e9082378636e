//! Packets and their hashes.

use hmac::{Hmac, Mac as _};
use md5::{Digest as _, Md5};

/// Bytes of a header: type, identifier, length, authenticator.
pub(super) const HEADER_BYTES: usize = 20;

pub(super) const AUTHENTICATOR_BYTES: usize = 16;

// Numbers of packets and attributes (RFC 2865, 2869).
pub(super) mod kind {
    pub(in super::super) const ACCESS_REQUEST: u8 = 1;
    pub(in super::super) const USER_NAME: u8 = 1;
    pub(in super::super) const USER_PASSWORD: u8 = 2;
    pub(in super::super) const CHAP_PASSWORD: u8 = 3;
    pub(in super::super) const NAS_IDENTIFIER: u8 = 32;
    pub(in super::super) const MESSAGE_AUTHENTICATOR: u8 = 80;
}

pub(super) struct PacketBuilder(Vec<u8>);

impl PacketBuilder {
    pub(super) fn new(kind: u8, identifier: u8, authenticator: [u8; AUTHENTICATOR_BYTES]) -> Self {
        let mut bytes = vec![kind, identifier, 0, 0];
        bytes.extend_from_slice(&authenticator);
        PacketBuilder(bytes)
    }

    // Adds an attribute; its value has at most 253 bytes.
    pub(super) fn attribute(&mut self, kind: u8, value: &[u8]) {
        self.0.extend_from_slice(&[kind, (value.len() + 2) as u8]);
        self.0.extend_from_slice(value);
    }

    /// Writes the length and the Message-Authenticator, which is the first attribute and still zero.
    pub(super) fn finish(mut self, secret: &[u8]) -> Vec<u8> {
        let length = self.0.len() as u16;
        self.0[2..4].copy_from_slice(&length.to_be_bytes());
        let mac = message_authenticator(secret, &[&self.0]);
        let value_at = HEADER_BYTES + 2;
        self.0[value_at..value_at + AUTHENTICATOR_BYTES].copy_from_slice(&mac);
        self.0
    }
}

// HMAC-MD5 over a packet in parts, in which the attribute's own value is zero (RFC 3579, 3.2).
pub(super) fn message_authenticator(secret: &[u8], parts: &[&[u8]]) -> [u8; AUTHENTICATOR_BYTES] {
    let mut mac = Hmac::<Md5>::new_from_slice(secret).expect("HMAC takes keys of any length (RFC 2104)");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

pub(super) fn md5(parts: &[&[u8]]) -> [u8; AUTHENTICATOR_BYTES] {
    let mut hash = Md5::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

// A User-Password, each block hidden by the hash of the secret and the previous block (RFC 2865,
// 5.2).
pub(super) fn hide_password(
    password: &[u8],
    secret: &[u8],
    authenticator: [u8; AUTHENTICATOR_BYTES],
) -> Vec<u8> {
    let mut hidden = password.to_vec();
    hidden.resize(password.len().max(1).next_multiple_of(AUTHENTICATOR_BYTES), 0);
    let mut previous_block = authenticator;
    for block in hidden.chunks_exact_mut(AUTHENTICATOR_BYTES) {
        for (byte, mask) in block.iter_mut().zip(md5(&[secret, &previous_block])) {
            *byte ^= mask;
        }
        previous_block.copy_from_slice(block);
    }
    hidden
}

// A CHAP-Password: the identifier, and the hash of identifier, password and challenge (RFC 2865,
// 5.3).
pub(super) fn chap_password(
    identifier: u8,
    password: &[u8],
    challenge: [u8; AUTHENTICATOR_BYTES],
) -> Vec<u8> {
    let mut value = vec![identifier];
    value.extend_from_slice(&md5(&[&[identifier], password, &challenge]));
    value
}
