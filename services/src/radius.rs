//! A RADIUS server with a file of users (RFC 2865, 2866, 2869, 3579, 5997).
//!
//! Who asks is known by his address and the secret he shares with the server. Nobody else gets an answer, not even an
//! Access-Reject: silence is what the RFCs have for all that cannot be trusted, and it leaves a forger nothing to aim at others.
//!
//! Access-Requests have to carry a Message-Authenticator, without which whoever sits on the path can turn a reject into an accept
//! (CVE-2024-3596, "Blast-RADIUS"); answers to them and to Status-Server have one as their first attribute. A client of
//! the file may be let off that. PAP and CHAP are known, EAP is not: it is rejected.
//!
//! Accounting is verified, written to a [`DetailFile`] file, and answered when it is there: no answer is for what could not be recorded
//! (RFC 2866, section 2). Without a file it is counted and answered, and nothing of it kept, which is for measuring.
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use linerate_engine::Server;
//! use linerate_services::radius::{PortRole, RadiusServer, UserDatabase};
//!
//! let file = "[[client]]\nnetwork = '192.0.2.0/24'\nsecret = 'a long random one'\n";
//! let users = Arc::new(UserDatabase::parse(file, Path::new("users.toml"))?);
//! let radius = RadiusServer::new(PortRole::Authentication, users);
//! let workers = radius.clone();
//! let running = Server::builder()
//!     .bind("127.0.0.1:0".parse()?)
//!     .workers(1)
//!     .start(move |_worker| workers.worker())?;
//! assert_eq!(radius.counts().accepted, 0);
//! # running.stop()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod counts;
mod detail;
mod dictionary;
mod packet;
mod recent;
mod record;
mod secret;
mod users;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use linerate_engine::{Action, Request, Service};

use counts::RequestTotals;
pub use counts::{RadiusCounts, RequestOutcome};
pub use detail::{DetailFile, OperatorNotifier, SyncMode};
pub use packet::{
    AUTHENTICATOR_BYTES, HEADER_BYTES, MOST_BYTES, PacketError, PacketFull, PacketWriter, RadiusAttribute,
    RadiusPacket, VALUE_BYTES, attribute, code,
};
pub use recent::KEPT;
use recent::RecentAnswers;
pub use secret::{
    PASSWORD_BYTES, SignatureCheck, constant_time_eq, reveal_password, sign, signature, verify_chap,
    verify_digest,
};
pub use users::{RadiusClient, RadiusUser, UserDatabase, UsersError};

/// What a port is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortRole {
    /// Access-Requests, 1812 by custom.
    Authentication,
    /// Accounting-Requests, 1813 by custom.
    Accounting,
}

/// A server: what the workers of one port have in common.
#[derive(Debug, Clone)]
pub struct RadiusServer {
    port: PortRole,
    users: Arc<UserDatabase>,
    recent: Arc<RecentAnswers>,
    detail: Option<Arc<DetailFile>>,
    tallies: Arc<Mutex<Vec<Arc<RequestTotals>>>>,
}

impl RadiusServer {
    /// A server of `users`.
    #[must_use]
    pub fn new(port: PortRole, users: Arc<UserDatabase>) -> Self {
        Self { port, users, recent: Arc::new(RecentAnswers::new()), detail: None, tallies: Arc::default() }
    }

    /// Writes accounting to this file before it is answered. Workers made before are left as they were.
    #[must_use]
    pub fn detail(mut self, detail: Arc<DetailFile>) -> Self {
        self.detail = Some(detail);
        self
    }

    /// The service of one worker.
    #[must_use]
    pub fn worker(&self) -> RadiusService {
        let tally = Arc::new(RequestTotals::default());
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&tally));
        RadiusService {
            port: self.port,
            users: Arc::clone(&self.users),
            recent: Arc::clone(&self.recent),
            detail: self.detail.clone(),
            tally,
        }
    }

    /// What became of all workers' requests so far.
    #[must_use]
    pub fn counts(&self) -> RadiusCounts {
        let mut counts = RadiusCounts::default();
        for tally in self.tallies.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            counts.add(tally);
        }
        counts
    }
}

/// The service of one worker.
#[derive(Debug)]
pub struct RadiusService {
    port: PortRole,
    users: Arc<UserDatabase>,
    recent: Arc<RecentAnswers>,
    detail: Option<Arc<DetailFile>>,
    tally: Arc<RequestTotals>,
}

impl Service for RadiusService {
    fn answer(&mut self, request: &Request<'_>, reply: &mut [u8]) -> Action {
        match self.answer_at(request.payload(), request.source(), Instant::now(), reply).1 {
            Some(length) => Action::Reply(length),
            None => Action::Drop,
        }
    }
}

impl RadiusService {
    /// Answers a datagram that came from `source`: writes the answer, if there is one, to the start of `reply`, and returns what
    /// became of the request and the answer's length in bytes.
    pub fn answer_at(
        &mut self,
        datagram: &[u8],
        source: SocketAddr,
        now: Instant,
        reply: &mut [u8],
    ) -> (RequestOutcome, Option<usize>) {
        let (outcome, length) = match self.handle_request(datagram, source, now, reply) {
            Ok((outcome, length)) => (outcome, Some(length)),
            Err(outcome) => (outcome, None),
        };
        self.tally.count(outcome);
        (outcome, length)
    }

    fn handle_request(
        &self,
        datagram: &[u8],
        source: SocketAddr,
        now: Instant,
        reply: &mut [u8],
    ) -> Result<(RequestOutcome, usize), RequestOutcome> {
        let packet = RadiusPacket::parse(datagram).map_err(|PacketError| RequestOutcome::Malformed)?;
        // Before the secret is looked up: an answer is never answered, whoever sent it.
        let purpose = purpose(self.port, packet.code()).ok_or(RequestOutcome::Type)?;
        let client = self.users.client(source.ip()).ok_or(RequestOutcome::UnknownClient)?;
        verify(packet, client, purpose)?;
        let key = (source, packet.identifier());
        let authenticator = packet.authenticator();
        if let Some(length) = self.recent.find(key, &authenticator, now, reply) {
            return Ok((RequestOutcome::Repeated, length));
        }
        let (outcome, code, attributes) = match purpose {
            RequestPurpose::Access => match self.authenticate(packet, client) {
                Some(user) => (RequestOutcome::Accepted, code::ACCESS_ACCEPT, user.reply.as_slice()),
                None => (RequestOutcome::Rejected, code::ACCESS_REJECT, &[][..]),
            },
            RequestPurpose::Accounting => {
                packet
                    .find(attribute::ACCT_STATUS_TYPE)
                    .filter(|value| value.len() == 4)
                    .ok_or(RequestOutcome::Incomplete)?;
                (RequestOutcome::Accounted, code::ACCOUNTING_RESPONSE, &[][..])
            }
            RequestPurpose::Status if self.port == PortRole::Authentication => {
                (RequestOutcome::Status, code::ACCESS_ACCEPT, &[][..])
            }
            RequestPurpose::Status => (RequestOutcome::Status, code::ACCOUNTING_RESPONSE, &[][..]),
        };
        let signed = purpose != RequestPurpose::Accounting;
        let length = write(reply, packet, code, attributes, client, signed)
            .map_err(|PacketFull| RequestOutcome::Incomplete)?;
        // Last, so that what is recorded is answered, too, and one that comes again within a few seconds is not recorded twice.
        if let (RequestPurpose::Accounting, Some(detail)) = (purpose, &self.detail) {
            let line = record::line(packet, source, SystemTime::now());
            detail.append(&line).map_err(|_| RequestOutcome::Unrecorded)?;
        }
        // Asking again whether the server is there is to find out whether it still is (RFC 5997, section 4.2).
        if purpose != RequestPurpose::Status {
            self.recent.keep(key, authenticator, now, &reply[..length]);
        }
        Ok((outcome, length))
    }

    /// Who asks to come in, if he may.
    fn authenticate(&self, packet: RadiusPacket<'_>, client: &RadiusClient) -> Option<&RadiusUser> {
        let user = self.users.user(packet.find(attribute::USER_NAME)?)?;
        let authenticator = packet.authenticator();
        let right = match (packet.find(attribute::USER_PASSWORD), packet.find(attribute::CHAP_PASSWORD)) {
            (Some(hidden), None) => {
                let told = reveal_password(hidden, &client.secret, authenticator)?;
                constant_time_eq(&told, &user.password)
            }
            (None, Some(response)) => {
                let challenge = packet.find(attribute::CHAP_CHALLENGE).unwrap_or(&authenticator);
                verify_chap(response, &user.password, challenge)
            }
            // Both is forbidden (RFC 2865, section 4.1); neither is EAP, or a user who has to type his password yet.
            _ => false,
        };
        right.then_some(user)
    }
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestPurpose {
    Access,
    Accounting,
    Status,
}

fn purpose(port: PortRole, code: u8) -> Option<RequestPurpose> {
    match (port, code) {
        (PortRole::Authentication, code::ACCESS_REQUEST) => Some(RequestPurpose::Access),
        (PortRole::Accounting, code::ACCOUNTING_REQUEST) => Some(RequestPurpose::Accounting),
        (_, code::STATUS_SERVER) => Some(RequestPurpose::Status),
        _ => None,
    }
}

/// Whether a request was made by who knows the secret.
fn verify(
    packet: RadiusPacket<'_>,
    client: &RadiusClient,
    purpose: RequestPurpose,
) -> Result<(), RequestOutcome> {
    let secret = &client.secret;
    if purpose == RequestPurpose::Accounting && !verify_digest(packet, secret) {
        return Err(RequestOutcome::WrongSecret);
    }
    let header = match purpose {
        RequestPurpose::Access | RequestPurpose::Status => packet.authenticator(),
        RequestPurpose::Accounting => [0; AUTHENTICATOR_BYTES],
    };
    let required = match purpose {
        // RFC 3579, section 3.1: with EAP always.
        RequestPurpose::Access => client.signature_required || packet.find(attribute::EAP_MESSAGE).is_some(),
        // Its authenticator is a digest with the secret already.
        RequestPurpose::Accounting => false,
        // RFC 5997, section 3.
        RequestPurpose::Status => true,
    };
    match signature(packet, secret, header) {
        SignatureCheck::Right => Ok(()),
        SignatureCheck::Missing if !required => Ok(()),
        SignatureCheck::Missing => Err(RequestOutcome::Unsigned),
        SignatureCheck::Wrong => Err(RequestOutcome::WrongSecret),
    }
}

/// Writes an answer: the Message-Authenticator first, since what an attacker could put before it is what makes his forgeries
/// fit; then the user's attributes, and what proxies want back, in their order.
fn write(
    reply: &mut [u8],
    request: RadiusPacket<'_>,
    code: u8,
    attributes: &[(u8, Vec<u8>)],
    client: &RadiusClient,
    signed: bool,
) -> Result<usize, PacketFull> {
    let authenticator = request.authenticator();
    let mut writer = PacketWriter::new(reply, code, request.identifier(), authenticator)?;
    let signature = match signed {
        true => Some(writer.attribute(attribute::MESSAGE_AUTHENTICATOR, &[0; AUTHENTICATOR_BYTES])?),
        false => None,
    };
    for (kind, value) in attributes {
        writer.attribute(*kind, value)?;
    }
    for state in request.attributes().filter(|attribute| attribute.kind == attribute::PROXY_STATE) {
        writer.attribute(state.kind, state.value)?;
    }
    let packet = writer.finish();
    sign(packet, signature, &client.secret, authenticator);
    Ok(packet.len())
}

#[cfg(test)]
mod tests;
