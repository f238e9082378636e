//! The plain one: a datagram in, a datagram out.

use std::io;
use std::net::UdpSocket;

use super::{REQUEST, of_one_reply};

#[expect(clippy::needless_pass_by_value, reason = "as all others: a socket is served by one who has it")]
pub(super) fn serve(socket: UdpSocket) -> io::Result<()> {
    let mut buffer = [0; REQUEST];
    loop {
        let (length, from) = socket.recv_from(&mut buffer)?;
        match socket.send_to(&buffer[..length], from) {
            Err(error) if !of_one_reply(&error) => return Err(error),
            _ => {}
        }
    }
}
