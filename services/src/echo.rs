//! The echo that `linerate load` measures with: each request comes back, marked as a reply.
//!
//! An echo of everything cannot tell a request from an answer, so a datagram with a forged source would make two of
//! them answer each other for ever. This one answers what begins with the header of a request of `linerate load`, and
//! its reply begins otherwise ([`linerate_networks::echo`]). So it answers no reply, neither its own that another echo
//! returned nor that of its like.

use std::sync::Arc;

use linerate_engine::{Action, Request, Service};
use linerate_networks::echo::{HEADER_BYTES, REPLY, REQUEST};

use crate::refusals::{RefusalCounters, RefusalReason};

/// Answers requests of `linerate load` with themselves. The reply buffer has to be as long as the longest request.
#[derive(Debug, Clone)]
pub struct RequestEcho {
    any: bool,
    refusals: Arc<RefusalCounters>,
}

impl RequestEcho {
    /// With `any` it returns payloads without the header, too, as they are. Then two such servers, or one and another
    /// echo, can be made to answer each other for ever, unless ports keep them apart
    /// ([`Guarded`](crate::guarded::GuardedService)). Replies are not answered even so.
    #[must_use]
    pub fn new(any: bool, refusals: Arc<RefusalCounters>) -> Self {
        Self { any, refusals }
    }
}

impl Service for RequestEcho {
    #[inline]
    fn answer(&mut self, request: &Request<'_>, reply: &mut [u8]) -> Action {
        let payload = request.payload();
        if payload.len() >= HEADER_BYTES && payload.starts_with(&REQUEST) {
            let Some(reply) = reply.get_mut(..payload.len()) else {
                // Counted by the server as too long.
                return Action::Reply(payload.len());
            };
            reply.copy_from_slice(payload);
            reply[..REPLY.len()].copy_from_slice(&REPLY);
            return Action::Reply(payload.len());
        }
        if self.any && !payload.starts_with(&REPLY) {
            return Action::Echo;
        }
        self.refusals.add(RefusalReason::NotRequest);
        Action::Drop
    }
}
