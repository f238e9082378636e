//! The measured process: it serves a queue of requests once and ends.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use linerate_engine::{Backend, Echo, Server};
use linerate_services::start::StartService;
use socket2::{Domain, Socket, Type};

use crate::sys::{echo, trace};

/// Bytes of a request that both sides keep.
const REQUEST: usize = 2048;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SubjectSide {
    /// The engine's mmsg backend.
    Engine,
    C,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
pub(crate) struct BenchSubject {
    #[arg(long)]
    pub(crate) side: SubjectSide,
    /// Requests that wait in the queue when the server starts.
    #[arg(long)]
    pub(crate) requests: u64,
    /// Messages per system call.
    #[arg(long)]
    pub(crate) batch: u16,
    /// Bytes per request.
    #[arg(long)]
    pub(crate) payload: usize,
    /// Bind to the wildcard address, so that control data comes with every request.
    #[arg(long)]
    pub(crate) wildcard: bool,
}

/// Prepares a server with one worker. Fails if it would fall back to another backend.
fn prepare(address: SocketAddr, backend: Backend) -> anyhow::Result<Server> {
    let server =
        Server::builder().bind(address).workers(1).max_request(REQUEST).backend(backend).prepare()?;
    match server.fallbacks() {
        [] => Ok(server),
        [fallback, ..] => bail!("{fallback}"),
    }
}

fn start_tracing() -> anyhow::Result<()> {
    trace::trace_me().context("tracing is not possible")
}

impl BenchSubject {
    /// The arguments that make another process this subject.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let side = match self.side {
            SubjectSide::Engine => "engine",
            SubjectSide::C => "c",
        };
        let wildcard = if self.wildcard { " --wildcard" } else { "" };
        let line = format!(
            "bench subject --side {side} --requests {} --batch {} --payload {}{wildcard}",
            self.requests, self.batch, self.payload
        );
        line.split(' ').map(str::to_owned).collect()
    }

    fn address(&self) -> SocketAddr {
        let ip = if self.wildcard { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
        (ip, 0).into()
    }

    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self.side {
            SubjectSide::Engine => self.engine(Backend::Mmsg { batch: self.batch }),
            SubjectSide::C => self.c(),
        }
    }

    /// Tracing starts after the server is prepared.
    fn engine(&self, backend: Backend) -> anyhow::Result<()> {
        let server = prepare(self.address(), backend)?;
        start_tracing()?;
        let _client = self.queue_requests(server.local_addr().port())?;
        let running_server = Echo::start_server(server, Box::new(|_| Echo))?;
        self.wait(|| running_server.total().answered)?;
        running_server.stop()?;
        Ok(())
    }

    fn c(&self) -> anyhow::Result<()> {
        start_tracing()?;
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        socket.bind(&self.address().into())?;
        if self.wildcard {
            echo::enable_pktinfo(&socket)?;
        }
        let port = socket.local_addr()?.as_socket().context("not an IP socket")?.port();
        let _client = self.queue_requests(port)?;
        let counters = Arc::new(echo::EchoCounters::default());
        let stop = Arc::new(AtomicI32::new(0));
        thread::scope(|scope| {
            let server =
                scope.spawn(|| echo::serve(&socket, self.batch, REQUEST, self.wildcard, &stop, &counters));
            let wait_result = self.wait(|| counters.answered());
            stop.store(1, Ordering::Release);
            // Fails with ENOTCONN, but wakes the server.
            let _ = socket.shutdown(std::net::Shutdown::Read);
            wait_result?;
            match server.join() {
                Ok(serve_result) => Ok(serve_result?),
                Err(_) => bail!("the C server's thread panicked"),
            }
        })
    }

    /// Puts the requests into the queue of the server on `port`.
    fn queue_requests(&self, port: u16) -> anyhow::Result<UdpSocket> {
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        client.connect((Ipv4Addr::LOCALHOST, port))?;
        for _ in 0..self.requests {
            client.send(&vec![7; self.payload])?;
        }
        Ok(client)
    }

    fn wait(&self, reply_count: impl Fn() -> u64) -> anyhow::Result<()> {
        let begin = Instant::now();
        while reply_count() < self.requests {
            ensure!(
                begin.elapsed() < Duration::from_secs(60),
                "{} of {} requests were answered within a minute: the receive buffer does not hold them all",
                reply_count(),
                self.requests
            );
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}
