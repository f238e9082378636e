//! Datagrams for the RADIUS server: any bytes, packets as a NAS builds and signs them, partly
//! damaged, or the text of a file of users.
//!
//! The expected replies are computed here a second time, from the RFCs and without code of the
//! server.

#![no_main]

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hmac::{Hmac, Mac as _};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use linerate_services::radius::{KEPT, MOST_BYTES, RadiusServer, RequestOutcome, UserDatabase};
use md5::{Digest as _, Md5};

const SECRET: &[u8] = b"s3cret";
const HEADER: usize = 20;
const USER_NAME: u8 = 1;
const USER_PASSWORD: u8 = 2;
const CHAP_PASSWORD: u8 = 3;
const PROXY_STATE: u8 = 33;
const LOGIN_SERVICE: u8 = 15;
const CHAP_CHALLENGE: u8 = 60;
const EAP_MESSAGE: u8 = 79;
const MESSAGE_AUTHENTICATOR: u8 = 80;
const KINDS: [u8; 14] = [1, 2, 3, 4, 6, 18, 24, 26, 33, 40, 60, 79, 80, 255];

const FILE: &str = include_str!("../data/users.toml");
/// Names and passwords of the users in the file.
const USERS: [(&[u8], &[u8]); 2] = [(b"alice", b"correct horse battery staple"), (b"b", b"b")];

/// The source of a request, and its entry in the file.
struct Source {
    address: &'static str,
    secret: Option<&'static [u8]>,
    signature_required: bool,
}

const SOURCES: [Source; 5] = [
    Source { address: "192.0.2.1:4000", secret: Some(SECRET), signature_required: true },
    Source { address: "198.51.100.1:4000", secret: Some(SECRET), signature_required: false },
    Source { address: "[2001:db8::1]:4000", secret: Some(b"another"), signature_required: true },
    Source { address: "[::ffff:192.0.2.9]:1812", secret: Some(SECRET), signature_required: true },
    Source { address: "203.0.113.1:4000", secret: None, signature_required: true },
];

/// A packet, parsed without code of the server.
struct RecordedValue<'a> {
    bytes: &'a [u8],
    /// Number, offset of the value, and value.
    attributes: Vec<(u8, usize, &'a [u8])>,
}

impl<'a> RecordedValue<'a> {
    fn read(datagram: &'a [u8]) -> Option<Self> {
        let length = usize::from(u16::from_be_bytes(datagram.get(2..4)?.try_into().ok()?));
        let bytes = datagram.get(..length).filter(|_| (HEADER..=MOST_BYTES).contains(&length))?;
        let (mut attributes, mut offset) = (Vec::new(), HEADER);
        while offset < length {
            let end = offset + usize::from(*bytes.get(offset + 1)?);
            attributes.push((bytes[offset], offset + 2, bytes.get(offset + 2..end)?));
            offset = end;
        }
        Some(Self { bytes, attributes })
    }

    fn authenticator(&self) -> &'a [u8] {
        &self.bytes[4..HEADER]
    }

    fn attributes_of(&self, kind: u8) -> Vec<&'a [u8]> {
        self.attributes.iter().filter(|attribute| attribute.0 == kind).map(|attribute| attribute.2).collect()
    }

    fn first(&self, kind: u8) -> Option<&'a [u8]> {
        self.attributes_of(kind).first().copied()
    }

    /// Whether its Message-Authenticator is correct with `header` as the authenticator; `None`
    /// without one.
    fn has_valid_signature(&self, secret: &[u8], header: &[u8]) -> Option<bool> {
        let mut signatures = self.attributes.iter().filter(|attribute| attribute.0 == MESSAGE_AUTHENTICATOR);
        let (_, offset, value) = signatures.next()?;
        if value.len() != 16 || signatures.next().is_some() {
            return Some(false);
        }
        let mut unsigned = self.bytes.to_vec();
        unsigned[4..HEADER].copy_from_slice(header);
        unsigned[*offset..offset + 16].fill(0);
        Some(*value == mac(&unsigned, secret))
    }

    /// Whether a server has to process the request.
    fn is_trusted(&self, source: &Source) -> bool {
        let Some(secret) = source.secret else { return false };
        match self.bytes[0] {
            1 => {
                let is_exempt = !source.signature_required && self.first(EAP_MESSAGE).is_none();
                self.has_valid_signature(secret, self.authenticator()).unwrap_or(is_exempt)
            }
            12 => self.has_valid_signature(secret, self.authenticator()) == Some(true),
            _ => false,
        }
    }

    /// Whether the request proves that the sender knows the user's password.
    fn proves_password(&self, secret: &[u8]) -> bool {
        let name = self.first(USER_NAME);
        let Some((_, password)) = USERS.iter().find(|(user_name, _)| name == Some(*user_name)) else {
            return false;
        };
        match (self.first(USER_PASSWORD), self.first(CHAP_PASSWORD)) {
            (Some(value), None) => {
                // The server treats zeros at the end as padding.
                value.len() % 16 == 0
                    && (16..=128).contains(&value.len())
                    && value.len() >= password.len()
                    && hide_password(password, value.len(), secret, self.authenticator()) == value
            }
            (None, Some([identifier, response @ ..])) => {
                let challenge = self.first(CHAP_CHALLENGE).unwrap_or(self.authenticator());
                chap(*identifier, password, challenge) == response
            }
            _ => false,
        }
    }
}

fn mac(bytes: &[u8], secret: &[u8]) -> Vec<u8> {
    let mac = Hmac::<Md5>::new_from_slice(secret).expect("any key will do").chain_update(bytes);
    mac.finalize().into_bytes().to_vec()
}

fn chap(identifier: u8, password: &[u8], challenge: &[u8]) -> Vec<u8> {
    let digest = Md5::new().chain_update([identifier]).chain_update(password).chain_update(challenge);
    digest.finalize().to_vec()
}

/// A password as a NAS hides it, padded to `length` bytes.
fn hide_password(password: &[u8], length: usize, secret: &[u8], authenticator: &[u8]) -> Vec<u8> {
    let mut padded = password.to_vec();
    padded.resize(length, 0);
    let (mut encrypted, mut previous) = (Vec::new(), authenticator.to_vec());
    for block in padded.chunks(16) {
        let mask = Md5::new().chain_update(secret).chain_update(&previous).finalize();
        previous = block.iter().zip(mask).map(|(byte, mask)| byte ^ mask).collect();
        encrypted.extend_from_slice(&previous);
    }
    encrypted
}

/// A packet as a NAS sends it, sometimes damaged.
fn packet(input: &mut Unstructured<'_>, secret: &[u8]) -> Result<Vec<u8>> {
    let code = *input.choose(&[1, 1, 1, 1, 12, 2, 3, 4, 5, 11, 255])?;
    let mut packet = vec![code, input.arbitrary()?, 0, 0];
    packet.extend_from_slice(input.bytes(16)?);
    let add_attribute = |packet: &mut Vec<u8>, kind: u8, value: &[u8]| {
        packet.extend([kind, value.len().min(253) as u8 + 2]);
        packet.extend_from_slice(&value[..value.len().min(253)]);
        packet.len() - value.len().min(253)
    };
    let (name, password) = *input.choose(&USERS)?;
    match input.int_in_range(0..=5)? {
        0 => {}
        method => {
            add_attribute(&mut packet, USER_NAME, name);
            let password = if input.ratio(1, 8)? { &b"wrong"[..] } else { password };
            let authenticator = packet[4..HEADER].to_vec();
            if method <= 3 {
                let length = password.len().next_multiple_of(16) + 16 * usize::from(input.ratio(1, 16)?);
                add_attribute(
                    &mut packet,
                    USER_PASSWORD,
                    &hide_password(password, length, secret, &authenticator),
                );
            }
            if method >= 3 && input.ratio(7, 8)? {
                let identifier = input.arbitrary()?;
                let challenge = input.ratio(1, 2)?.then(|| b"any length will do".to_vec());
                let response = chap(identifier, password, challenge.as_ref().unwrap_or(&authenticator));
                add_attribute(&mut packet, CHAP_PASSWORD, &[&[identifier][..], &response].concat());
                if let Some(challenge) = challenge {
                    add_attribute(&mut packet, CHAP_CHALLENGE, &challenge);
                }
            }
        }
    }
    let is_signed: bool = input.ratio(6, 8)?;
    let mut signature = None;
    let attributes = input.int_in_range(0..=12)?;
    let signature_place = input.int_in_range(0..=attributes)?;
    for number in 0..=attributes {
        if is_signed && number == signature_place {
            signature = Some(add_attribute(&mut packet, MESSAGE_AUTHENTICATOR, &[0; 16]));
        }
        if number < attributes {
            let kind = if input.ratio(3, 4)? { PROXY_STATE } else { *input.choose(&KINDS)? };
            let kind = if kind == MESSAGE_AUTHENTICATOR && input.ratio(7, 8)? { LOGIN_SERVICE } else { kind };
            let length = if kind == LOGIN_SERVICE { 4 } else { input.arbitrary::<u8>()?.min(253).into() };
            let value = [input.bytes(usize::min(length, input.len()))?, &[0; 253]].concat();
            add_attribute(&mut packet, kind, &value[..length]);
        }
    }
    let length = (packet.len() as u16).to_be_bytes();
    packet[2..4].copy_from_slice(&length);
    if let Some(offset) = signature {
        let mac = mac(&packet, secret);
        packet[offset..offset + 16].copy_from_slice(&mac);
    }
    if input.ratio(1, 6)? {
        let offset = input.int_in_range(0..=packet.len() - 1)?;
        packet[offset] ^= input.arbitrary::<u8>()?;
    }
    if input.ratio(1, 12)? {
        packet.extend_from_slice(&[7; 9]);
    }
    Ok(packet)
}

struct Subject {
    worker: RadiusServer,
    /// Advances with each request, so that no request counts as a repetition of an earlier one.
    now: Instant,
}

impl Subject {
    fn new() -> Self {
        let users = Arc::new(UserDatabase::parse(FILE, Path::new("users")).expect("a file of users"));
        Self { worker: RadiusServer::new(users), now: Instant::now() }
    }

    fn check_request(&mut self, datagram: &[u8], source: &Source, space: usize) {
        self.now += 2 * KEPT;
        let address: SocketAddr = source.address.parse().expect("an address");
        let mut reply = [0xee; MOST_BYTES + 8];
        // First with a buffer that may be too small: the server must not keep that reply.
        let small_length = self.worker.answer_at(datagram, address, self.now, &mut reply[..space]).1;
        assert!(small_length.is_none_or(|length| length <= space));
        self.now += 2 * KEPT;
        let (outcome, length) = self.worker.answer_at(datagram, address, self.now, &mut reply);
        let packet = RecordedValue::read(datagram);
        assert_eq!(packet.is_none(), outcome == RequestOutcome::Malformed);
        let is_trusted = packet.as_ref().is_some_and(|packet| packet.is_trusted(source));
        let is_processed = !matches!(
            outcome,
            RequestOutcome::Malformed
                | RequestOutcome::WrongType
                | RequestOutcome::UnknownClient
                | RequestOutcome::Unsigned
                | RequestOutcome::WrongSecret
        );
        assert_eq!(is_trusted, is_processed, "{outcome:?}");
        let (Some(packet), Some(secret)) = (packet, source.secret) else { return assert_eq!(length, None) };
        let expected_code = match outcome {
            RequestOutcome::Accepted | RequestOutcome::Status => Some(2),
            RequestOutcome::Rejected => Some(3),
            _ => None,
        };
        assert_eq!(length.is_some(), expected_code.is_some(), "{outcome:?}");
        if packet.bytes[0] == 1 && expected_code.is_some() {
            assert_eq!(outcome == RequestOutcome::Accepted, packet.proves_password(secret), "{outcome:?}");
        }
        let (Some(length), Some(expected_code)) = (length, expected_code) else { return };
        let answer = reply[..length].to_vec();
        assert!(reply[length..].iter().all(|byte| *byte == 0xee), "written beyond the answer");
        check(&answer, &packet, secret, expected_code);
        // The request once more, in time, gets the same reply; a reply gets no reply.
        let repeat_time = self.now + Duration::from_secs(1);
        let repeated = self.worker.answer_at(datagram, address, repeat_time, &mut reply);
        let expected =
            if outcome == RequestOutcome::Status { RequestOutcome::Status } else { RequestOutcome::Repeated };
        assert_eq!(repeated, (expected, Some(length)));
        assert_eq!(reply[..length], answer);
        assert_eq!(
            self.worker.answer_at(&answer, address, repeat_time, &mut reply),
            (RequestOutcome::WrongType, None)
        );
    }
}

/// Checks the rules that hold for every reply.
fn check(answer: &[u8], request: &RecordedValue<'_>, secret: &[u8], code: u8) {
    let packet = RecordedValue::read(answer).expect("an answer is a packet");
    assert_eq!(packet.bytes.len(), answer.len());
    assert_eq!((answer[0], answer[1]), (code, request.bytes[1]), "code and identifier");
    let mut digest = Md5::new().chain_update(&answer[..4]).chain_update(request.authenticator());
    digest.update(&answer[HEADER..]);
    assert_eq!(packet.authenticator(), &digest.chain_update(secret).finalize()[..]);
    assert_eq!(answer[HEADER], MESSAGE_AUTHENTICATOR, "the first");
    assert_eq!(packet.has_valid_signature(secret, request.authenticator()), Some(true));
    assert_eq!(packet.attributes_of(PROXY_STATE), request.attributes_of(PROXY_STATE));
    if code != 2 {
        let other_attributes = packet
            .attributes
            .iter()
            .filter(|attribute| !matches!(attribute.0, PROXY_STATE | MESSAGE_AUTHENTICATOR));
        assert_eq!(other_attributes.count(), 0, "who does not come in is told nothing");
    }
}

thread_local! {
    static SUBJECT: RefCell<Subject> = RefCell::new(Subject::new());
}

fuzz_target!(|bytes: &[u8]| {
    let [choice, space, rest @ ..] = bytes else { return };
    let space = usize::from(*space);
    let source = &SOURCES[usize::from(choice / 8) % SOURCES.len()];
    SUBJECT.with_borrow_mut(|subject| match choice % 8 {
        0 => subject.check_request(rest, source, space),
        1 => {
            let _ =
                std::str::from_utf8(rest).map(|text| UserDatabase::parse(text, Path::new("users")).map(drop));
        }
        _ => {
            let mut from = Unstructured::new(rest);
            let secret = source.secret.unwrap_or(SECRET);
            while let (false, Ok(packet)) = (from.is_empty(), packet(&mut from, secret)) {
                subject.check_request(&packet, source, space);
            }
        }
    });
});
