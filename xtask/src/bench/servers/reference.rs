//! Echo servers without linerate: the loop in C of `bench engine`, and the example of tokio.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::AtomicI32;
use std::thread;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use socket2::{Domain, Socket, Type};

use super::BUFFER;
use crate::machine;
use crate::sys::echo;

/// Bytes of a request that each server keeps.
const REQUEST: usize = 2048;

/// Messages per call, the same number as in the engine.
const BATCH: u16 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReferenceKind {
    C,
    Tokio,
}

/// A server that runs until it is killed.
#[derive(Debug, Args)]
pub(crate) struct ReferenceServer {
    #[arg(long)]
    kind: ReferenceKind,
    #[arg(long)]
    bind: SocketAddr,
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// The CPU of each worker, in turn.
    #[arg(long, value_delimiter = ',', required = true)]
    cpus: Vec<u32>,
}

impl ReferenceServer {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut threads: Vec<thread::JoinHandle<anyhow::Result<()>>> = Vec::new();
        for cpu in self.cpus.iter().copied().cycle().take(self.workers) {
            let (kind, socket) = (self.kind, open(self.bind)?);
            threads.push(thread::spawn(move || {
                machine::pin(None, cpu)?;
                Ok(kind.serve(socket)?)
            }));
        }
        for thread in threads {
            match thread.join() {
                Ok(result) => result.context("serving")?,
                Err(_) => bail!("a worker panicked"),
            }
        }
        Ok(())
    }
}

fn open(address: SocketAddr) -> anyhow::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    socket.set_reuse_port(true)?;
    set_socket_recv_buffer_size_force(&socket, BUFFER).context("setting a receive buffer")?;
    socket.bind(&address.into()).with_context(|| format!("binding to {address}"))?;
    Ok(socket.into())
}

impl ReferenceKind {
    fn serve(self, socket: UdpSocket) -> io::Result<()> {
        match self {
            Self::C => {
                let counters = echo::EchoCounters::default();
                echo::serve(&socket, BATCH, REQUEST, false, &AtomicI32::new(0), &counters)
            }
            Self::Tokio => tokio(socket),
        }
    }
}

/// The echo example of tokio, on a runtime of one thread.
fn tokio(socket: UdpSocket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
        let socket = tokio::net::UdpSocket::from_std(socket)?;
        let mut buffer = [0; REQUEST];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await?;
            // Errors that concern one reply: a client that has gone, no buffer, no route.
            let _ = socket.send_to(&buffer[..length], from).await;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn every_server_echoes_requests_of_several_clients() {
        for kind in [ReferenceKind::C, ReferenceKind::Tokio] {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = socket.local_addr().unwrap();
            thread::spawn(move || kind.serve(socket));
            let clients = [0; 3].map(|_| {
                let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
                client.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
                client.connect(address).unwrap();
                client
            });
            for length in [0, 1, 100, 1400] {
                for (client, byte) in clients.iter().zip(1..) {
                    client.send(&vec![byte; length]).unwrap();
                }
                for (client, byte) in clients.iter().zip(1..) {
                    let mut answer = [0; REQUEST];
                    let received = client.recv(&mut answer).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
                    assert_eq!(&answer[..received], vec![byte; length], "{kind:?}");
                }
            }
        }
    }
}
