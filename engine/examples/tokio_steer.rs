//! Steering under tokio: a runtime of one thread for each CPU, each with a socket that gets the
//! packets of its CPU.
//!
//! `cargo run -p linerate-engine --example tokio_steer -- 127.0.0.1:7009`. Enter ends it.
//!
//! A runtime of many threads moves tasks between them, and with them the CPU on which a socket is
//! read: data that steering brought into one cache would be read from another. Therefore the
//! example has one runtime per CPU, like servers with one thread per core. quinn accepts such a
//! socket, too: `quinn::Endpoint::new(config, server, socket, runtime)` in each of the runtimes. A
//! QUIC connection must then stay with its endpoint, as it does while its packets arrive on one CPU
//! (RSS by flow, no `rps` that moves them).

use std::net::SocketAddr;
use std::thread::{self, JoinHandle};

use linerate_engine::steer::{self, CpuTable, SteeringProgram};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use socket2::{Domain, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::watch;

type TokioExampleError = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), TokioExampleError> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7009".to_owned());
    let server = start(address.parse()?)?;
    println!("serving on {}; Enter ends it", server.address);
    std::io::stdin().read_line(&mut String::new())?;
    println!("answered by each runtime: {:?}", server.stop()?);
    Ok(())
}

pub struct TokioServer {
    pub address: SocketAddr,
    end: watch::Sender<bool>,
    threads: Vec<JoinHandle<Result<u64, TokioExampleError>>>,
}

/// Serves on each CPU this thread may run on.
pub fn start(mut address: SocketAddr) -> Result<TokioServer, TokioExampleError> {
    let allowed = sched_getaffinity(None)?;
    let cpus: Vec<u32> = (0..CpuSet::MAX_CPU as u32).filter(|cpu| allowed.is_set(*cpu as usize)).collect();
    let mut sockets = Vec::new();
    for _ in &cpus {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
        socket.set_reuse_port(true)?;
        // tokio requires non-blocking sockets.
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        address = socket.local_addr()?.as_socket().ok_or("not an IP socket")?;
        sockets.push(socket);
    }
    let table = CpuTable::new(&cpus.iter().map(|cpu| [*cpu]).collect::<Vec<_>>())?;
    steer::attach(&sockets, &table, SteeringProgram::Cbpf)?;
    let (stop_sender, stop_receiver) = watch::channel(false);
    let threads = sockets
        .into_iter()
        .zip(cpus)
        .map(|(socket, cpu)| {
            let stop_receiver = stop_receiver.clone();
            thread::spawn(move || {
                let mut own_cpu = CpuSet::new();
                own_cpu.set(cpu as usize);
                sched_setaffinity(None, &own_cpu)?;
                let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
                runtime.block_on(serve(socket, stop_receiver))
            })
        })
        .collect();
    Ok(TokioServer { address, end: stop_sender, threads })
}

async fn serve(socket: Socket, mut stop_receiver: watch::Receiver<bool>) -> Result<u64, TokioExampleError> {
    let socket = UdpSocket::from_std(socket.into())?;
    let (mut buffer, mut answered) = ([0; 2048], 0);
    loop {
        tokio::select! {
            received = socket.recv_from(&mut buffer) => {
                let (length, client) = received?;
                socket.send_to(&buffer[..length], client).await?;
                answered += 1;
            }
            _ = stop_receiver.changed() => return Ok(answered),
        }
    }
}

impl TokioServer {
    /// Ends it. Returns how many requests each runtime answered.
    pub fn stop(self) -> Result<Vec<u64>, TokioExampleError> {
        self.end.send(true)?;
        self.threads.into_iter().map(|thread| thread.join().expect("a runtime does not panic")).collect()
    }
}
