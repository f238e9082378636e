//! The service that sends every request back.

use crate::service::{Action, Request, Service};

/// Sends every request back unchanged, without copying it.
///
/// An echo answers anything, so two echoes told of each other's address would answer one another for ever. Do not
/// run it where strangers can reach it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Echo;

impl Service for Echo {
    #[inline]
    fn answer(&mut self, _request: &Request<'_>, _reply: &mut [u8]) -> Action {
        Action::Echo
    }
}
