//! A server of forked workers: a master that holds the sockets, and a process for each that reads it, as NSD is.

use std::io::{self, Write};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, getpid, getppid, set_parent_process_death_signal, wait};
use socket2::{Domain, Protocol, Socket, Type};

use crate::reflector::sys;

/// A server of forked workers, each of which returns every datagram of one socket of a reuseport group, and behind it its
/// process id in four bytes, the highest first.
///
/// It is a program of its own: [`PreforkServer::run`] takes over the process that calls it.
#[derive(Debug, Clone)]
pub struct PreforkServer {
    /// Where it serves; a port has to be given.
    pub address: SocketAddr,
    /// How many workers, and sockets.
    pub workers: usize,
    /// The delay before a worker that died is replaced; `None`: it is not replaced.
    pub refork: Option<Duration>,
    /// Whether each worker makes its socket itself, so that it is gone with the worker. Else the master makes all, and a
    /// socket whose worker is dead goes on taking datagrams.
    pub own_sockets: bool,
}

impl PreforkServer {
    /// Serves until it is killed; its workers die with it. Each line of `tell` is about a worker:
    /// `worker NUMBER PID` once it has its socket, `gone NUMBER PID` when it died.
    ///
    /// # Errors
    ///
    /// A system call that failed, or a process of more than one thread, because a fork would have
    /// the calling thread only.
    pub fn run(&self, tell: &mut dyn Write) -> io::Result<()> {
        let sockets: Vec<Option<UdpSocket>> = (0..self.workers)
            .map(|_| (!self.own_sockets).then(|| self.bind()).transpose())
            .collect::<Result<_, _>>()?;
        let mut pids = Vec::new();
        for (number, socket) in sockets.iter().enumerate() {
            pids.push(self.fork(number, socket.as_ref(), tell)?);
        }
        loop {
            let Some((pid, status)) = wait(WaitOptions::empty())? else { continue };
            let Some(number) = pids.iter().position(|worker| *worker == pid) else { continue };
            if !(status.exited() || status.signaled()) {
                continue;
            }
            writeln!(tell, "gone {number} {}", pid.as_raw_nonzero())?;
            tell.flush()?;
            if let Some(after) = self.refork {
                std::thread::sleep(after);
                pids[number] = self.fork(number, sockets[number].as_ref(), tell)?;
            }
        }
    }

    /// Forks a worker, which has its socket when this returns.
    fn fork(&self, number: usize, socket: Option<&UdpSocket>, tell: &mut dyn Write) -> io::Result<Pid> {
        let (ready, readies) = io::pipe()?;
        let master = getpid();
        let Some(pid) = sys::fork()? else {
            drop(ready);
            // Only a running master reads the reason.
            let _ = self.work(master, socket, readies);
            std::process::exit(1);
        };
        drop(readies);
        let mut word = [0; 1];
        if io::Read::read(&mut &ready, &mut word)? == 0 {
            return Err(io::Error::other(format!("worker {number} has no socket")));
        }
        writeln!(tell, "worker {number} {}", pid.as_raw_nonzero())?;
        tell.flush()?;
        Ok(pid)
    }

    fn work(&self, master: Pid, socket: Option<&UdpSocket>, mut ready: io::PipeWriter) -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have died before the request for the signal.
        if getppid() != Some(master) {
            return Ok(());
        }
        let own = if socket.is_none() { Some(self.bind()?) } else { None };
        let Some(socket) = socket.or(own.as_ref()) else { return Ok(()) };
        ready.write_all(b"1")?;
        drop(ready);
        let mut bytes = [0; 2048];
        loop {
            let (length, from) = socket.recv_from(&mut bytes)?;
            let answer = [&bytes[..length], &std::process::id().to_be_bytes()].concat();
            // A client that is gone is no concern of a server.
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
