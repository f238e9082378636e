//! A RADIUS server with a file of users (RFC 2865, 2869, 3579, 5997).
//!
//! A client is identified by its address and the secret that it shares with the server. Other
//! requests get no reply at all, not even an Access-Reject, so a forged request directs no packets
//! at another host.
//!
//! Access-Requests require a Message-Authenticator. Without it, an attacker on the path can turn a reject into an accept
//! (CVE-2024-3596, "Blast-RADIUS"). Replies to Access-Request and Status-Server have it as their first attribute. The
//! file can exempt a client. PAP and CHAP are supported; EAP is rejected.
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use linerate_engine::Server;
//! use linerate_services::radius::{RadiusServer, RequestOutcome, UserDatabase};
//!
//! let file = "[[client]]\nnetwork = '192.0.2.0/24'\nsecret = 'a long random one'\n";
//! let users = Arc::new(UserDatabase::parse(file, Path::new("users.toml"))?);
//! let radius = RadiusServer::new(users);
//! let workers = radius.clone();
//! let running = Server::builder()
//!     .bind("127.0.0.1:0".parse()?)
//!     .workers(1)
//!     .start(move |_worker| workers.clone())?;
//! assert_eq!(radius.counts().of(RequestOutcome::Accepted), 0);
//! # running.stop()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod dictionary;
mod packet;
mod recent;
mod secret;
mod users;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use linerate_engine::{Action, Request, Service};
use serde::{Serialize, Serializer};
use strum::{IntoStaticStr, VariantArray};

pub use packet::{
    AUTHENTICATOR_BYTES, HEADER_BYTES, MOST_BYTES, PacketWriter, RadiusAttribute, RadiusPacket, VALUE_BYTES,
    attribute, code,
};
pub use recent::KEPT;
use recent::RecentAnswers;
pub use secret::{
    PASSWORD_BYTES, SignatureCheck, constant_time_eq, reveal_password, sign, signature, verify_chap,
};
pub use users::{RadiusClient, RadiusUser, UserDatabase, UsersError};

/// Reply or reason for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum RequestOutcome {
    Accepted,
    Rejected,
    /// Reply to a Status-Server.
    Status,
    /// A repeated request got the reply of the first.
    Repeated,
    Malformed,
    /// Not a request that the server answers.
    WrongType,
    UnknownClient,
    /// The required Message-Authenticator is missing.
    Unsigned,
    WrongSecret,
    /// A required attribute is missing, or the reply does not fit.
    Incomplete,
}

impl RequestOutcome {
    fn text(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
            Self::Status => "Status-Server answered",
            Self::Repeated => "repeated",
            Self::Malformed => "unanswered: not RADIUS",
            Self::WrongType => "unanswered: not an Access-Request or Status-Server",
            Self::UnknownClient => "unanswered: from no client of the file",
            Self::Unsigned => "unanswered: without Message-Authenticator",
            Self::WrongSecret => "unanswered: wrong signature, usually another secret",
            Self::Incomplete => "unanswered: incomplete, or without room for a reply",
        }
    }
}

/// Requests of all workers by outcome. Displayed as a list of the outcomes that occurred. In JSON,
/// a map with a key per outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RadiusCounts([u64; RequestOutcome::VARIANTS.len()]);

impl RadiusCounts {
    #[must_use]
    pub fn of(&self, outcome: RequestOutcome) -> u64 {
        self.0[outcome as usize]
    }
}

impl Serialize for RadiusCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(RequestOutcome::VARIANTS.iter().map(<&'static str>::from).zip(self.0))
    }
}

impl fmt::Display for RadiusCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted_outcomes =
            RequestOutcome::VARIANTS.iter().copied().filter(|outcome| self.of(*outcome) > 0);
        let list: Vec<String> =
            counted_outcomes.map(|outcome| format!("{} {}", self.of(outcome), outcome.text())).collect();
        f.write_str(if list.is_empty() { "no requests".to_owned() } else { list.join(", ") }.as_str())
    }
}

/// Answers requests. Each worker has a clone, which shares the state.
#[derive(Debug, Clone)]
pub struct RadiusServer {
    users: Arc<UserDatabase>,
    recent: Arc<RecentAnswers>,
    counters: Arc<[AtomicU64; RequestOutcome::VARIANTS.len()]>,
}

impl RadiusServer {
    #[must_use]
    pub fn new(users: Arc<UserDatabase>) -> Self {
        Self { users, recent: Arc::new(RecentAnswers::new()), counters: Arc::default() }
    }

    #[must_use]
    pub fn counts(&self) -> RadiusCounts {
        RadiusCounts(std::array::from_fn(|index| self.counters[index].load(Relaxed)))
    }

    /// Writes the reply to a datagram from `source`, if there is one, to the start of `reply` and returns its length in
    /// bytes.
    pub fn answer_at(
        &self,
        datagram: &[u8],
        source: SocketAddr,
        now: Instant,
        reply: &mut [u8],
    ) -> (RequestOutcome, Option<usize>) {
        let (outcome, length) = match self.handle_request(datagram, source, now, reply) {
            Ok((outcome, length)) => (outcome, Some(length)),
            Err(outcome) => (outcome, None),
        };
        self.counters[outcome as usize].fetch_add(1, Relaxed);
        (outcome, length)
    }

    fn handle_request(
        &self,
        datagram: &[u8],
        source: SocketAddr,
        now: Instant,
        reply: &mut [u8],
    ) -> Result<(RequestOutcome, usize), RequestOutcome> {
        let packet = RadiusPacket::parse(datagram).ok_or(RequestOutcome::Malformed)?;
        // Before the secret is looked up: a reply is never answered, from any sender.
        let is_status = match packet.code() {
            code::ACCESS_REQUEST => false,
            code::STATUS_SERVER => true,
            _ => return Err(RequestOutcome::WrongType),
        };
        let client = self.users.client(source.ip()).ok_or(RequestOutcome::UnknownClient)?;
        verify(packet, client, is_status)?;
        let key = (source, packet.identifier());
        let authenticator = packet.authenticator();
        if let Some(length) = self.recent.find(key, &authenticator, now, reply) {
            return Ok((RequestOutcome::Repeated, length));
        }
        let (outcome, code, attributes) = if is_status {
            (RequestOutcome::Status, code::ACCESS_ACCEPT, &[][..])
        } else {
            match self.authenticate(packet, client) {
                Some(user) => (RequestOutcome::Accepted, code::ACCESS_ACCEPT, user.reply.as_slice()),
                None => (RequestOutcome::Rejected, code::ACCESS_REJECT, &[][..]),
            }
        };
        let length = write(reply, packet, code, attributes, client).ok_or(RequestOutcome::Incomplete)?;
        // A repeated Status-Server checks whether the server still answers (RFC 5997, section 4.2).
        if !is_status {
            self.recent.keep(key, authenticator, now, &reply[..length]);
        }
        Ok((outcome, length))
    }

    /// The user, if the request proves the password.
    fn authenticate(&self, packet: RadiusPacket<'_>, client: &RadiusClient) -> Option<&RadiusUser> {
        let user = self.users.user(packet.find(attribute::USER_NAME)?)?;
        let authenticator = packet.authenticator();
        let is_correct = match (packet.find(attribute::USER_PASSWORD), packet.find(attribute::CHAP_PASSWORD))
        {
            (Some(hidden), None) => {
                let password = reveal_password(hidden, &client.secret, authenticator)?;
                constant_time_eq(&password, &user.password)
            }
            (None, Some(response)) => {
                let challenge = packet.find(attribute::CHAP_CHALLENGE).unwrap_or(&authenticator);
                verify_chap(response, &user.password, challenge)
            }
            // Both together are forbidden (RFC 2865, section 4.1). Neither: EAP, or a request
            // without a password.
            _ => false,
        };
        is_correct.then_some(user)
    }
}

impl Service for RadiusServer {
    fn answer(&mut self, request: &Request<'_>, reply: &mut [u8]) -> Action {
        match self.answer_at(request.payload(), request.source(), Instant::now(), reply).1 {
            Some(length) => Action::Reply(length),
            None => Action::Drop,
        }
    }
}

/// Checks that the sender knows the secret.
fn verify(packet: RadiusPacket<'_>, client: &RadiusClient, is_status: bool) -> Result<(), RequestOutcome> {
    let secret = &client.secret;
    // Always required in a Status-Server (RFC 5997, section 3) and with EAP (RFC 3579, section 3.1).
    let is_required = is_status || client.signature_required || packet.find(attribute::EAP_MESSAGE).is_some();
    match signature(packet, secret, packet.authenticator()) {
        SignatureCheck::Right => Ok(()),
        SignatureCheck::Missing if !is_required => Ok(()),
        SignatureCheck::Missing => Err(RequestOutcome::Unsigned),
        SignatureCheck::Wrong => Err(RequestOutcome::WrongSecret),
    }
}

// Writes a reply: the Message-Authenticator first, because the forgery of CVE-2024-3596 needs attributes before it; then
// the user's attributes and the Proxy-States of the request, in their order.
fn write(
    reply: &mut [u8],
    request: RadiusPacket<'_>,
    code: u8,
    attributes: &[(u8, Vec<u8>)],
    client: &RadiusClient,
) -> Option<usize> {
    let authenticator = request.authenticator();
    let mut writer = PacketWriter::new(reply, code, request.identifier(), authenticator)?;
    let signature = writer.attribute(attribute::MESSAGE_AUTHENTICATOR, &[0; AUTHENTICATOR_BYTES])?;
    for (kind, value) in attributes {
        writer.attribute(*kind, value)?;
    }
    for state in request.attributes().filter(|attribute| attribute.kind == attribute::PROXY_STATE) {
        writer.attribute(state.kind, state.value)?;
    }
    let packet = writer.finish();
    sign(packet, Some(signature), &client.secret, authenticator);
    Some(packet.len())
}

#[cfg(test)]
mod tests;
