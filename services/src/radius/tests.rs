use std::path::Path;
use std::time::Duration;

use hmac::{Hmac, Mac};
use md5::{Digest, Md5};

use super::*;

const FILE: &str = r#"
[[client]]
network = "192.0.2.0/24"
secret = "s3cret"
[[client]]
network = "198.51.100.0/24"
secret = "s3cret"
message-authenticator = "optional"
[[user]]
name = "alice"
password = "correct horse battery staple"
[user.reply]
Session-Timeout = 60
"#;

const NAS: &str = "192.0.2.1:4000";
const OLD_NAS: &str = "198.51.100.1:4000";

fn server() -> RadiusServer {
    RadiusServer::new(Arc::new(UserDatabase::parse(FILE, Path::new("users")).unwrap()))
}

/// Hides a password as a NAS does (RFC 2865, section 5.2).
fn hidden_password(password: &[u8], secret: &[u8], authenticator: [u8; 16]) -> Vec<u8> {
    let mut padded = password.to_vec();
    padded.resize(password.len().max(1).next_multiple_of(16), 0);
    let mut password_value: Vec<u8> = Vec::new();
    for block in padded.chunks(16) {
        let before = if password_value.is_empty() {
            authenticator.to_vec()
        } else {
            password_value[password_value.len() - 16..].to_vec()
        };
        let mask = Md5::new().chain_update(secret).chain_update(before).finalize();
        password_value.extend(block.iter().zip(mask).map(|(byte, mask)| byte ^ mask));
    }
    password_value
}

/// A request with the authenticator `[id; 16]`, signed if there is a secret.
fn request(code: u8, id: u8, attributes: &[(u8, Vec<u8>)], secret: Option<&[u8]>) -> Vec<u8> {
    let mut buffer = [0; MOST_BYTES];
    let mut writer = PacketWriter::new(&mut buffer, code, id, [id; 16]).unwrap();
    for (kind, value) in attributes {
        writer.attribute(*kind, value).unwrap();
    }
    let at = secret.map(|_| writer.attribute(attribute::MESSAGE_AUTHENTICATOR, &[0; 16]).unwrap());
    let mut packet = writer.finish().to_vec();
    if let (Some(secret), Some(at)) = (secret, at) {
        let mac = Hmac::<Md5>::new_from_slice(secret).unwrap().chain_update(&packet).finalize().into_bytes();
        packet[at..at + 16].copy_from_slice(&mac);
    }
    packet
}

fn pap(id: u8, password: &str) -> Vec<(u8, Vec<u8>)> {
    let password_value = hidden_password(password.as_bytes(), b"s3cret", [id; 16]);
    vec![(attribute::USER_NAME, b"alice".to_vec()), (attribute::USER_PASSWORD, password_value)]
}

fn outcome_and_reply(
    radius: &RadiusServer,
    datagram: &[u8],
    source: &str,
) -> (RequestOutcome, Option<Vec<u8>>) {
    let mut reply = [0xee; MOST_BYTES];
    let (outcome, length) = radius.answer_at(datagram, source.parse().unwrap(), Instant::now(), &mut reply);
    (outcome, length.map(|length| reply[..length].to_vec()))
}

/// Checks a reply as a NAS does, and returns its code and attributes.
fn code_and_attributes(reply: &[u8], request: &[u8]) -> (u8, Vec<(u8, Vec<u8>)>) {
    let (packet, request) = (RadiusPacket::parse(reply).unwrap(), RadiusPacket::parse(request).unwrap());
    assert_eq!(packet.identifier(), request.identifier());
    let digest = Md5::new()
        .chain_update(&reply[..4])
        .chain_update(request.authenticator())
        .chain_update(&reply[20..])
        .chain_update(b"s3cret")
        .finalize();
    assert_eq!(packet.authenticator(), *digest);
    assert_eq!(reply[20], attribute::MESSAGE_AUTHENTICATOR, "the first attribute");
    assert_eq!(signature(packet, b"s3cret", request.authenticator()), SignatureCheck::Right);
    let attributes = packet.attributes().map(|attribute| (attribute.kind, attribute.value.to_vec()));
    (packet.code(), attributes.skip(1).collect())
}

#[test]
fn the_right_password_is_accepted() {
    let radius = server();
    let mut attributes = pap(1, "correct horse battery staple");
    attributes.push((attribute::PROXY_STATE, b"p1".to_vec()));
    attributes.push((attribute::PROXY_STATE, b"p2".to_vec()));
    let request = request(code::ACCESS_REQUEST, 1, &attributes, Some(b"s3cret"));
    let (outcome, reply) = outcome_and_reply(&radius, &request, NAS);
    assert_eq!(outcome, RequestOutcome::Accepted);
    let (code, attributes) = code_and_attributes(&reply.unwrap(), &request);
    let expected = [(27, vec![0, 0, 0, 60]), (33, b"p1".to_vec()), (33, b"p2".to_vec())];
    assert_eq!((code, attributes), (code::ACCESS_ACCEPT, expected.to_vec()));
    assert_eq!(radius.counts().to_string(), "1 accepted");
}

#[test]
fn chap_is_accepted_with_both_kinds_of_challenge() {
    let radius = server();
    let chap = |id: u8, password: &str, challenge: &[u8]| {
        let digest = Md5::new().chain_update([9]).chain_update(password).chain_update(challenge).finalize();
        let mut attributes = vec![(1, b"alice".to_vec()), (3, [&[9][..], &digest].concat())];
        if challenge.len() != 16 {
            attributes.push((attribute::CHAP_CHALLENGE, challenge.to_vec()));
        }
        request(code::ACCESS_REQUEST, id, &attributes, Some(b"s3cret"))
    };
    let right = "correct horse battery staple";
    assert_eq!(outcome_and_reply(&radius, &chap(2, right, &[2; 16]), NAS).0, RequestOutcome::Accepted);
    assert_eq!(
        outcome_and_reply(&radius, &chap(3, right, b"any length will do"), NAS).0,
        RequestOutcome::Accepted
    );
    assert_eq!(outcome_and_reply(&radius, &chap(4, "wrong", &[4; 16]), NAS).0, RequestOutcome::Rejected);
}

#[test]
fn wrong_or_incomplete_credentials_are_rejected() {
    let radius = server();
    let pap_and_chap = [pap(6, "correct horse battery staple"), vec![(3, vec![0; 17])]].concat();
    let unknown = vec![(1, b"mallory".to_vec()), (2, vec![0; 16])];
    let eap = vec![(1, b"alice".to_vec()), (attribute::EAP_MESSAGE, vec![2, 0, 0, 4])];
    let odd = vec![(1, b"alice".to_vec()), (2, vec![0; 17])];
    let cases = [pap(5, "wrong"), pap_and_chap, unknown, eap, odd, vec![(1, b"alice".to_vec())], Vec::new()];
    for (id, attributes) in (5..).zip(cases) {
        let request = request(code::ACCESS_REQUEST, id, &attributes, Some(b"s3cret"));
        let (outcome, reply) = outcome_and_reply(&radius, &request, NAS);
        assert_eq!(outcome, RequestOutcome::Rejected, "{id}");
        assert_eq!(code_and_attributes(&reply.unwrap(), &request), (code::ACCESS_REJECT, Vec::new()), "{id}");
    }
}

#[test]
fn requests_without_the_secret_get_no_reply() {
    let radius = server();
    let right = pap(1, "correct horse battery staple");
    let signed_request = |secret: &'static [u8]| request(code::ACCESS_REQUEST, 1, &right, Some(secret));
    let unsigned_request = request(code::ACCESS_REQUEST, 1, &right, None);
    assert_eq!(
        outcome_and_reply(&radius, &signed_request(b"s3cret"), "203.0.113.1:4000"),
        (RequestOutcome::UnknownClient, None)
    );
    assert_eq!(
        outcome_and_reply(&radius, &signed_request(b"another"), NAS),
        (RequestOutcome::WrongSecret, None)
    );
    assert_eq!(outcome_and_reply(&radius, &unsigned_request, NAS), (RequestOutcome::Unsigned, None));
    // This client need not sign its requests, except EAP requests.
    assert_eq!(outcome_and_reply(&radius, &unsigned_request, OLD_NAS).0, RequestOutcome::Accepted);
    let eap = request(code::ACCESS_REQUEST, 2, &[(attribute::EAP_MESSAGE, vec![1])], None);
    assert_eq!(outcome_and_reply(&radius, &eap, OLD_NAS), (RequestOutcome::Unsigned, None));
    let expected = "1 accepted, 1 unanswered: from no client of the file, 2 unanswered: without Message-Authenticator, \
                    1 unanswered: wrong signature, usually another secret";
    assert_eq!(radius.counts().to_string(), expected);
}

#[test]
fn a_repeated_request_is_recognized_for_five_seconds() {
    let radius = server();
    let request = request(code::ACCESS_REQUEST, 1, &pap(1, "wrong"), Some(b"s3cret"));
    let (now, mut reply) = (Instant::now(), [0; MOST_BYTES]);
    let mut answer = |port: u16, after: Duration| {
        reply.fill(0);
        let source = SocketAddr::from(([192, 0, 2, 1], port));
        let (outcome, length) = radius.answer_at(&request, source, now + after, &mut reply);
        (outcome, reply[..length.unwrap()].to_vec())
    };
    let (outcome, first_reply) = answer(1, Duration::ZERO);
    assert_eq!(outcome, RequestOutcome::Rejected);
    assert_eq!(answer(1, KEPT), (RequestOutcome::Repeated, first_reply));
    assert_eq!(answer(2, KEPT).0, RequestOutcome::Rejected);
    assert_eq!(answer(1, KEPT * 2).0, RequestOutcome::Rejected);
}

#[test]
fn status_server_is_answered() {
    let radius = server();
    let signed_request = request(code::STATUS_SERVER, 1, &[], Some(b"s3cret"));
    for _ in 0..2 {
        let (outcome, reply) = outcome_and_reply(&radius, &signed_request, NAS);
        assert_eq!(outcome, RequestOutcome::Status);
        assert_eq!(code_and_attributes(&reply.unwrap(), &signed_request), (code::ACCESS_ACCEPT, Vec::new()));
    }
    let unsigned_request = request(code::STATUS_SERVER, 2, &[], None);
    assert_eq!(outcome_and_reply(&radius, &unsigned_request, OLD_NAS), (RequestOutcome::Unsigned, None));
}

#[test]
fn replies_and_other_packet_types_get_no_reply() {
    let radius = server();
    for code in [0, code::ACCESS_ACCEPT, code::ACCESS_REJECT, 4, 5, 11, 255] {
        let answer = request(code, 1, &[], Some(b"s3cret"));
        assert_eq!(outcome_and_reply(&radius, &answer, NAS), (RequestOutcome::WrongType, None), "{code}");
    }
}

#[test]
fn a_reply_larger_than_the_buffer_is_not_sent() {
    let radius = server();
    let request = request(code::ACCESS_REQUEST, 1, &pap(1, "wrong"), Some(b"s3cret"));
    for space in 0..38 {
        let mut reply = vec![0; space];
        let answer = radius.answer_at(&request, NAS.parse().unwrap(), Instant::now(), &mut reply);
        assert_eq!(answer, (RequestOutcome::Incomplete, None), "{space}");
    }
}
