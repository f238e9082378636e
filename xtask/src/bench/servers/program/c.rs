//! The loop in C that the engine is measured against elsewhere, too.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::AtomicI32;

use super::REQUEST;
use crate::sys::echo;

/// Messages a call, as many as the engine takes.
const BATCH: u16 = 64;

#[expect(clippy::needless_pass_by_value, reason = "as all others: a socket is served by one who has it")]
pub(super) fn serve(socket: UdpSocket) -> io::Result<()> {
    echo::serve(&socket, BATCH, REQUEST, false, &AtomicI32::new(0), &echo::EchoCounters::default())
}
