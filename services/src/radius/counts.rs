//! What became of requests.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum RequestOutcome {
    /// The user may come in.
    Accepted,
    Rejected,
    /// What a user did was noted.
    Accounted,
    /// A NAS asked whether the server is there.
    Status,
    /// It came again, and got the same answer.
    Repeated,
    /// No answer: not a packet.
    Malformed,
    /// No answer: a type of packet that is not answered on this port. All answers are.
    Type,
    /// No answer: from an address that is no client's.
    UnknownClient,
    /// No answer: without a Message-Authenticator, and one is required.
    Unsigned,
    /// No answer: signed wrong, commonly with another secret.
    WrongSecret,
    /// No answer: without what its type has to have, or the answer did not fit.
    Incomplete,
    /// No answer: what a user did could not be written down.
    Unrecorded,
}

const OUTCOMES: usize = RequestOutcome::Unrecorded as usize + 1;

/// What became of requests so far. One worker writes, anybody reads.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct RequestTotals([AtomicU64; OUTCOMES]);

impl RequestTotals {
    pub(crate) fn count(&self, outcome: RequestOutcome) {
        self.0[outcome as usize].fetch_add(1, Relaxed);
    }

    fn of(&self, outcome: RequestOutcome) -> u64 {
        self.0[outcome as usize].load(Relaxed)
    }
}

/// Requests by what became of them, of all workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RadiusCounts {
    pub accepted: u64,
    pub rejected: u64,
    pub accounted: u64,
    pub status: u64,
    pub repeated: u64,
    pub malformed: u64,
    pub wrong_type: u64,
    pub unknown_client: u64,
    pub unsigned: u64,
    pub wrong_secret: u64,
    pub incomplete: u64,
    pub unrecorded: u64,
}

impl RadiusCounts {
    pub(crate) fn add(&mut self, tally: &RequestTotals) {
        for (field, outcome) in [
            (&mut self.accepted, RequestOutcome::Accepted),
            (&mut self.rejected, RequestOutcome::Rejected),
            (&mut self.accounted, RequestOutcome::Accounted),
            (&mut self.status, RequestOutcome::Status),
            (&mut self.repeated, RequestOutcome::Repeated),
            (&mut self.malformed, RequestOutcome::Malformed),
            (&mut self.wrong_type, RequestOutcome::Type),
            (&mut self.unknown_client, RequestOutcome::UnknownClient),
            (&mut self.unsigned, RequestOutcome::Unsigned),
            (&mut self.wrong_secret, RequestOutcome::WrongSecret),
            (&mut self.incomplete, RequestOutcome::Incomplete),
            (&mut self.unrecorded, RequestOutcome::Unrecorded),
        ] {
            *field += tally.of(outcome);
        }
    }
}
