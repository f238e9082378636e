//! The echo service for measurements with `linerate load`: each request comes back, marked as a reply.
//!
//! An echo of every payload cannot distinguish requests and replies, so one datagram with a forged source would keep two
//! echo servers busy forever. This one answers payloads that begin with the request header of `linerate load`, and its
//! replies begin with another header ([`linerate_networks::echo`]), so it never answers a reply.

use std::sync::Arc;

use linerate_engine::{Action, Request, Service};
use linerate_networks::echo::{HEADER_BYTES, REPLY, REQUEST};

use crate::refusals::{RefusalCounters, RefusalReason};

/// Sends requests of `linerate load` back. Requires a reply buffer as long as the longest request.
#[derive(Debug, Clone)]
pub struct RequestEcho {
    any: bool,
    refusals: Arc<RefusalCounters>,
}

impl RequestEcho {
    /// With `any`, payloads without the header come back too, unchanged. A forged source can then keep such a server and
    /// another echo server busy forever, unless their ports prevent it
    /// ([`GuardedService`](crate::guarded_service::GuardedService)). Replies are never answered.
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
                // The engine counts it as too long.
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
