//! On quinn-udp, driven by tokio as quinn drives it: datagrams in batches, each maybe several of one size, which return as one.

use std::io::{self, IoSliceMut};
use std::net::UdpSocket;

use ::tokio::io::Interest;
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};

use super::{REQUEST, of_one_reply};

pub(super) fn serve(socket: UdpSocket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    ::tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
        let socket = ::tokio::net::UdpSocket::from_std(socket)?;
        let state = UdpSocketState::new((&socket).into())?;
        let mut buffers = vec![vec![0; REQUEST * state.gro_segments()]; BATCH_SIZE];
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        loop {
            let received = {
                let mut slices: Vec<IoSliceMut<'_>> =
                    buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
                socket
                    .async_io(Interest::READABLE, || state.recv((&socket).into(), &mut slices, &mut metas))
                    .await?
            };
            for (meta, buffer) in metas.iter().zip(&buffers).take(received) {
                let several = meta.len > meta.stride;
                let transmit = Transmit {
                    destination: meta.addr,
                    ecn: None,
                    contents: &buffer[..meta.len],
                    segment_size: several.then_some(meta.stride),
                    src_ip: None,
                };
                let sent =
                    socket.async_io(Interest::WRITABLE, || state.try_send((&socket).into(), &transmit)).await;
                match sent {
                    Err(error) if !of_one_reply(&error) => return Err(error),
                    _ => {}
                }
            }
        }
    })
}
