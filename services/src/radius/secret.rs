//! Uses of the shared secret: hidden passwords and signed packets (RFC 2865, 2866, 3579).

use hmac::{Hmac, Mac};
use md5::{Digest, Md5};
use subtle::ConstantTimeEq;

use super::packet::{AUTHENTICATOR_BYTES, HEADER_BYTES, RadiusPacket, attribute};

type Authenticator = [u8; AUTHENTICATOR_BYTES];

/// The longest password, bytes (RFC 2865, section 5.2).
pub const PASSWORD_BYTES: usize = 128;

/// The password in a User-Password (RFC 2865, section 5.2) without its padding of zeros. `None` if the value has a wrong
/// length.
#[must_use]
pub fn reveal_password(hidden: &[u8], secret: &[u8], authenticator: Authenticator) -> Option<Vec<u8>> {
    if hidden.is_empty() || hidden.len() > PASSWORD_BYTES || !hidden.len().is_multiple_of(AUTHENTICATOR_BYTES)
    {
        return None;
    }
    let mut password = Vec::with_capacity(hidden.len());
    let mut previous_block: &[u8] = &authenticator;
    for block in hidden.chunks(AUTHENTICATOR_BYTES) {
        let mask = Md5::new().chain_update(secret).chain_update(previous_block).finalize();
        password.extend(block.iter().zip(mask).map(|(byte, mask)| byte ^ mask));
        previous_block = block;
    }
    let end = password.iter().rposition(|byte| *byte != 0).map_or(0, |index| index + 1);
    password.truncate(end);
    Some(password)
}

/// Whether a CHAP-Password (RFC 2865, section 5.3) answers `challenge` with `password`.
#[must_use]
pub fn verify_chap(value: &[u8], password: &[u8], challenge: &[u8]) -> bool {
    let Some((identifier, response)) = value.split_first() else {
        return false;
    };
    let digest =
        Md5::new().chain_update([*identifier]).chain_update(password).chain_update(challenge).finalize();
    constant_time_eq(&digest, response)
}

/// Compares in a time that does not depend on the content.
#[must_use]
pub fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    left.ct_eq(right).into()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureCheck {
    Right,
    Missing,
    /// Wrong, or more than one.
    Wrong,
}

/// Checks the Message-Authenticator of a request (RFC 3579, section 3.2). It covers a header with `authenticator`: that of
/// the request, or zeros in packets whose authenticator is a digest.
#[must_use]
pub fn signature(packet: RadiusPacket<'_>, secret: &[u8], authenticator: Authenticator) -> SignatureCheck {
    let mut signatures =
        packet.attributes().filter(|attribute| attribute.kind == attribute::MESSAGE_AUTHENTICATOR);
    let Some(first) = signatures.next() else {
        return SignatureCheck::Missing;
    };
    if signatures.next().is_some() || first.value.len() != AUTHENTICATOR_BYTES {
        return SignatureCheck::Wrong;
    }
    let bytes = packet.bytes();
    let mac = keyed_hmac(secret)
        .chain_update(&bytes[..4])
        .chain_update(authenticator)
        .chain_update(&bytes[HEADER_BYTES..first.offset])
        .chain_update([0; AUTHENTICATOR_BYTES])
        .chain_update(&bytes[first.offset + AUTHENTICATOR_BYTES..]);
    if mac.verify_slice(first.value).is_ok() { SignatureCheck::Right } else { SignatureCheck::Wrong }
}

/// Signs a reply whose header has the authenticator of the request: writes the Message-Authenticator at the offset
/// `signature`, where the reply has zeros, and then the Response Authenticator (RFC 2865, section 3).
pub fn sign(reply: &mut [u8], signature: Option<usize>, secret: &[u8], request: Authenticator) {
    if let Some(offset) = signature {
        let mac = keyed_hmac(secret).chain_update(&*reply).finalize().into_bytes();
        reply[offset..offset + AUTHENTICATOR_BYTES].copy_from_slice(&mac);
    }
    let response = digest(reply, request, secret);
    reply[4..HEADER_BYTES].copy_from_slice(&response);
}

fn digest(packet: &[u8], authenticator: Authenticator, secret: &[u8]) -> Authenticator {
    let digest = Md5::new()
        .chain_update(&packet[..4])
        .chain_update(authenticator)
        .chain_update(&packet[HEADER_BYTES..])
        .chain_update(secret);
    digest.finalize().into()
}

fn keyed_hmac(secret: &[u8]) -> Hmac<Md5> {
    Hmac::new_from_slice(secret).expect("an HMAC takes a key of any length")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radius::packet::PacketWriter;

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        assert_eq!(digits.len(), 2 * N);
        std::array::from_fn(|at| {
            let pair = std::str::from_utf8(&digits[2 * at..2 * at + 2]).unwrap();
            u8::from_str_radix(pair, 16).unwrap()
        })
    }

    /// RFC 2865, section 7.1: user nemo, password arctangent, secret xyzzy5461.
    const REQUEST: &str = "01 00 00 38 0f 40 3f 94 73 97 80 57 bd 83 d5 cb 98 f4 22 7a 01 06 6e 65 6d 6f 02 12 0d be \
        70 8d 93 d4 13 ce 31 96 e4 3f 78 2a 0a ee 04 06 c0 a8 01 10 05 06 00 00 00 03";
    const ACCEPT: &str = "02 00 00 26 86 fe 22 0e 76 24 ba 2a 10 05 f6 bf 9b 55 e0 b2 06 06 00 00 00 01 0f 06 00 00 00 00 \
        0e 06 c0 a8 01 03";

    #[test]
    fn the_rfc_2865_password_is_revealed() {
        let request = bytes::<56>(REQUEST);
        let packet = RadiusPacket::parse(&request).unwrap();
        let hidden_password = packet.find(attribute::USER_PASSWORD).unwrap();
        let password = reveal_password(hidden_password, b"xyzzy5461", packet.authenticator()).unwrap();
        assert_eq!(password, b"arctangent");
    }

    #[test]
    fn signing_the_rfc_2865_reply_gives_its_authenticator() {
        let (request, accept) = (bytes::<56>(REQUEST), bytes::<38>(ACCEPT));
        let mut reply = accept;
        reply[4..20].fill(0);
        sign(&mut reply, None, b"xyzzy5461", RadiusPacket::parse(&request).unwrap().authenticator());
        assert_eq!(reply, accept);
    }

    #[test]
    fn the_rfc_2865_chap_response_verifies() {
        // RFC 2865, section 7.2: the same user with CHAP; its challenge is the authenticator.
        let challenge = bytes::<16>("2a ee 86 f0 8d 0d 55 96 9c a5 97 8e 0d 33 67 a2");
        let value = bytes::<17>("16 e9 75 57 c3 16 18 58 95 f2 93 ff 63 44 07 72 75");
        assert!(verify_chap(&value, b"arctangent", &challenge));
        assert!(!verify_chap(&value, b"arctangen", &challenge));
        assert!(!verify_chap(&value[..16], b"arctangent", &challenge) && !verify_chap(&[], b"", b""));
    }

    #[test]
    fn hidden_passwords_of_invalid_length_are_refused() {
        for length in [0, 1, 15, 17, 144] {
            assert_eq!(reveal_password(&vec![0; length], b"s", [0; 16]), None, "{length}");
        }
        assert!(reveal_password(&[0; 128], b"s", [0; 16]).is_some());
    }

    #[test]
    fn a_changed_packet_or_second_signature_fails_verification() {
        let mut buffer = [0; 100];
        let mut writer = PacketWriter::new(&mut buffer, 1, 5, [3; 16]).unwrap();
        writer.attribute(attribute::USER_NAME, b"nemo").unwrap();
        let at = writer.attribute(attribute::MESSAGE_AUTHENTICATOR, &[0; 16]).unwrap();
        writer.attribute(attribute::PROXY_STATE, b"x").unwrap();
        let mut bytes = writer.finish().to_vec();
        let mac = keyed_hmac(b"secret").chain_update(&bytes).finalize().into_bytes();
        bytes[at..at + 16].copy_from_slice(&mac);
        let verdict =
            |bytes: &[u8], secret: &[u8]| signature(RadiusPacket::parse(bytes).unwrap(), secret, [3; 16]);
        assert_eq!(verdict(&bytes, b"secret"), SignatureCheck::Right);
        assert_eq!(verdict(&bytes, b"secrets"), SignatureCheck::Wrong);
        for byte in 0..bytes.len() {
            let mut changed_packet = bytes.clone();
            changed_packet[byte] ^= 1;
            // The authenticator is an argument here, and a changed length is malformed.
            if let Some(packet) = RadiusPacket::parse(&changed_packet).filter(|_| !(4..20).contains(&byte)) {
                assert_ne!(signature(packet, b"secret", [3; 16]), SignatureCheck::Right, "byte {byte}");
            }
        }
        let twice = [&bytes[..], &bytes[at - 2..at + 16]].concat();
        let mut twice = twice;
        let length = (twice.len() as u16).to_be_bytes();
        twice[2..4].copy_from_slice(&length);
        assert_eq!(verdict(&twice, b"secret"), SignatureCheck::Wrong);
    }
}
