//! Steering without the engine's server: each thread has its own event loop and a socket that gets the packets of its CPU.
//!
//! `cargo run -p linerate-engine --example own_event_loop -- 127.0.0.1:7008`. Enter ends it.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::thread::{self, JoinHandle};

use linerate_engine::steer::{self, CpuTable, SteeringProgram};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use socket2::{Domain, Socket, Type};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7008".to_owned());
    let server = start(address.parse()?)?;
    println!("serving on {}; Enter ends it", server.address);
    io::stdin().read_line(&mut String::new())?;
    println!("answered by each thread: {:?}", server.stop()?);
    Ok(())
}

pub struct LoopServer {
    pub address: SocketAddr,
    end: OwnedFd,
    threads: Vec<JoinHandle<io::Result<u64>>>,
}

/// Serves on each CPU this thread may run on.
pub fn start(mut address: SocketAddr) -> Result<LoopServer, Box<dyn std::error::Error>> {
    let allowed = sched_getaffinity(None)?;
    let cpus: Vec<u32> = (0..CpuSet::MAX_CPU as u32).filter(|cpu| allowed.is_set(*cpu as usize)).collect();
    let mut sockets = Vec::new();
    for _ in &cpus {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
        // Before bind, on each of them.
        socket.set_reuse_port(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        // Port 0 takes a free one, and the others take the same.
        address = socket.local_addr()?.as_socket().ok_or("not an IP socket")?;
        sockets.push(socket);
    }
    // The first socket for the first CPU, and so on. Once, when all are bound: a classic program counts them in that order.
    let table = CpuTable::new(&cpus.iter().map(|cpu| [*cpu]).collect::<Vec<_>>())?;
    steer::attach(&sockets, &table, SteeringProgram::Cbpf)?;
    let stop_event = eventfd(0, EventfdFlags::CLOEXEC)?;
    let mut threads = Vec::new();
    for (socket, cpu) in sockets.into_iter().zip(cpus) {
        let stop_event = stop_event.try_clone()?;
        threads.push(thread::spawn(move || {
            // Else the scheduler moves the thread away from the CPU that fills its socket.
            let mut own_cpu = CpuSet::new();
            own_cpu.set(cpu as usize);
            sched_setaffinity(None, &own_cpu)?;
            event_loop(&socket.into(), &stop_event)
        }));
    }
    Ok(LoopServer { address, end: stop_event, threads })
}

// Yours would be here: any loop that waits for a socket will do.
fn event_loop(socket: &UdpSocket, stop_event: &OwnedFd) -> io::Result<u64> {
    let (mut buffer, mut answered) = ([0; 2048], 0);
    loop {
        let mut poll_fds = [PollFd::new(socket, PollFlags::IN), PollFd::new(stop_event, PollFlags::IN)];
        poll(&mut poll_fds, None)?;
        if !poll_fds[1].revents().is_empty() {
            return Ok(answered);
        }
        // All that is there: a wait for each datagram is a system call more.
        loop {
            match socket.recv_from(&mut buffer) {
                Ok((length, client)) => {
                    socket.send_to(&buffer[..length], client)?;
                    answered += 1;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
    }
}

impl LoopServer {
    /// Ends it. Returns how many requests each thread answered.
    pub fn stop(self) -> io::Result<Vec<u64>> {
        rustix::io::write(&self.end, &1_u64.to_ne_bytes())?;
        self.threads.into_iter().map(|thread| thread.join().expect("a thread does not panic")).collect()
    }
}
