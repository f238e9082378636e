//! A RADIUS server with a file of users (RFC 2865, 2866, 2869, 3579, 5997).
//!
//! Who asks is known by his address and the secret he shares with the server. Nobody else gets an answer, not even an
//! Access-Reject: silence is what the RFCs have for all that cannot be trusted, and it leaves a forger nothing to aim at others.
//!
//! Access-Requests have to carry a Message-Authenticator, without which whoever sits on the path can turn a reject into an accept
//! (CVE-2024-3596, "Blast-RADIUS"); answers to them and to Status-Server have one as their first attribute. A client of
//! the file may be let off that. PAP and CHAP are known, EAP is not: it is rejected.
//!
//! Accounting is verified, written to a [`Detail`] file, and answered when it is there: no answer is for what could not be recorded
//! (RFC 2866, section 2). Without a file it is counted and answered, and nothing of it kept, which is for measuring.
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use linerate_engine::Server;
//! use linerate_services::radius::{Port, Radius, Users};
//!
//! let file = "[[client]]\nnetwork = '192.0.2.0/24'\nsecret = 'a long random one'\n";
//! let users = Arc::new(Users::parse(file, Path::new("users.toml"))?);
//! let radius = Radius::new(Port::Authentication, users);
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

use counts::Tally;
pub use counts::{Counts, Outcome};
pub use detail::{Detail, Sync, Tell};
pub use packet::{
    AUTHENTICATOR_BYTES, Attribute, Full, HEADER_BYTES, MOST_BYTES, Malformed, Packet, VALUE_BYTES, Writer,
    attribute, code,
};
pub use recent::KEPT;
use recent::Recent;
pub use secret::{
    PASSWORD_BYTES, Signature, chap_is_right, digest_is_right, revealed, same, sign, signature,
};
pub use users::{Client, User, Users, UsersError};

/// What a port is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// Access-Requests, 1812 by custom.
    Authentication,
    /// Accounting-Requests, 1813 by custom.
    Accounting,
}

/// A server: what the workers of one port have in common.
#[derive(Debug, Clone)]
pub struct Radius {
    port: Port,
    users: Arc<Users>,
    recent: Arc<Recent>,
    detail: Option<Arc<Detail>>,
    tallies: Arc<Mutex<Vec<Arc<Tally>>>>,
}

impl Radius {
    /// A server of `users`.
    #[must_use]
    pub fn new(port: Port, users: Arc<Users>) -> Self {
        Self { port, users, recent: Arc::new(Recent::new()), detail: None, tallies: Arc::default() }
    }

    /// Writes accounting to this file before it is answered. Workers made before are left as they were.
    #[must_use]
    pub fn detail(mut self, detail: Arc<Detail>) -> Self {
        self.detail = Some(detail);
        self
    }

    /// The service of one worker.
    #[must_use]
    pub fn worker(&self) -> Worker {
        let tally = Arc::new(Tally::default());
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&tally));
        Worker {
            port: self.port,
            users: Arc::clone(&self.users),
            recent: Arc::clone(&self.recent),
            detail: self.detail.clone(),
            tally,
        }
    }

    /// What became of all workers' requests so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for tally in self.tallies.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            counts.add(tally);
        }
        counts
    }
}

/// The service of one worker.
#[derive(Debug)]
pub struct Worker {
    port: Port,
    users: Arc<Users>,
    recent: Arc<Recent>,
    detail: Option<Arc<Detail>>,
    tally: Arc<Tally>,
}

impl Service for Worker {
    fn answer(&mut self, request: &Request<'_>, reply: &mut [u8]) -> Action {
        match self.answer_at(request.payload(), request.source(), Instant::now(), reply).1 {
            Some(length) => Action::Reply(length),
            None => Action::Drop,
        }
    }
}

impl Worker {
    /// Answers a datagram that came from `source`: writes the answer, if there is one, to the start of `reply`, and returns what
    /// became of the request and the answer's length in bytes.
    pub fn answer_at(
        &mut self,
        datagram: &[u8],
        source: SocketAddr,
        now: Instant,
        reply: &mut [u8],
    ) -> (Outcome, Option<usize>) {
        let (outcome, length) = match self.judge(datagram, source, now, reply) {
            Ok((outcome, length)) => (outcome, Some(length)),
            Err(outcome) => (outcome, None),
        };
        self.tally.count(outcome);
        (outcome, length)
    }

    fn judge(
        &self,
        datagram: &[u8],
        source: SocketAddr,
        now: Instant,
        reply: &mut [u8],
    ) -> Result<(Outcome, usize), Outcome> {
        let packet = Packet::parse(datagram).map_err(|Malformed| Outcome::Malformed)?;
        // Before the secret is looked up: an answer is never answered, whoever sent it.
        let purpose = purpose(self.port, packet.code()).ok_or(Outcome::Type)?;
        let client = self.users.client(source.ip()).ok_or(Outcome::UnknownClient)?;
        verify(packet, client, purpose)?;
        let key = (source, packet.identifier());
        let authenticator = packet.authenticator();
        if let Some(length) = self.recent.find(key, &authenticator, now, reply) {
            return Ok((Outcome::Repeated, length));
        }
        let (outcome, code, attributes) = match purpose {
            Purpose::Access => match self.admitted(packet, client) {
                Some(user) => (Outcome::Accepted, code::ACCESS_ACCEPT, user.reply.as_slice()),
                None => (Outcome::Rejected, code::ACCESS_REJECT, &[][..]),
            },
            Purpose::Accounting => {
                packet
                    .find(attribute::ACCT_STATUS_TYPE)
                    .filter(|value| value.len() == 4)
                    .ok_or(Outcome::Incomplete)?;
                (Outcome::Accounted, code::ACCOUNTING_RESPONSE, &[][..])
            }
            Purpose::Status if self.port == Port::Authentication => {
                (Outcome::Status, code::ACCESS_ACCEPT, &[][..])
            }
            Purpose::Status => (Outcome::Status, code::ACCOUNTING_RESPONSE, &[][..]),
        };
        let signed = purpose != Purpose::Accounting;
        let length =
            write(reply, packet, code, attributes, client, signed).map_err(|Full| Outcome::Incomplete)?;
        // Last, so that what is recorded is answered, too, and one that comes again within a few seconds is not recorded twice.
        if let (Purpose::Accounting, Some(detail)) = (purpose, &self.detail) {
            let line = record::line(packet, source, SystemTime::now());
            detail.append(&line).map_err(|_| Outcome::Unrecorded)?;
        }
        // Asking again whether the server is there is to find out whether it still is (RFC 5997, section 4.2).
        if purpose != Purpose::Status {
            self.recent.keep(key, authenticator, now, &reply[..length]);
        }
        Ok((outcome, length))
    }

    /// Who asks to come in, if he may.
    fn admitted(&self, packet: Packet<'_>, client: &Client) -> Option<&User> {
        let user = self.users.user(packet.find(attribute::USER_NAME)?)?;
        let authenticator = packet.authenticator();
        let right = match (packet.find(attribute::USER_PASSWORD), packet.find(attribute::CHAP_PASSWORD)) {
            (Some(hidden), None) => {
                let told = revealed(hidden, &client.secret, authenticator)?;
                same(&told, &user.password)
            }
            (None, Some(response)) => {
                let challenge = packet.find(attribute::CHAP_CHALLENGE).unwrap_or(&authenticator);
                chap_is_right(response, &user.password, challenge)
            }
            // Both is forbidden (RFC 2865, section 4.1); neither is EAP, or a user who has to type his password yet.
            _ => false,
        };
        right.then_some(user)
    }
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Access,
    Accounting,
    Status,
}

fn purpose(port: Port, code: u8) -> Option<Purpose> {
    match (port, code) {
        (Port::Authentication, code::ACCESS_REQUEST) => Some(Purpose::Access),
        (Port::Accounting, code::ACCOUNTING_REQUEST) => Some(Purpose::Accounting),
        (_, code::STATUS_SERVER) => Some(Purpose::Status),
        _ => None,
    }
}

/// Whether a request was made by who knows the secret.
fn verify(packet: Packet<'_>, client: &Client, purpose: Purpose) -> Result<(), Outcome> {
    let secret = &client.secret;
    if purpose == Purpose::Accounting && !digest_is_right(packet, secret) {
        return Err(Outcome::WrongSecret);
    }
    let header = match purpose {
        Purpose::Access | Purpose::Status => packet.authenticator(),
        Purpose::Accounting => [0; AUTHENTICATOR_BYTES],
    };
    let required = match purpose {
        // RFC 3579, section 3.1: with EAP always.
        Purpose::Access => client.signature_required || packet.find(attribute::EAP_MESSAGE).is_some(),
        // Its authenticator is a digest with the secret already.
        Purpose::Accounting => false,
        // RFC 5997, section 3.
        Purpose::Status => true,
    };
    match signature(packet, secret, header) {
        Signature::Right => Ok(()),
        Signature::Missing if !required => Ok(()),
        Signature::Missing => Err(Outcome::Unsigned),
        Signature::Wrong => Err(Outcome::WrongSecret),
    }
}

/// Writes an answer: the Message-Authenticator first, since what an attacker could put before it is what makes his forgeries
/// fit; then the user's attributes, and what proxies want back, in their order.
fn write(
    reply: &mut [u8],
    request: Packet<'_>,
    code: u8,
    attributes: &[(u8, Vec<u8>)],
    client: &Client,
    signed: bool,
) -> Result<usize, Full> {
    let authenticator = request.authenticator();
    let mut writer = Writer::new(reply, code, request.identifier(), authenticator)?;
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
