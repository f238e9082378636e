//! A server with forked workers, like NSD: a master holds the sockets, and a process per socket
//! reads it.

use std::io::{self, Write};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, getpid, getppid, set_parent_process_death_signal, wait};
use socket2::{Domain, Protocol, Socket, Type};

use crate::reflector::sys;

/// A server with forked workers. Each worker returns every datagram of one socket of a reuseport
/// group, followed by the worker's process id in four bytes (big-endian).
///
/// It is a separate program: [`PreforkServer::run`] takes over the process that calls it.
#[derive(Debug, Clone)]
pub struct PreforkServer {
    /// The address to serve. It requires a port.
    pub address: SocketAddr,
    /// The number of workers, and of sockets.
    pub workers: usize,
    /// The delay before a dead worker is replaced; `None`: it is not replaced.
    pub refork: Option<Duration>,
    /// Whether each worker opens its own socket, which then closes with the worker. Otherwise the
    /// master opens all sockets, and the socket of a dead worker still receives datagrams.
    pub own_sockets: bool,
}

impl PreforkServer {
    /// Serves until it is killed; its workers die with it. Each line written to `output` is about a
    /// worker: `worker NUMBER PID` when it has its socket, `gone NUMBER PID` when it has died.
    ///
    /// # Errors
    ///
    /// If a system call fails, or the process has more than one thread, because a fork copies only
    /// the calling thread.
    pub fn run(&self, output: &mut dyn Write) -> io::Result<()> {
        let sockets: Vec<Option<UdpSocket>> = (0..self.workers)
            .map(|_| (!self.own_sockets).then(|| self.bind()).transpose())
            .collect::<Result<_, _>>()?;
        let mut pids = Vec::new();
        for (number, socket) in sockets.iter().enumerate() {
            pids.push(self.fork(number, socket.as_ref(), output)?);
        }
        loop {
            let Some((pid, status)) = wait(WaitOptions::empty())? else { continue };
            let Some(number) = pids.iter().position(|worker| *worker == pid) else { continue };
            if !(status.exited() || status.signaled()) {
                continue;
            }
            writeln!(output, "gone {number} {}", pid.as_raw_nonzero())?;
            output.flush()?;
            if let Some(delay) = self.refork {
                std::thread::sleep(delay);
                pids[number] = self.fork(number, sockets[number].as_ref(), output)?;
            }
        }
    }

    /// Forks a worker and waits until it has its socket.
    fn fork(&self, number: usize, socket: Option<&UdpSocket>, output: &mut dyn Write) -> io::Result<Pid> {
        let (ready_reader, ready_writer) = io::pipe()?;
        let master = getpid();
        let Some(pid) = sys::fork()? else {
            drop(ready_reader);
            // Only a running master reads the reason.
            let _ = self.serve_requests(master, socket, ready_writer);
            std::process::exit(1);
        };
        drop(ready_writer);
        let mut word = [0; 1];
        if io::Read::read(&mut &ready_reader, &mut word)? == 0 {
            return Err(io::Error::other(format!("worker {number} has no socket")));
        }
        writeln!(output, "worker {number} {}", pid.as_raw_nonzero())?;
        output.flush()?;
        Ok(pid)
    }

    fn serve_requests(
        &self,
        master: Pid,
        socket: Option<&UdpSocket>,
        mut ready: io::PipeWriter,
    ) -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The master may have died before this process requested the signal.
        if getppid() != Some(master) {
            return Ok(());
        }
        let own_socket = if socket.is_none() { Some(self.bind()?) } else { None };
        let Some(socket) = socket.or(own_socket.as_ref()) else { return Ok(()) };
        ready.write_all(b"1")?;
        drop(ready);
        let mut bytes = [0; 2048];
        loop {
            let (length, from) = socket.recv_from(&mut bytes)?;
            let answer = [&bytes[..length], &std::process::id().to_be_bytes()].concat();
            // The client may be gone.
            let _ = socket.send_to(&answer, from);
        }
    }

    fn bind(&self) -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::for_address(self.address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_reuse_port(true)?;
        socket.bind(&self.address.into())?;
        Ok(socket.into())
    }
}
