//! As tokio's own echo example has it, on a runtime of one thread.

use std::io;
use std::net::UdpSocket;

use super::{REQUEST, of_one_reply};

pub(super) fn serve(socket: UdpSocket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    ::tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
        let socket = ::tokio::net::UdpSocket::from_std(socket)?;
        let mut buffer = [0; REQUEST];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await?;
            match socket.send_to(&buffer[..length], from).await {
                Err(error) if !of_one_reply(&error) => return Err(error),
                _ => {}
            }
        }
    })
}
