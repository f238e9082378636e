//! Echo servers in the style of other projects.
#![expect(clippy::needless_pass_by_value, reason = "each server owns its socket")]

use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::sync::atomic::AtomicI32;

use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use tokio::io::Interest;

use super::REQUEST;
use crate::sys::echo;

/// Messages per call, the same number as in the engine.
const BATCH: u16 = 64;

/// One system call per received and per sent datagram.
pub(super) fn recvfrom(socket: UdpSocket) -> io::Result<()> {
    let mut buffer = [0; REQUEST];
    loop {
        let (length, from) = socket.recv_from(&mut buffer)?;
        ignore_lost_reply(socket.send_to(&buffer[..length], from))?;
    }
}

/// The loop in C of `bench engine`.
pub(super) fn c(socket: UdpSocket) -> io::Result<()> {
    echo::serve(&socket, BATCH, REQUEST, false, &AtomicI32::new(0), &echo::EchoCounters::default())
}

/// The echo example of tokio, on a runtime of one thread.
pub(super) fn tokio(socket: UdpSocket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
        let socket = tokio::net::UdpSocket::from_std(socket)?;
        let mut buffer = [0; REQUEST];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await?;
            ignore_lost_reply(socket.send_to(&buffer[..length], from).await)?;
        }
    })
}

/// quinn-udp, driven by tokio in the same way as by quinn. It receives datagrams in batches, each
/// perhaps several datagrams of one size, which return as one.
pub(super) fn quinn(socket: UdpSocket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
        let socket = tokio::net::UdpSocket::from_std(socket)?;
        let state = UdpSocketState::new((&socket).into())?;
        let mut buffers = vec![vec![0; REQUEST * state.gro_segments()]; BATCH_SIZE];
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        loop {
            let batch_length = {
                let mut slices: Vec<IoSliceMut<'_>> =
                    buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
                socket
                    .async_io(Interest::READABLE, || state.recv((&socket).into(), &mut slices, &mut metas))
                    .await?
            };
            for (meta, buffer) in metas.iter().zip(&buffers).take(batch_length) {
                let is_segmented = meta.len > meta.stride;
                let transmit = Transmit {
                    destination: meta.addr,
                    ecn: None,
                    contents: &buffer[..meta.len],
                    segment_size: is_segmented.then_some(meta.stride),
                    src_ip: None,
                };
                let send = || state.try_send((&socket).into(), &transmit);
                ignore_lost_reply(socket.async_io(Interest::WRITABLE, send).await)?;
            }
        }
    })
}

/// Ignores errors that concern one reply: a client that has gone, no buffer, no route.
fn ignore_lost_reply<T>(send_result: io::Result<T>) -> io::Result<()> {
    match send_result {
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EBADF | libc::ENOTSOCK | libc::EINVAL | libc::EFAULT)
            ) =>
        {
            Err(error)
        }
        _ => Ok(()),
    }
}
