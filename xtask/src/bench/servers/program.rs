//! The servers of this crate: on the engine, and in the style of other projects.

mod engine;
mod other_servers;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::thread;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use socket2::{Domain, Socket, Type};

use super::testbed::BUFFER;
use crate::machine;

/// Bytes of a request that each server keeps.
const REQUEST: usize = 2048;

type Serve = fn(UdpSocket) -> io::Result<()>;

/// The implementation of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgramKind {
    Mmsg,
    MmsgPolicy,
    Xdp,
    XdpSet,
    XdpWorking,
    DnsMmsg,
    DnsXdp,
    Recvfrom,
    C,
    Tokio,
    Quinn,
}

/// A server that runs until it is killed.
#[derive(Debug, Args)]
pub(crate) struct ServerProgram {
    #[arg(long)]
    kind: ProgramKind,
    #[arg(long)]
    bind: SocketAddr,
    #[arg(long, default_value_t = 1)]
    workers: u32,
    /// The CPU of each worker, in turn.
    #[arg(long, value_delimiter = ',', required = true)]
    cpus: Vec<u32>,
    /// Settings of the AF_XDP backend, as JSON.
    #[arg(long)]
    xdp_settings: Option<String>,
    /// The zone of a name server.
    #[arg(long)]
    zone: Option<PathBuf>,
}

impl ProgramKind {
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Mmsg => "ours on mmsg: recvmmsg and sendmmsg of 64, a socket a thread",
            Self::MmsgPolicy => "the same with Overload::protect: sheds, fair shares, an XDP guard",
            Self::Xdp => "ours on AF_XDP, a socket a queue",
            Self::XdpSet => "the same with the settings given",
            Self::XdpWorking => "ours on AF_XDP, with a service that needs 2 us per request",
            Self::DnsMmsg => "ours on mmsg, the zone in memory",
            Self::DnsXdp => "ours on AF_XDP, the zone in memory",
            Self::Recvfrom => "std::net::UdpSocket, recv_from and send_to, one socket for all threads",
            Self::C => "a loop in C, recvmmsg and sendmmsg of 64, a socket a thread",
            Self::Tokio => "tokio::net::UdpSocket, recv_from and send_to, a runtime and a socket a thread",
            Self::Quinn => "quinn-udp on tokio: recvmmsg with GRO, GSO, a runtime and a socket a thread",
        }
    }
}

impl ServerProgram {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let serve: Serve = match self.kind {
            ProgramKind::Recvfrom => other_servers::recvfrom,
            ProgramKind::C => other_servers::c,
            ProgramKind::Tokio => other_servers::tokio,
            ProgramKind::Quinn => other_servers::quinn,
            ProgramKind::Mmsg
            | ProgramKind::MmsgPolicy
            | ProgramKind::Xdp
            | ProgramKind::XdpSet
            | ProgramKind::XdpWorking
            | ProgramKind::DnsMmsg
            | ProgramKind::DnsXdp => return engine::serve(self),
        };
        let is_shared = self.kind == ProgramKind::Recvfrom;
        let first_socket = open(self.bind, !is_shared)?;
        let mut sockets = Vec::new();
        for _ in 1..self.workers {
            sockets.push(if is_shared { first_socket.try_clone()? } else { open(self.bind, true)? });
        }
        sockets.push(first_socket);
        let mut threads: Vec<thread::JoinHandle<anyhow::Result<()>>> = Vec::new();
        for (socket, cpu) in sockets.into_iter().zip(self.cpus.iter().copied().cycle()) {
            threads.push(thread::spawn(move || {
                machine::pin(None, cpu)?;
                Ok(serve(socket)?)
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

fn open(address: SocketAddr, reuse_port: bool) -> anyhow::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    socket.set_reuse_port(reuse_port)?;
    set_socket_recv_buffer_size_force(&socket, BUFFER).context("setting a receive buffer")?;
    socket.bind(&address.into()).with_context(|| format!("binding to {address}"))?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// Each server returns the requests of several clients.
    #[test]
    fn every_server_echoes_requests_of_several_clients() {
        let all: [(&str, Serve); 4] = [
            ("recvfrom", other_servers::recvfrom),
            ("c", other_servers::c),
            ("tokio", other_servers::tokio),
            ("quinn", other_servers::quinn),
        ];
        for (kind, serve) in all {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = socket.local_addr().unwrap();
            thread::spawn(move || serve(socket));
            let clients = [0; 3].map(|_| {
                let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
                client.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
                client.connect(address).unwrap();
                client
            });
            for length in [0, 1, 100, 1400] {
                for (client, byte) in clients.iter().zip(1..) {
                    // Several at once, which GRO may merge.
                    for _ in 0..4 {
                        client.send(&vec![byte; length]).unwrap();
                    }
                }
                for (client, byte) in clients.iter().zip(1..) {
                    for _ in 0..4 {
                        let mut answer = [0; REQUEST];
                        let received = client.recv(&mut answer).unwrap_or_else(|e| panic!("{kind}: {e}"));
                        assert_eq!(&answer[..received], vec![byte; length], "{kind}");
                    }
                }
            }
        }
    }
}
