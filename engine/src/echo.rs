//! The service that sends every request back.

use crate::service::{Action, Request, Service};

/// Sends every request back unchanged, without copying it.
///
/// It answers every datagram, so one datagram with a forged source keeps two echo servers busy forever. Do not expose it to
/// untrusted networks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Echo;

impl Service for Echo {
    #[inline]
    fn answer(&mut self, _request: &Request<'_>, _reply: &mut [u8]) -> Action {
        Action::Echo
    }
}
